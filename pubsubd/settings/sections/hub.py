"""Settings of the hub port."""

from __future__ import annotations

from pubsubd.protocol.limits import HubLimits
from pubsubd.settings.kinds import counts, numbers, sizes, switches, times
from pubsubd.settings.setting import Section, Setting

_HUB = HubLimits()

HUB: Section = (
    "The hub port",
    (
        Setting(
            "hub_max_message",
            sizes(),
            _HUB.max_message,
            "Largest JSON message.",
            """\
Largest JSON message.
""",
            live=True,
            listener="hub",
        ),
        Setting(
            "hub_max_pending",
            sizes(),
            _HUB.max_pending,
            "Most bytes that may wait for one consumer of the hub port.",
            """\
The same as
.Sy max_pending ,
for the hub port.
""",
            live=True,
            listener="hub",
        ),
        Setting(
            "hub_rate",
            numbers(),
            _HUB.rate,
            "Most hub:* messages per minute from one connection; 0 for no limit.",
            """\
.Li hub:*
messages per minute that one connection may send, in the long run; 0 for no limit.
""",
            live=True,
            listener="hub",
        ),
        Setting(
            "hub_burst",
            counts(),
            _HUB.burst,
            "Most hub:* messages at once from one connection.",
            """\
.Li hub:*
messages that one connection may send at once.
""",
            live=True,
            listener="hub",
        ),
        Setting(
            "hub_heartbeat",
            times(),
            _HUB.heartbeat,
            "Silence after which a hub:* client is considered dead.",
            """\
Silence after which a
.Li hub:*
client that has introduced or registered itself is considered dead.
""",
            live=True,
            listener="hub",
        ),
        Setting(
            "hub_ping",
            times(zero=True),
            _HUB.ping,
            "Time between two pings over a WebSocket; 0 for none.",
            """\
Time between two pings that are sent over each WebSocket, so that proxies do not take it
for idle; 0 for none.
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
Most actors that may be registered.
""",
            live=True,
        ),
        Setting(
            "hub_ttl",
            times(),
            _HUB.ttl,
            "Lifetime of a registration that does not name one.",
            """\
Lifetime of a registration that does not name one.
""",
            live=True,
        ),
        Setting(
            "hub_max_ttl",
            times(),
            _HUB.max_ttl,
            "Longest lifetime of a registration.",
            """\
Longest lifetime that a registration may name.
""",
            live=True,
        ),
        Setting(
            "hub_page",
            counts(),
            _HUB.page,
            "Actors or topics in one answer.",
            """\
Most actors or topics in one answer.
""",
            live=True,
        ),
        Setting(
            "hub_topic_length",
            counts(),
            _HUB.topic_length,
            "Characters of a hub:* topic.",
            """\
Most characters of a
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
topics be any legal name, not only letters, digits,
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
            "Topics remembered with their counts.",
            """\
Most topics remembered with their counts.
The names of those without subscribers may take 128 bytes times this number in all.
""",
            live=True,
        ),
        Setting(
            "hub_topic_idle",
            times(),
            _HUB.topic_idle,
            "How long an unused topic is remembered.",
            """\
How long a topic is remembered that nobody publishes or subscribes to.
""",
            live=True,
        ),
        Setting(
            "hub_max_topic_subscribers",
            counts(),
            _HUB.max_topic_subscribers,
            "Subscribers of one topic on the hub port.",
            """\
Most subscribers of one topic on the hub port.
""",
            live=True,
        ),
        Setting(
            "hub_max_wildcards",
            counts(),
            _HUB.max_wildcards,
            "Wildcard subscriptions on the hub port.",
            """\
Most wildcard subscriptions on the hub port.
""",
            live=True,
        ),
        Setting(
            "hub_max_connection_wildcards",
            counts(),
            _HUB.max_connection_wildcards,
            "Wildcard subscriptions of one connection of the hub port.",
            """\
Most wildcard subscriptions of one connection of the hub port.
""",
            live=True,
        ),
        Setting(
            "hub_max_subscribers",
            counts(),
            _HUB.max_subscribers,
            "Synap subscribers in all.",
            """\
Most Synap subscribers, including those without a connection.
""",
            live=True,
        ),
        Setting(
            "hub_max_detached",
            counts(),
            _HUB.max_detached,
            "Synap subscribers without a connection.",
            """\
Most Synap subscribers without a connection, which
.Li POST /pubsub/subscribe
creates.
""",
            live=True,
        ),
        Setting(
            "hub_max_detached_topics",
            counts(),
            _HUB.max_detached_topics,
            "Topics of all Synap subscribers without a connection.",
            """\
Most topics of all Synap subscribers without a connection together.
""",
            live=True,
        ),
        Setting(
            "hub_detached_idle",
            times(),
            _HUB.detached_idle,
            "How long an unused Synap subscriber without a connection is kept.",
            """\
How long a Synap subscriber without a connection is kept while no request names it.
""",
            live=True,
        ),
    ),
)
