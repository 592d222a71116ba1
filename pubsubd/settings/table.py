"""Every setting of the daemon, once: flags, variables, the file and its page come from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pubsubd.protocol.limits import HubLimits, Limits
from pubsubd.settings.kinds import (
    Kind,
    choices,
    counts,
    lists,
    numbers,
    sizes,
    switches,
    texts,
    times,
)

Where = Literal["", "line", "hub", "both"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: its key in the file; the flag and the variable are made of it.
        kind: what values it has.
        default: the value where none is given; None if that depends on others.
        help: one line for ``--help``.
        doc: what the manual page says of it, in mdoc(7).
        live: whether a reload changes it.
        listener: for which protocol it may stand in a ``[[listener]]``; empty for none.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    doc: str
    live: bool = False
    listener: Where = ""

    @property
    def flag(self) -> str:
        """The flag of ``pubsubd serve``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return "PUBSUBD_" + self.name.upper()


_LIMITS, _HUB = Limits(), HubLimits()
_PORT = counts(0, 65_535, "PORT")

SECTIONS: tuple[tuple[str, tuple[Setting, ...]], ...] = (
    (
        "Where to listen",
        (
            Setting(
                "host",
                texts("TEXT", empty=True),
                "127.0.0.1",
                "Name or address to listen on; an empty one for no TCP.",
                """\
Listen on this name or address.
A name is resolved once, and all its addresses are used.
With an empty text the daemon does not listen on TCP.
An address that is not loopback needs
.Sy insecure .
""",
            ),
            Setting(
                "port",
                _PORT,
                9014,
                "TCP port to listen on; 0 takes a free one.",
                """\
TCP port, 0 to 65535.
With 0 the system chooses a free one;
.Sy ports_file
and the log tell which.
""",
            ),
            Setting(
                "hub_port",
                _PORT,
                9015,
                "TCP port for JSON clients; 0 takes a free one.",
                """\
TCP port for clients that speak JSON, 0 to 65535, at the same
.Sy host .
What is spoken there is in
.Xr pubsubd-hub 7 .
""",
            ),
            Setting(
                "no_hub",
                switches(),
                False,
                "No port for JSON clients.",
                """\
No port for clients that speak JSON.
""",
            ),
            Setting(
                "unix",
                texts("PATH"),
                None,
                "Listen on this Unix socket as well.",
                """\
Listen on a Unix socket as well.
See
.Sx FILES
in
.Xr pubsubd 8 .
""",
            ),
            Setting(
                "ports_file",
                texts("PATH"),
                None,
                "Write the addresses as JSON to this file once they accept.",
                """\
Write the real addresses to this file once all of them accept connections.
See
.Sx FILES
in
.Xr pubsubd 8 .
""",
            ),
            Setting(
                "insecure",
                switches(),
                False,
                "Allow addresses beyond loopback without login or without TLS.",
                """\
Allow an address that is not loopback although nobody has to log in there, or although
no TLS is spoken.
See
.Sx SECURITY
in
.Xr pubsubd 8 .
""",
            ),
        ),
    ),
    (
        "Who may come in, and do what",
        (
            Setting(
                "auth",
                choices("required", "none"),
                None,
                "Whether clients have to say who they are.",
                """\
Whether clients have to say who they are:
.Cm required
or
.Cm none .
Without this setting it is
.Cm required
if there is a
.Sy users_file ,
and on hub ports if there is
.Sy hub_auth ,
and otherwise
.Cm none .
The peer of a Unix socket is known to the system, and needs to say nothing.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "users_file",
                texts("FILE"),
                None,
                "Let those come in whose passwords and tokens are in this file.",
                """\
The file with the hashes of passwords and tokens, one a line, that
.Xr pubsubd 1
.Cm passwd
writes.
It is read at the start and at each reload.
A connection whose user is gone from it then is closed.
""",
                live=True,
            ),
            Setting(
                "auth_timeout",
                times(),
                _LIMITS.auth_timeout,
                "Time to say who one is, where that is asked for.",
                """\
How long a connection may take to say who it is, where that is required.
While a password of it waits to be checked, that time rests.
""",
                live=True,
            ),
            Setting(
                "hub_auth",
                texts("FILE"),
                None,
                "Ask for tokens (JWT), and check them with the key in this file.",
                """\
Ask for tokens on the hub port, and check them with the key in this file.
See
.Sx SECURITY
in
.Xr pubsubd 8 .
""",
                live=True,
            ),
            Setting(
                "hub_host",
                lists("NAME"),
                (),
                "A host name that browsers may use for the hub port; may be repeated.",
                """\
A host name by which browsers may reach the hub port, besides
.Li localhost ,
the
.Sy host
and addresses.
May be given several times.
""",
                live=True,
            ),
            Setting(
                "hub_origin",
                lists("ORIGIN"),
                (),
                "A web origin whose pages may use the hub port, * for all; may be repeated.",
                """\
A web origin, as
.Li https://example.org ,
whose pages may use the hub port, besides the port's own;
.Li *
for all.
May be given several times.
""",
                live=True,
            ),
        ),
    ),
    (
        "Encryption",
        (
            Setting(
                "tls_certificate",
                texts("FILE"),
                None,
                "Speak TLS, with the certificate in this file.",
                """\
Speak TLS 1.2 or newer, and show the certificate in this PEM file, in which those
between it and the authority's may follow.
It is read at the start and at each reload; connections that are open go on with the old one.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_key",
                texts("FILE"),
                None,
                "The certificate's private key.  [default: in the same file]",
                """\
The certificate's private key, in PEM and not encrypted.
Without this setting it is in the file of the certificate.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_client_ca",
                texts("FILE"),
                None,
                "Authorities whose certificates say who a client is.",
                """\
Authorities, in a PEM file, whose certificates say who a client is: the common name of its subject.
A client with such a certificate has nothing else to say.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "tls_client_required",
                switches(),
                False,
                "Refuse clients without such a certificate.",
                """\
Refuse clients that show no such certificate, in the handshake.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "handshake_timeout",
                times(),
                _LIMITS.handshake_timeout,
                "Time that a TLS handshake may take.",
                """\
How long a connection may take until it is encrypted.
""",
                live=True,
            ),
        ),
    ),
    (
        "Limits",
        (
            Setting(
                "max_payload",
                sizes(),
                _LIMITS.max_payload,
                "The most data of one message.",
                """\
The most data that one message may have.
More is refused at the header and not read, and the connection is closed.
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
The most substrings that one connection may subscribe.
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
The most subscriptions of all connections together: substrings, names and wildcards.
Each takes some 300 bytes.
""",
                live=True,
            ),
            Setting(
                "max_connections",
                counts(),
                _LIMITS.max_connections,
                "Connections at a time, or fewer if there are not as many file descriptors.",
                """\
The most connections at a time.
The daemon raises its soft limit of file descriptors as far as the hard limit
allows.
If that is not enough, it lowers this number to the descriptors it may have
minus 16.
A connection beyond the limit is told
.Li too-many-connections
and closed.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "max_pending",
                sizes(),
                _LIMITS.max_pending,
                "The most that may wait for one consumer.",
                """\
The most that may wait for one consumer.
A consumer that is over it when more is due is slow.
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
Wait for it before it is over the limit, by not reading from the publisher that
fills its backlog; if that does not help, disconnect it.
.It Cm disconnect
Do not wait; disconnect it.
.It Cm drop
Do not wait, and drop the messages that are too much for it.
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
                "How long, in 10 s, publishers wait for one consumer.",
                """\
How long, in any 10 seconds, publishers wait for one consumer.
""",
                live=True,
            ),
            Setting(
                "request_rate",
                numbers(),
                _LIMITS.request_rate,
                "Requests a second of one connection; 0 for any number.",
                """\
How many requests a second one connection may make that the daemon answers itself, such as
.Li //pubsubd/stats
or Synap's
.Li pubsub.info ;
ten times as many at once; 0 for any number.
More are refused with an error.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "message_rate",
                numbers(),
                _LIMITS.message_rate,
                "Messages a second read of one connection; 0 for any number.",
                """\
How many messages a second are read of one connection in the long run; 0 for any number.
What is more waits, unread, at the client.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "byte_rate",
                numbers(),
                _LIMITS.byte_rate,
                "Bytes a second read of one connection; 0 for any number.",
                """\
How many bytes a second are read of one connection in the long run; 0 for any number.
What is more waits, unread, at the client.
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
Silence that is allowed in the middle of a command.
Between commands a client may be silent for ever.
""",
                live=True,
                listener="both",
            ),
            Setting(
                "drain_timeout",
                times(zero=True),
                _LIMITS.drain_timeout,
                "How long an ending daemon goes on delivering.",
                """\
How long an ending daemon goes on reading and delivering.
See
.Sx SIGNALS .
""",
                live=True,
            ),
        ),
    ),
    (
        "The hub port",
        (
            Setting(
                "hub_max_message",
                sizes(),
                _HUB.max_message,
                "The most of one JSON message.",
                """\
The most that one JSON message may have.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_max_pending",
                sizes(),
                _HUB.max_pending,
                "The most that may wait for one there.",
                """\
As
.Sy max_pending ,
on the hub port.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_rate",
                numbers(),
                _HUB.rate,
                "hub:* messages a minute of one connection; 0 for any number.",
                """\
How many
.Li hub:*
messages a minute one connection may send in the long run; 0 for any number.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_burst",
                counts(),
                _HUB.burst,
                "hub:* messages at once of one connection.",
                """\
How many of them it may send at once.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_heartbeat",
                times(),
                _HUB.heartbeat,
                "Silence after which a hub:* client is taken for dead.",
                """\
Silence after which a
.Li hub:*
client that has introduced or registered itself is taken for dead.
""",
                live=True,
                listener="hub",
            ),
            Setting(
                "hub_max_actors",
                counts(),
                _HUB.max_actors,
                "Registered actors.",
                """\
The most registered actors.
""",
                live=True,
            ),
            Setting(
                "hub_ttl",
                times(),
                _HUB.ttl,
                "How long a registration holds.",
                """\
How long a registration holds that does not say it.
""",
                live=True,
            ),
            Setting(
                "hub_max_ttl",
                times(),
                _HUB.max_ttl,
                "How long one may hold at most.",
                """\
How long a registration may hold.
""",
                live=True,
            ),
            Setting(
                "hub_page",
                counts(),
                _HUB.page,
                "Actors or topics in one answer.",
                """\
The most actors or topics in one answer.
""",
                live=True,
            ),
            Setting(
                "hub_topic_length",
                counts(),
                _HUB.topic_length,
                "Characters of a hub:* topic.",
                """\
The most characters of a
.Li hub:*
topic.
""",
                live=True,
            ),
            Setting(
                "hub_any_topic",
                switches(),
                _HUB.any_topic,
                "Let hub:* topics be any legal name.",
                """\
Let
.Li hub:*
topics be any legal name, not just letters, digits,
.Ql / ,
.Ql _
and
.Ql - .
""",
                live=True,
            ),
            Setting(
                "hub_max_topics",
                counts(),
                _HUB.max_topics,
                "Topics that are remembered.",
                """\
The most topics that are remembered with their counts; of those that nobody subscribes,
so many times 128 bytes of names at most.
""",
                live=True,
            ),
            Setting(
                "hub_topic_idle",
                times(),
                _HUB.topic_idle,
                "How long an unused topic is remembered.",
                """\
How long a topic is remembered that nobody publishes or subscribes.
""",
                live=True,
            ),
            Setting(
                "hub_max_topic_subscribers",
                counts(),
                _HUB.max_topic_subscribers,
                "Subscribers of one topic on the hub port.",
                """\
The most subscribers that one topic may have on the hub port.
""",
                live=True,
            ),
            Setting(
                "hub_max_wildcards",
                counts(),
                _HUB.max_wildcards,
                "Wildcard subscriptions in all.",
                """\
The most wildcard subscriptions on the hub port.
""",
                live=True,
            ),
            Setting(
                "hub_max_connection_wildcards",
                counts(),
                _HUB.max_connection_wildcards,
                "Wildcard subscriptions of one connection of the hub port.",
                """\
The most wildcard subscriptions that one connection of the hub port may have.
""",
                live=True,
            ),
            Setting(
                "hub_max_subscribers",
                counts(),
                _HUB.max_subscribers,
                "Synap subscribers in all.",
                """\
The most Synap subscribers, those without a connection included.
""",
                live=True,
            ),
            Setting(
                "hub_max_detached",
                counts(),
                _HUB.max_detached,
                "Synap subscribers without a connection.",
                """\
The most Synap subscribers without a connection, as
.Li POST /pubsub/subscribe
makes them.
""",
                live=True,
            ),
            Setting(
                "hub_max_detached_topics",
                counts(),
                _HUB.max_detached_topics,
                "Topics of all of these together.",
                """\
The most topics of all Synap subscribers without a connection together.
""",
                live=True,
            ),
            Setting(
                "hub_detached_idle",
                times(),
                _HUB.detached_idle,
                "How long one of these is remembered that nobody names.",
                """\
How long a Synap subscriber without a connection is remembered that nobody names.
""",
                live=True,
            ),
        ),
    ),
    (
        "The mesh",
        (
            Setting(
                "peer",
                lists("HOST:PORT"),
                (),
                "Link to this daemon; may be repeated.",
                """\
Link to this daemon, and try for ever.
May be given several times.
""",
                live=True,
            ),
            Setting(
                "mesh",
                texts("NAME"),
                None,
                "Name of the mesh.  [default: default]",
                """\
Name of the mesh, 1 to 64 of the characters
.Li A-Z a-z 0-9 . _ : - ;
without this flag it is
.Li default .
""",
            ),
            Setting(
                "node",
                texts("ID"),
                None,
                "This daemon's id in the mesh.  [default: its address]",
                """\
This daemon's id in the mesh, of the same characters, unlike any other daemon's.
Without this flag it is the address that it advertises.
""",
            ),
            Setting(
                "mesh_secret_file",
                texts("FILE"),
                None,
                "Link only to daemons that have the same secret.",
                """\
Link only to daemons that have the same secret: the content of this file without
the white space around it, at least 16 bytes.
""",
            ),
            Setting(
                "mesh_tls",
                switches(),
                False,
                "Speak TLS to daemons that are dialled.",
                """\
Speak TLS to daemons that are dialled, and to no others.
That it is spoken by those who dial this daemon is up to
.Sy tls_certificate .
""",
            ),
            Setting(
                "mesh_tls_ca",
                texts("FILE"),
                None,
                "Authorities to trust then.  [default: those of the system]",
                """\
Authorities, in a PEM file, by whose certificates daemons that are dialled are trusted.
It is read at the start and at each reload, and so are the certificate and the key.
Without this setting they are those that the system trusts.
""",
            ),
            Setting(
                "mesh_tls_certificate",
                texts("FILE"),
                None,
                "The certificate to show to daemons that are dialled.",
                """\
The certificate to show to daemons that are dialled, in PEM.
""",
            ),
            Setting(
                "mesh_tls_key",
                texts("FILE"),
                None,
                "Its private key.  [default: in the same file]",
                """\
Its private key.
Without this setting it is in the same file.
""",
            ),
            Setting(
                "discover",
                choices("linked", "any", metavar="[any]"),
                None,
                "Link to daemons that linked ones tell of, or that any client does.",
                """\
Link to further daemons that linked ones tell of
.Po
.Cm linked ,
which need not be said
.Pc
or, with
.Cm any ,
that any client tells of, too; where there are logins or access rules, that needs
.Sy mesh_secret_file .
""",
            ),
            Setting(
                "discover_allow",
                lists("NETWORK"),
                (),
                "A network that discovered addresses have to be in; may be repeated.",
                """\
A network, as
.Li 10.0.0.0/8 ,
that discovered addresses have to be in.
May be given several times.
""",
            ),
            Setting(
                "max_peers",
                counts(),
                8,
                "Links up to which discovered daemons are dialled.",
                """\
Links up to which discovered daemons are dialled.
""",
            ),
            Setting(
                "advertise",
                texts("HOST:PORT"),
                None,
                "Where other daemons can dial this one.  [default: where it listens]",
                """\
Where other daemons can dial this one.
Without this flag it is where it listens, or the name of the machine if it
listens everywhere.
""",
            ),
            Setting(
                "mesh_heartbeat",
                times(),
                1.0,
                "Time between two signs of life; after two without any a link is given up.",
                """\
Time between two signs of life on a link; after two without any it is given up.
""",
            ),
            Setting(
                "export_edges",
                texts("DIR"),
                None,
                "Write edge lists of the mesh to this directory.",
                """\
Write edge lists of the mesh to this directory, as
.Pa edges-<time>.jsonl ;
the last 1,000 are kept.
""",
            ),
            Setting(
                "export_interval",
                times(),
                60.0,
                "Time between two edge lists.",
                """\
Time between two edge lists.
""",
            ),
        ),
    ),
    (
        "Log",
        (
            Setting(
                "log_level",
                choices("debug", "info", "warning", "error"),
                "info",
                "The least that is told.",
                """\
The least that is logged:
.Cm debug ,
.Cm info ,
.Cm warning
or
.Cm error .
""",
                live=True,
            ),
            Setting(
                "log_format",
                choices("text", "json"),
                "text",
                "One line an event: key=value pairs, or a JSON object.",
                """\
How an event is told, one a line:
.Cm text
for
.Ar key Ns = Ns Ar value
pairs, or
.Cm json
for a JSON object with the same keys.
""",
            ),
        ),
    ),
)
"""Titles of the manual page's sections, and the settings of each."""

SETTINGS: dict[str, Setting] = {one.name: one for _, section in SECTIONS for one in section}
"""Name -> setting."""
