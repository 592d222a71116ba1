"""Signal Hub: topics, their subscribers, and what is published to them."""

from __future__ import annotations

from soaklib.wires import MIB, compact, over

from .actors import by_rate, hub_message, lines
from .attack import attack
from .bounds import DEEP_WILDCARD, HUB_PENDING, TOPIC
from .stage import PING, Stage


@attack("hub-publish-new", "hub:publish", "max_topics", crowd=True, table=200_000 * TOPIC)
def publish_new(stage: Stage) -> None:
    """Publishes to topics of 250 characters that are never the same, on ever new connections."""
    parts = []
    for first in range(0, 100_000, 100):
        texts = [
            hub_message("hub:publish", {"topic": f"{i:x}".ljust(250, "t"), "type": "t"})
            for i in range(first, first + 100)
        ]
        parts.append(lines([*texts, PING]))
    stage.flood(stage.hub, parts, once=True)


@attack("hub-publish-many-kinds", "hub:publish", crowd=True, each=HUB_PENDING)
def publish_kinds(stage: Stage) -> None:
    """Publishes with ever other types and correlation ids."""
    texts = [
        hub_message(
            "hub:publish", {"topic": "t", "type": f"t{i}" * 40, "data": i}, correlationId=f"c{i}"
        )
        for i in range(100)
    ]
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)


def _subscribers(stage: Stage, count: int, *, websocket: bool = True) -> None:
    """Have a topic subscribed in all dialects and by addresses of all lengths."""

    def said(number: int) -> bytes:
        kind = "ws" if websocket else "ndjson"
        which = number % 4
        if which == 0:
            text = compact({"type": "__subscribe", "id": "", "payload": {"topic": "busy"}})
        elif which == 1:
            text = compact(
                {"command": "pubsub.subscribe", "request_id": "s", "payload": {"topics": ["busy"]}}
            )
        else:
            address = "s/" + "a" * (1 + number % 200)
            text = hub_message("hub:subscribe", {"topic": "busy"}, address)
        return over(kind, text)

    stage.crowd(count, stage.websocket if websocket else stage.hub, said)


@attack("hub-distinct", "hub:publish")
def distinct(stage: Stage) -> None:
    """Publishes distinct messages to 1,000 subscribers of all dialects."""
    _subscribers(stage, 1_000)
    texts = [
        hub_message("hub:publish", {"topic": "busy", "type": f"t{i}", "data": "d" * 500})
        for i in range(100)
    ]
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)


@attack("hub-distinct-lines", "pubsub.publish", crowd=True)
def distinct_lines(stage: Stage) -> None:
    """Publishes distinct messages on the line port to 1,000 subscribers of the hub port."""
    _subscribers(stage, 1_000)
    frames = [b"pub busy %d %d\n" % (len(b"%d" % i), i) for i in range(20_000)]
    stage.flood(stage.line, [b"".join(frames)])


@attack("hub-large-lines", "max_payload", table=16 * HUB_PENDING)
def large_lines(stage: Stage) -> None:
    """Publishes 1 MiB of what needs escapes on the line port, to 1,000 of the hub port."""
    _subscribers(stage, 1_000)
    stage.flood(stage.line, [b"pub busy %d %b\n" % (MIB, b'"\x01' * (MIB // 2))])


@attack("hub-subscribe", "hub:subscribe", "hub:unsubscribe", crowd=True)
def subscribe(stage: Stage) -> None:
    """Subscribes and unsubscribes, 50 at a time on ever new connections."""
    texts = []
    for i in range(50):
        texts.append(hub_message("hub:subscribe", {"topic": f"s/{i}".ljust(250, "s")}))
        texts.append(hub_message("hub:unsubscribe", {"topic": f"s/{i}".ljust(250, "s")}))
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)


@attack("hub-subscribe-many", "hub:subscribe", crowd=True, each=HUB_PENDING)
def subscribe_many(stage: Stage) -> None:
    """Subscribes 1,000 topics by one message, most of which are refused."""
    topics = [f"m/{i}".ljust(200, "m") for i in range(100)]
    topics += ["//pubsubd/" + "x" * 240] * 900
    text = hub_message("hub:subscribe", {"topics": topics}) + b"\n"
    stage.flood(stage.hub, [text])


@attack("hub-wildcards", "hub:subscribe", "max_wildcards", crowd=True, table=10_000 * DEEP_WILDCARD)
def wildcards(stage: Stage) -> None:
    """Subscribes wildcards of 32 levels, until there are 10,000, on connections that stay."""
    for first in range(0, 10_000, 100):
        sock = stage.hub()
        texts = [
            hub_message("hub:subscribe", {"topic": f"w{i:x}/" + "+/a/" * 14 + f"{i % 9}/#"})
            for i in range(first, first + 100)
        ]
        stage.order(sock, *texts)
        stage.hold(sock)
    names = b"".join(b"pub w%x/%b%d/x 0 \n" % (i, b"b/a/" * 14, i % 9) for i in range(10_000))
    stage.flood(stage.line, [names])


@attack("hub-unsubscribe-ids", "hub:unsubscribe", "max_subscriptions", crowd=True)
def unsubscribe_ids(stage: Stage) -> None:
    """Unsubscribes identifiers that are not there, 100 at a time."""
    stage.flood(
        stage.hub, by_rate(hub_message("hub:unsubscribe", {"subscriptionId": "sub-x"})), once=True
    )


@attack("hub-list-topics", "hub:list_topics", "page", crowd=True, table=20_000 * TOPIC)
def list_topics(stage: Stage) -> None:
    """Lists 1,000 topics at a time, of 20,000 with names of 1,000 bytes."""
    sock = stage.hub()
    for first in range(0, stage.scaled(20_000), 500):
        stage.order(
            sock,
            *(
                compact(
                    {
                        "command": "pubsub.publish",
                        "request_id": "",
                        "payload": {"topic": f"{i:x}".ljust(1_000, "l"), "payload": 0},
                    }
                )
                for i in range(first, first + 500)
            ),
        )
    stage.hold(sock)
    stage.flood(stage.hub, by_rate(hub_message("hub:list_topics", {"limit": 1_000})), once=True)


@attack("hub-topic-info", "hub:topic_info", crowd=True)
def topic_info(stage: Stage) -> None:
    """Asks about topics, most of which are not there, 100 at a time."""
    texts = [hub_message("hub:topic_info", {"topic": f"i{i}"}) for i in range(100)]
    stage.flood(stage.hub, [lines([*texts, PING])], once=True)
