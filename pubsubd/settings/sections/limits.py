"""Limits of the line protocol, and of all connections."""

from __future__ import annotations

from pubsubd.protocol.limits import Limits
from pubsubd.settings.kinds import choices, counts, numbers, sizes, times
from pubsubd.settings.setting import Section, Setting

_LIMITS = Limits()

LIMITS: Section = (
    "Limits",
    (
        Setting(
            "max_payload",
            sizes(),
            _LIMITS.max_payload,
            "Largest payload of one message.",
            """\
Largest payload of one message.
A larger one is refused at its header, without being read, and the connection is closed.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "max_subscriptions",
            counts(),
            _LIMITS.max_subscriptions,
            "Substrings of one connection.",
            """\
Most substrings that one connection may subscribe to.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "max_subscriptions_total",
            counts(),
            _LIMITS.max_subscriptions_total,
            "Subscriptions of all connections together.",
            """\
Most subscriptions of all connections together: substrings, names and wildcards.
Each takes some 300 bytes.
""",
            live=True,
        ),
        Setting(
            "max_connections",
            counts(),
            _LIMITS.max_connections,
            "Most open connections, if there are enough file descriptors.",
            """\
Most connections open at the same time.
The daemon raises its soft limit of file descriptors as far as the hard limit
allows.
If that is not enough, it lowers this number to the descriptors it may have
minus 16.
A connection beyond the limit gets the error
.Li too-many-connections
and is closed.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "max_pending",
            sizes(),
            _LIMITS.max_pending,
            "Most bytes that may wait for one consumer.",
            """\
Most bytes that may wait to be sent to one consumer.
A consumer is slow if more is due while it is over this limit.
""",
            live=True,
            listener="line",
        ),
        Setting(
            "slow_consumer",
            choices("throttle", "disconnect", "drop"),
            _LIMITS.slow_consumer,
            "Wait for a slow consumer and then cut it, cut it at once, or drop the excess.",
            """\
What to do about a slow consumer:
.Bl -tag -width "disconnect"
.It Cm throttle
Wait for it before it reaches the limit, by not reading from the publisher that
fills its backlog.
If that does not help, disconnect it.
.It Cm disconnect
Disconnect it without waiting.
.It Cm drop
Drop the messages that exceed its limit, without waiting.
.El
.Pp
.Xr pubsubd-protocol 7
has the details.
""",
            live=True,
        ),
        Setting(
            "stall_timeout",
            times(zero=True),
            _LIMITS.stall_timeout,
            "How long publishers wait for a consumer that takes nothing.",
            """\
How long publishers wait for a consumer that takes nothing at all.
""",
            live=True,
        ),
        Setting(
            "stall_budget",
            times(zero=True),
            _LIMITS.stall_budget,
            "How long publishers wait for one consumer in any 10 seconds.",
            """\
How long, in any 10 seconds, publishers wait for one consumer.
""",
            live=True,
        ),
        Setting(
            "request_rate",
            numbers(),
            _LIMITS.request_rate,
            "Most requests per second from one connection; 0 for no limit.",
            """\
Most requests per second from one connection, in bursts of ten times as many; 0 for no limit.
A request is what the daemon answers itself, such as
.Li //pubsubd/stats
or Synap's
.Li pubsub.info .
Requests over the limit get an error.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "message_rate",
            numbers(),
            _LIMITS.message_rate,
            "Most messages per second from one connection; 0 for no limit.",
            """\
Most messages per second that are read from one connection, in the long run; 0 for no limit.
The rest wait, unread, at the client.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "byte_rate",
            numbers(),
            _LIMITS.byte_rate,
            "Most bytes per second from one connection; 0 for no limit.",
            """\
Most bytes per second that are read from one connection, in the long run; 0 for no limit.
The rest wait, unread, at the client.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "command_timeout",
            times(),
            _LIMITS.command_timeout,
            "Silence allowed in the middle of a command.",
            """\
How long a client may be silent in the middle of a command.
Between commands it may be silent for ever.
""",
            live=True,
            listener="both",
        ),
        Setting(
            "drain_timeout",
            times(zero=True),
            _LIMITS.drain_timeout,
            "How long a daemon that shuts down goes on delivering.",
            """\
How long a daemon that shuts down goes on reading and delivering.
See
.Sx SIGNALS
in
.Xr pubsubd 8 .
""",
            live=True,
        ),
    ),
)
