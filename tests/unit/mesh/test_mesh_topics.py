"""Topics of the hub that cross links under their own names."""

from __future__ import annotations

import pytest

from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users
from pubsubd.mesh.settings import read_settings
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ConfigError
from pubsubd.routing.wildcards import Pattern
from pubsubd.settings.config import MeshOptions
from tests.webs import Connection, Web


def subscribe(web: Web, node: str, client: str, *topics: str, undo: bool = False) -> None:
    """Let a client subscribe topics and wildcards as the hub port does it."""
    router, peer = web[node].broker.router, web[node].client(client)
    for topic in topics:
        if "#" in topic or "+" in topic:
            change = router.unsubscribe_pattern if undo else router.subscribe_pattern
            assert change(peer, Pattern.slashes(topic))
        else:
            name = router.unsubscribe_name if undo else router.subscribe_name
            assert name(peer, topic.encode())


def publish(web: Web, node: str, name: bytes, data: bytes = b"x") -> None:
    web[node].say("pub", wire.frame(name, data))
    web.run(0.05)


def interests(web: Web, node: str) -> list[bytes]:
    """Return the interests that a daemon has advertised, but no letters of daemons."""
    wanted = web[node].mesh.table.adverts[node].interests
    return [one for one in wanted if not one.startswith(wire.HUB)]


def crossed(connection: Connection) -> int:
    """Return how many batches have crossed a link."""
    return sum(b"pub //pubsubd/relay" in data for way in connection.carried for data in way)


@pytest.fixture
def web() -> Web:
    """Return a chain of three daemons, and one that carries no topics."""
    web = Web()
    web.add("a", "b", "c", topics=("chat/", "direct:"))
    web.add("d", topics=())
    web.links = web.link("ab", "bc", "cd")  # type: ignore[attr-defined]
    web.run()
    return web


def test_a_topic_arrives_under_its_own_name_and_once(web: Web) -> None:
    subscribe(web, "c", "ann", "chat/main", "chat/#")
    subscribe(web, "b", "bob", "+/main")
    web.run()
    assert interests(web, "c") == [
        b"//fwd/hub-topics/default/chat/",
        b"//fwd/hub-topics/default/chat/main",
    ]
    publish(web, "a", b"chat/main", b"1")
    publish(web, "a", b"chat/main", b"2")
    assert web["c"].hears("ann") == [(b"chat/main", b"1"), (b"chat/main", b"2")]
    assert web["b"].hears("bob") == [(b"chat/main", b"1"), (b"chat/main", b"2")]
    publish(web, "a", b"chat/else")
    assert web["c"].hears("ann") == [(b"chat/else", b"x")]
    assert web["b"].hears("bob") == []
    publish(web, "a", b"other/main")
    assert web["b"].hears("bob") == []


def test_a_topic_that_nobody_elsewhere_wants_crosses_no_link(web: Web) -> None:
    ab, bc, _cd = web.links  # type: ignore[attr-defined]
    subscribe(web, "b", "bob", "chat/main")
    web.run()
    publish(web, "a", b"chat/main")
    assert (crossed(ab), crossed(bc)) == (1, 0)
    subscribe(web, "b", "bob", "chat/main", undo=True)
    web.run()
    publish(web, "a", b"chat/main")
    assert (crossed(ab), crossed(bc)) == (1, 0)
    assert web["b"].mesh.broker.router.forwarded == {}


def test_one_who_comes_or_goes_later_changes_what_is_remembered(web: Web) -> None:
    subscribe(web, "c", "ann", "chat/main")
    web.run()
    for number in range(3):
        publish(web, "a", b"chat/main", b"%d" % number)
    subscribe(web, "c", "dan", "chat/main")
    publish(web, "a", b"chat/main", b"3")
    assert [data for _, data in web["c"].hears("dan")] == [b"3"]
    publish(web, "a", b"chat/main", b"4")
    subscribe(web, "c", "cid", "chat/+")
    publish(web, "a", b"chat/main", b"5")
    assert [data for _, data in web["c"].hears("ann")] == [b"%d" % number for number in range(6)]
    assert [data for _, data in web["c"].hears("cid")] == [b"5"]
    assert [data for _, data in web["c"].hears("dan")] == [b"4", b"5"]
    subscribe(web, "c", "cid", "chat/+", undo=True)
    subscribe(web, "c", "dan", "chat/main", undo=True)
    publish(web, "a", b"chat/main", b"6")
    assert web["c"].hears("cid") == web["c"].hears("dan") == []
    assert web["c"].hears("ann") == [(b"chat/main", b"6")]


def test_substrings_mean_this_daemon_and_copies_can_be_watched(web: Web) -> None:
    web["c"].say("nc", b"sub chat/main\n")
    web["c"].say("watch", b"sub //fwd/hub-topics/\n")
    subscribe(web, "c", "ann", "chat/main")
    web.run()
    publish(web, "a", b"chat/main")
    assert web["c"].hears("nc") == []
    assert web["c"].hears("watch") == [(b"//fwd/hub-topics/default/chat/main", b"x")]
    assert web["c"].hears("ann") == [(b"chat/main", b"x")]


def test_a_daemon_that_does_not_carry_a_topic_neither_sends_nor_takes_it(web: Web) -> None:
    subscribe(web, "d", "dan", "chat/main")
    subscribe(web, "c", "ann", "chat/main")
    web.run()
    assert interests(web, "d") == []
    publish(web, "a", b"chat/main")
    publish(web, "d", b"chat/main", b"from d")
    assert web["d"].hears("dan") == [(b"chat/main", b"from d")]
    assert web["c"].hears("ann") == [(b"chat/main", b"x")]


def test_all_topics_may_travel_but_none_of_the_daemons_own() -> None:
    web = Web()
    web.add("a", "b", topics=("#",))
    web.link("ab")
    web.run()
    subscribe(web, "b", "bob", "#")
    web.run()
    assert interests(web, "b") == [b"//fwd/hub-topics/default/"]
    publish(web, "a", b"any.thing")
    publish(web, "a", b"//x/y")
    web["a"].broker.delivery.publish(b"//pubsubd/stats", b"{}")
    web.run(0.1)
    assert web["b"].hears("bob") == [(b"any.thing", b"x")]
    assert web["a"].broker.router.copies.topic_of(b"//fwd/hub-topics/default///pubsubd/x") is None


def test_thousands_of_topics_are_generalised_and_all_arrive(web: Web) -> None:
    topics = [f"chat/{number % 7}/{number}" for number in range(3_000)]
    subscribe(web, "c", "ann", *topics)
    web.run()
    assert len(interests(web, "c")) == 7
    for topic in topics[:20]:
        publish(web, "a", topic.encode())
    assert [name.decode() for name, _ in web["c"].hears("ann")] == topics[:20]


def test_no_client_publishes_the_copy_of_a_topic_and_rights_are_those_of_the_topic(
    web: Web,
) -> None:
    subscribe(web, "c", "ann", "chat/main", "chat/secret")
    subscribe(web, "a", "amy", "chat/main")
    web.run()
    for name in (b"//fwd/hub-topics/default/chat/main", b"//hub-topics/default/chat/main"):
        publish(web, "a", name)
        errors = [data for kind, data in web["a"].hears("pub") if kind == b"//pubsubd/error"]
        assert [error.split()[0] for error in errors] == [b"forged-advert"]
    assert web["c"].hears("ann") == []
    acl = Acl([AclRule(("*",), ("chat/",), ("chat/main", "//"))])
    for node in "ac":
        for _ in web[node].broker.access.replacing(users=Users(), acl=acl, authority=None):
            pass
    web["c"].say("watch", b"sub //fwd/hub-topics/\n")
    web.run()
    publish(web, "a", b"chat/secret")
    publish(web, "a", b"chat/main")
    assert web["c"].hears("ann") == [(b"chat/main", b"x")]
    assert web["c"].hears("watch") == [(b"//fwd/hub-topics/default/chat/main", b"x")]


def test_a_topic_too_long_for_its_copy_stays(web: Web) -> None:
    longest = b"chat/" + b"x" * (1024 - len(b"//fwd/hub-topics/default/chat/"))
    for name in (longest, longest + b"x"):
        subscribe(web, "c", "ann", name.decode())
    web.run()
    publish(web, "a", longest)
    publish(web, "a", longest + b"x")
    assert web["c"].hears("ann") == [(longest, b"x")]


@pytest.mark.parametrize("text", ["chat/#", "+/x", "//x", "a b", "x" * 1025])
def test_what_is_no_beginning_of_topics_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="hub_mesh: "):
        read_settings(MeshOptions(topics=(text,)), "127.0.0.1", 9014)


def test_what_nobody_wants_takes_nothing_with_it_that_begins_a_batch(web: Web) -> None:
    """``chat/main`` is advertised as a substring, which is in ``chat/main2`` as well."""
    ab, *_ = web.links  # type: ignore[attr-defined]
    subscribe(web, "c", "ann", "chat/main")
    web["b"].say("bob", b"sub //fwd/deep/down\n")
    web.run()
    many = b"".join(wire.frame(name, b"x") for name in (b"chat/main2", b"chat/main"))
    web["a"].say("pub", many)
    web.run(0.05)
    assert crossed(ab) == 1
    assert web["c"].hears("ann") == [(b"chat/main", b"x")]


def test_large_messages_of_one_batch_arrive_under_the_name_of_the_topic(web: Web) -> None:
    subscribe(web, "c", "ann", "chat/main")
    web.run()
    large, small = (wire.frame(b"chat/main", b"x" * size) for size in (300_000, 10))
    web["a"].say("pub", large + small)
    web.run(0.2)
    assert [len(data) for _, data in web["c"].hears("ann")] == [300_000, 10]
