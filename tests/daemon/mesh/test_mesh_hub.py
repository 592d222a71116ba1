"""JSON clients at different daemons: a name is a name, whichever daemon it comes through."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator

import pytest

from pubsubd.hub.topics import TopicError
from pubsubd.mesh.core import Mesh
from pubsubd.mesh.state import MeshConfig
from pubsubd.protocol import wire
from tests.daemons import Daemon, Line, wait_until
from tests.hubs import Lines, Room, message_b

Setting = tuple[Lines, Lines, Line, Callable[[int], None]]


@pytest.fixture
def pair(start: Callable[..., Daemon]) -> Iterator[Setting]:
    """Clients of two daemons, one of a line port, and what waits until so much is wanted."""
    near = start("--node", "a")
    far = start("--node", "b", "--peer", f"127.0.0.1:{near.address[1]}")
    line = Line(near.address)

    def wait_for(interests: int) -> None:
        def are_known() -> bool:
            line.say(b"pub //pubsubd/peers 0 \n")
            links = json.loads(line.hear_frame()[1])["links"]
            return [link["interest_count"] for link in links] == [interests]

        wait_until(are_known, f"a knows of {interests} interests of b")

    clients = Lines(near), Lines(far)
    yield *clients, line, wait_for
    for client in clients:
        client.close()
    line.close()


def test_a_hub_message_keeps_its_type_and_sender_on_its_way(
    pair: Setting,
) -> None:
    near, far, _line, wait_for = pair
    far.ask(message_b("hub:subscribe", {"topic": "//fwd/chat/main"}, me="browser/bob"))
    wait_for(1)
    near.ask(message_b("hub:register", {"actorAddress": "browser/ann", "capabilities": ["x"]}))
    near.ask(message_b("hub:publish", {"topic": "//chat/main", "type": "said", "data": {"n": 1}}))
    heard = far.hear()
    assert heard["type"] == "said"
    assert heard["from"] == "browser/ann"
    assert heard["payload"] == {"n": 1}


def test_a_line_message_reaches_json_clients_of_another_daemon(
    pair: Setting,
) -> None:
    _near, far, line, wait_for = pair
    far.ask(message_b("hub:subscribe", {"topic": "//fwd/chat/+"}, me="browser/bob"))
    wait_for(1)
    line.say(b"pub //chat/main 5 hello\n")
    heard = far.hear()
    assert heard["type"] == "pubsub:message"
    assert heard["payload"] == {"name": "//fwd/chat/main", "data": "hello"}
    assert heard["from"] == "mesh/a"


def claim(name: bytes) -> bytes:
    """Return a line that publishes JSON as the hub port writes it, with a made-up sender."""
    return wire.frame(name, b'{"type":"order","from":"bank/admin","payload":{"n":1}}')


def test_a_line_client_cannot_claim_to_be_somebody_over_a_link(pair: Setting) -> None:
    _near, far, line, wait_for = pair
    far.ask(message_b("hub:subscribe", {"topic": "//fwd/chat/main"}, me="browser/bob"))
    wait_for(1)
    line.say(claim(b"//chat/main"))
    heard = far.hear()
    assert heard["type"] == "order"
    assert heard["from"] == "mesh/a"


def test_a_line_client_cannot_claim_to_be_somebody_by_a_hello_that_is_refused(
    pair: Setting,
) -> None:
    """The event that tells of the refusal goes out in the middle of the client's input."""
    near, _far, line, _wait_for = pair
    near.ask(message_b("hub:subscribe", {"topic": "//chat/main"}, me="browser/bob"))
    line.say(claim(b"//chat/main") + b"pub //pubsubd/hello 3 bad\n")
    heard = near.hear()
    assert heard["type"] == "order"
    assert heard["from"].startswith("tcp/127.0.0.1:")


def test_wildcards_ask_for_what_they_begin_with_and_get_what_they_match(
    pair: Setting,
) -> None:
    near, far, _line, wait_for = pair
    far.ask(message_b("hub:subscribe", {"topic": "//fwd/+/main"}, me="browser/bob"))
    wait_for(1)
    near.ask(message_b("hub:publish", {"topic": "//a/other", "type": "x", "data": 1}))
    near.ask(message_b("hub:publish", {"topic": "//a/main", "type": "x", "data": 2}))
    assert far.hear()["payload"] == 2
    far.ask(message_b("hub:unsubscribe", {"topic": "//fwd/+/main"}, me="browser/bob"))
    wait_for(0)


def test_no_json_client_can_publish_an_advert() -> None:
    """Not even over HTTP, where there is no connection that the broker knows."""
    room = Room(any_topic=True)
    Mesh(
        room.broker,
        MeshConfig(node="a"),
        clock=lambda: room.now,
        wall=lambda: room.now,
        rng=random.Random(1),
    )
    room.join("ann")
    room.join_line("lin")
    room.say_raw("lin", b"sub peers\n")
    for name in ("//peers/default/z", "//fwd/peers/default/z"):
        answer = room.ask("ann", message_b("hub:publish", {"topic": name, "type": "x", "data": 1}))
        assert (answer["type"], "daemons of this mesh" in json.dumps(answer)) == ("hub:error", True)
        room.say("ann", {"type": name, "id": "", "payload": 1})
        room.say("ann", {"type": "//peers/default/z", "id": "x", "payload": 1})
        with pytest.raises(TopicError, match="daemons of this mesh"):
            room.hub.policy.check_publishing(name.encode())
    command = {"command": "pubsub.publish", "payload": {"topic": "//peers/default/z", "payload": 1}}
    room.say("ann", command)
    (answer,) = room.hears("ann")
    assert "daemons of this mesh" in json.dumps(answer)
    assert room.hears("lin") == []
    assert room.hub.ignored == 4
