"""Every limit: its name, its unit and its reason, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KIB = 1024
MIB = 1024 * KIB

MAX_NAME = 1024
"""Bytes of a name or substring. A name is matched byte by byte, so it has to end somewhere."""

MAX_LINE = MAX_NAME + 64
"""Bytes of a command line, or of a ``pub`` header, with room for the verb and the length."""

MAX_DIGITS = 10
"""Digits of a length: enough for any payload, too few to be a denial of service to ``int``."""

MAX_LOGIN_PAYLOAD = 16 * KIB
"""Bytes of data of one who has to log in first: enough for any token or password."""

READ_SIZE = 256 * KIB
"""Bytes taken from a socket at once: large enough that costs per read vanish per message."""

LARGE_READ = 512 * KIB
"""Bytes taken at once while large frames come, and what is left of the last one: with twice as much
as of others, 64 KiB were measured to take a fifth less of the processor, with four times as much no
less."""

MAX_READ = 2 * MIB
"""Bytes taken at once while frames larger than that come."""

LARGE = 32 * KIB
"""Bytes of a frame from which on it is handed on in the pieces in which it was read: copying it
costs more than telling where it ends."""

MAX_TYPED = 64 * KIB
"""Bytes of data without a length, which the line ends. Each read looks through them all."""

MAX_CACHED_NAMES = 8_192
"""Names whose receivers are remembered, about 300 bytes each. Each sub looks through them all."""

MAX_CACHED_HEADERS = 65_536
"""Raw ``pub name length`` headers remembered, about 150 bytes each; 71 MiB if a client makes all
names as long as can be."""

MAX_EXPLAINED = 128 * KIB
"""Bytes of JSON after which the answer to ``//pubsubd/explain`` lists no more receivers."""

MAX_REASONS = 10
"""Substrings listed for one receiver there."""

TURN = 0.005
"""Seconds after which a connection's turn is over, and others are served.

Looked at after each uncommon command, each receiver and each step of an answer.
"""

LONG_TURN = 2 * TURN
"""Seconds of processor time from which on a turn is followed by a pause of its connection.

Reading one JSON text cannot be interrupted, and may take that long.
"""

PAUSE = 3
"""How many times as long as such a turn the pause is."""

MAX_PAUSE = 0.1
"""Seconds of a pause at most: a collection of garbage may have fallen into the turn."""

BYTES_PER_TURN = MIB
"""Bytes of answers that a connection may have made for it in one turn."""

WORK_PER_LOOK = 5_000
"""Steps of such work as :data:`WORK_PER_TURN` counts, after which the clock is looked at."""

WORK_PER_TURN = 50_000
"""Steps (about 0.1 µs each) of uncommon work that one connection may cause in one turn.

Subscribing, new names, errors and messages to many receivers count; frames with a known header to
one receiver do not. As :data:`TURN`, where looking at the clock would cost too much.
"""

EAGER = 0.000_2
"""Seconds between two inputs of a connection below which the next one is looked out for, if
nobody else has spoken meanwhile."""

LOOK_OUT = 0.000_05
"""Seconds for which it is looked out for then, before the daemon waits as usual.

On an idle machine a processor that has gone to sleep takes longer than that to wake: one message
at a time was measured to take 49 µs from publisher to subscriber instead of 65.
"""

ALONE = 0.000_3
"""Seconds for which what is found so is read at once, without looking at other connections."""

LEFT_OUT = 7
"""Times at most that it is not looked out for, after as many looks in vain: they take more of the
processor than those that find something save."""

MUCH = 16 * KIB
"""Bytes of a read from which on its connection lets others be read first, if there are any."""

SOON = 0.000_15
"""Seconds of a pass of the loop after which those who have much to say wait for the next one.

One who says little then waits for one read of theirs, not for one of each. Beside 10 publishers
that say as much as they can, the 99th percentile of a message's time was measured to be a third of
what it was, and their rate a tenth less.
"""

ALTERNATELY = 0.01
"""Seconds, since another connection has spoken, for which they wait so."""

SELDOM = 5.0
"""Seconds, since one who says little has spoken, for which they wait so: ten publishers that are
alone with their subscribers carry a tenth more."""

MESH_LOOK_OUT = 0.000_19
"""As :data:`LOOK_OUT`, in a daemon that takes part in a mesh: nearly :data:`EAGER`, as the next
message may have to come from another daemon. One message at a time was measured to take 48 µs over
a link instead of 96, and a stream of them as long as before."""

LINK_STALL = 3.0
"""Seconds that publishers wait for a link to another daemon that takes nothing. Longer than the
other daemon may have to wait for a slow consumer of its own; then batches are dropped."""

QUIET = 0.1
"""Seconds without input after which an ending daemon takes a connection to have said all."""

MAX_DRAIN_INPUT = 64 * MIB
"""Bytes that an ending daemon still reads from one connection, which may never fall silent."""

HUB_READ_SIZE = 256 * KIB
"""Bytes taken at once from a connection of the hub port, whose messages cost more each.

Measured with 100 receivers: half as much is slower by a fifth, and takes a tenth more of the
processor.
"""

ANSWER = 256 * KIB
"""Bytes of an answer on the hub port that lists something, after which it lists no more."""

HUB_TURN = 1024
"""Messages of one connection of the hub port that are worked off before others get a turn."""

MAX_TOPICS = 1_000
"""Topics of one hub:subscribe: an answer of 100 to 500 KiB."""

SlowConsumer = Literal["throttle", "disconnect", "drop"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that an operator can set. Sizes in bytes, times in seconds."""

    max_payload: int = MIB
    """Bytes of one message's data; more is refused at the header and never buffered."""

    max_subscriptions: int = 100_000
    """Substrings of one connection."""

    max_subscriptions_total: int = 1_000_000
    """Substrings, names and wildcards of all connections together, some 300 bytes each."""

    max_connections: int = 65_536
    """Connections at a time; the daemon lowers it to what its descriptors allow."""

    max_pending: int = 8 * MIB
    """Bytes waiting for one consumer; one that is over it when more arrives is slow."""

    slow_consumer: SlowConsumer = "throttle"
    """Wait for a slow consumer and then cut it, cut it at once, or drop what it cannot take."""

    stall_timeout: float = 0.25
    """How long a publisher waits for a consumer that drains nothing at all."""

    stall_budget: float = 2.0
    """How long, in any :attr:`stall_window`, publishers wait for one consumer."""

    stall_window: float = 10.0
    """The time that :attr:`stall_budget` is counted over."""

    request_rate: float = 100.0
    """Requests a second that one connection may make of the daemon itself, and ten times as many at
    once; 0 for any."""

    message_rate: float = 0.0
    """Messages a second that are read of one connection; 0 for any."""

    byte_rate: float = 0.0
    """Bytes a second that are read of one connection; 0 for any."""

    command_timeout: float = 30.0
    """Silence allowed in the middle of a command; between commands it is unlimited."""

    drain_timeout: float = 10.0
    """How long an ending daemon goes on delivering what it had received."""

    auth_timeout: float = 10.0
    """How long a connection may take to say who it is, where that is asked for."""

    handshake_timeout: float = 10.0
    """How long a connection may take until it is encrypted."""

    linger: float = 2.0
    """How long a connection that is being cut may take to read the reason."""

    stats_interval: float = 10.0
    """Between two ``//pubsubd/stats`` messages."""

    @property
    def paced(self) -> bool:
        """Whether there is a rate at which connections are read."""
        return bool(self.byte_rate or self.message_rate)


@dataclass(frozen=True, slots=True)
class HubLimits:
    """Limits of the hub port that an operator can set. Sizes in bytes, times in seconds.

    The defaults are those of the protocols that are spoken there; see pubsubd-hub(7).
    """

    max_message: int = MIB
    """Bytes of one JSON message; more is refused before it is parsed, and never buffered."""

    max_pending: int = MIB
    """Bytes waiting for one consumer, as :attr:`Limits.max_pending`."""

    rate: float = 100.0
    """``hub:*`` messages a minute that one connection may send in the long run; 0 for any."""

    burst: int = 100
    """``hub:*`` messages that one connection may send at once."""

    heartbeat: float = 60.0
    """Silence after which a connection that has introduced or registered itself is closed."""

    ping: float = 30.0
    """Between two pings over a WebSocket; 0 for none."""

    max_actors: int = 50_000
    """Registered actors, of all connections."""

    ttl: float = 300.0
    """How long a registration holds that does not say it."""

    max_ttl: float = 3600.0
    """How long a registration may hold."""

    page: int = 1_000
    """Actors or topics in one answer."""

    topic_length: int = 256
    """Characters of a ``hub:*`` topic."""

    any_topic: bool = False
    """Whether a ``hub:*`` topic may be any legal name, not only of letters, digits and ``/_-``."""

    max_topics: int = 100_000
    """Topics that are remembered with their counts; of those that nobody subscribes, so many times
    128 bytes of names at most."""

    topic_idle: float = 86_400.0
    """How long a topic is remembered that nobody publishes or subscribes."""

    max_topic_subscribers: int = 10_000
    """Subscribers of one topic on this port."""

    max_wildcards: int = 10_000
    """Wildcard subscriptions, of all connections."""

    max_connection_wildcards: int = 1_000
    """Wildcard subscriptions of one connection."""

    max_subscribers: int = 100_000
    """Synap subscribers, those without a connection included."""

    max_detached: int = 1_000
    """Synap subscribers without a connection."""

    max_detached_topics: int = 10_000
    """Topics of all of these together."""

    detached_idle: float = 3600.0
    """How long one of these is remembered that nobody names."""
