"""Actors of the workers of a daemon in a mesh, and of the other daemons."""

from __future__ import annotations

from typing import Any

import pytest

from pubsubd.hub import asking
from pubsubd.hub.federation import PATIENCE
from pubsubd.mesh import outgoing
from tests.federations import Wing
from tests.hubs import message_a, message_b
from tests.unit.siblings.webs import Crew
from tests.webs import Web


@pytest.fixture
def mesh() -> tuple[Web, Crew, Wing]:
    """A daemon of two workers, with ann and bob, and one of one process, with cid."""
    web = Web()
    web.add("a", "b")
    crew = Crew(web, "a")
    far = Wing(web, web["b"], rate=0.0)
    web.link("ab")
    crew.run(3.0)
    for wing, name in ((crew[0], "ann"), (crew[1], "bob"), (far, "cid")):
        wing.join(name)
        wing.say(name, register(name))
    crew.run()
    for wing, name in ((crew[0], "ann"), (crew[1], "bob"), (far, "cid")):
        assert wing.hears(name)[-1]["type"] == "hub:registered"
    return web, crew, far


def register(name: str, **more: Any) -> dict[str, Any]:
    payload = {"actorAddress": f"x/{name}", "capabilities": ["ui"]} | more
    return message_b("hub:register", payload, me=f"x/{name}")


def send(to: str, data: Any, me: str, **more: Any) -> dict[str, Any]:
    return message_b("hub:send", {"to": f"x/{to}", "type": "t", "data": data}, me=f"x/{me}", **more)


def found(worker: Any, name: str) -> dict[str, str]:
    """Return where a client finds which actors."""
    worker.hears(name)
    answer = worker.ask(name, message_b("hub:discover", {"pattern": "x/"}))["payload"]
    assert answer["unanswered"] == []
    return {one["address"]: one["daemon"] for one in answer["actors"]}


EVERYWHERE = {"x/ann": "a", "x/bob": "a", "x/cid": "b"}


def test_all_find_all_and_the_mesh_is_told_of_one_daemon(mesh: tuple[Web, Crew, Wing]) -> None:
    web, crew, far = mesh
    for worker, name in ((crew[0], "ann"), (crew[1], "bob"), (far, "cid")):
        assert found(worker, name) == EVERYWHERE
    crew[1].join("eve")
    crew[1].say("eve", register("eve"))
    crew.run(20.0)  # until the daemon advertises again
    (row,) = [row for row in web["b"].report.describe()["daemons"] if row["node"] == "a"]
    assert (row["actors"], row["hub_connections"]) == (3, 3)


def test_an_actor_of_another_worker_is_spoken_to_as_one_of_the_first(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    _web, crew, far = mesh
    for number in range(9):
        far.say("cid", send("bob", number, "cid", pattern="ask" if number % 2 else "tell"))
        crew[1].say("bob", send("cid", number, "bob", pattern="ask" if number % 2 else "tell"))
    crew.run()
    for worker, name, other in ((far, "cid", "bob"), (crew[1], "bob", "cid")):
        heard = worker.hears(name)
        assert [one["payload"] for one in heard] == list(range(9))
        assert {one["from"] for one in heard} == {f"x/{other}"}


def test_what_a_worker_does_not_take_is_told(mesh: tuple[Web, Crew, Wing]) -> None:
    web, crew, far = mesh
    crew[1].hub.registry.unregister("x/bob")  # which the others do not know yet
    far.say("cid", send("bob", 1, "cid", pattern="ask"))
    web.run(0.1)
    assert far.hears("cid") == []
    crew.run()
    (answer,) = far.hears("cid")
    assert answer["payload"]["code"] == "unknown_actor"
    far.hub.registry.unregister("x/cid")
    crew[1].say("bob", send("cid", 1, "bob"))
    crew.settle()
    web.run(0.1)
    crew.run()
    (answer,) = crew[1].hears("bob")
    assert answer["payload"]["code"] == "unknown_actor"


def test_a_worker_that_stands_still_holds_up_nobody_and_is_named(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    web, crew, far = mesh
    far.say("cid", send("bob", 1, "cid", pattern="ask"), send("ann", 2, "cid", pattern="ask"))
    far.say("cid", message_b("hub:broadcast", {"type": "hail", "data": 3, "excludeSelf": True}))
    web.run(PATIENCE + outgoing.PATIENCE)
    assert [one["payload"] for one in crew[0].hears("ann")] == [2, 3]
    told = {one["type"]: one["payload"] for one in far.hears("cid")}
    assert told["hub:error"]["code"] == "unknown_actor"
    assert told["hub:broadcast_ack"]["unanswered"] == ["a"]
    crew.run()
    assert [one["payload"] for one in crew[1].hears("bob")] == [1, 3]
    far.say("cid", send("bob", 4, "cid", pattern="ask"))
    crew.run()
    assert [one["payload"] for one in crew[1].hears("bob")] == [4]


def test_a_broadcast_of_another_worker_names_the_daemons_that_do_not_answer(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    _web, crew, far = mesh
    letters = far.web["b"].mesh.letters
    taken = letters.kinds.pop("broadcast")
    hail = message_b("hub:broadcast", {"type": "hail", "data": 3, "excludeSelf": True})
    crew[1].say("bob", hail)
    for _ in range(9):
        crew.run(1.0)
        for _ in crew[1].hub.sweep():
            pass
    (ack,) = crew[1].hears("bob")
    assert (ack["payload"]["deliveredCount"], ack["payload"]["unanswered"]) == (1, ["b"])
    letters.kinds["broadcast"] = taken
    crew[1].say("bob", hail)
    crew.run()
    (ack,) = crew[1].hears("bob")
    assert (ack["payload"]["deliveredCount"], ack["payload"]["unanswered"]) == (2, [])


def test_a_broadcast_that_the_first_worker_does_not_send_on_names_all_daemons(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    _web, crew, _far = mesh
    crew[0].hub.federation.directory.letters.kinds["broadcast"] = lambda *_: None
    for scope, named in (("mesh", ["a", "b"]), ("local", None)):
        payload = {"type": "hail", "data": 3, "excludeSelf": True, "scope": scope}
        crew[1].say("bob", message_b("hub:broadcast", payload))
        for _ in range(9):
            crew.run(1.0)
            for _ in crew[1].hub.sweep():
                pass
        (ack,) = crew[1].hears("bob")
        assert (ack["payload"]["deliveredCount"], ack["payload"].get("unanswered")) == (0, named)


@pytest.mark.parametrize("victim", [0, 1])
def test_workers_whose_link_is_lost_know_all_again_when_they_have_another(
    mesh: tuple[Web, Crew, Wing], victim: int
) -> None:
    _web, crew, far = mesh
    (sibling, _), (other, _) = (
        crew[number].links.pop(1 - number) for number in (victim, 1 - victim)
    )
    for end in (sibling, other):
        for step in end.leaving():
            for _ in step():
                pass
    crew.run()
    assert found(far, "cid") == {"x/ann": "a", "x/cid": "b"}
    assert found(crew[0], "ann") == {"x/ann": "a", "x/cid": "b"}
    assert found(crew[1], "bob") == {"x/bob": "a"}
    crew[1].say("bob", send("cid", 1, "bob", pattern="ask"))
    assert crew[1].hears("bob")[0]["payload"]["code"] == "unknown_actor"
    for number in (victim, 1 - victim):
        crew[number].link(1 - number)
    crew.run()
    for worker, name in ((crew[0], "ann"), (crew[1], "bob"), (far, "cid")):
        assert found(worker, name) == EVERYWHERE


def test_a_new_worker_is_told_of_all_actors_of_all_daemons(mesh: tuple[Web, Crew, Wing]) -> None:
    _web, crew, far = mesh
    names = [f"many{number}" for number in range(700)]
    for name in names:
        far.say("cid", register(name, metadata={"text": "x" * 200}))
    far.hears("cid")
    crew.run(1.0)
    assert len(crew[1].hub.federation.mirrors["b"]) == 701
    crew.kill(1)
    crew.run()
    assert found(far, "cid").keys() >= {"x/ann", "x/cid"}
    crew.all[1] = crew.make(crew, 1)
    crew[0].link(1)
    crew[1].link(0)
    crew.run()
    assert len(crew[1].hub.federation.mirrors["b"]) == 701
    crew[1].join("eve")
    listed = crew[1].ask("eve", message_b("hub:list_actors", {"limit": 1}))["payload"]
    assert listed["total"] == 702
    for name in names:
        far.hub.registry.unregister(f"x/{name}")
    crew.run(1.0)
    assert found(crew[1], "eve") == {"x/ann": "a", "x/cid": "b"}


def test_a_fault_about_one_actor_hides_that_one_alone(
    mesh: tuple[Web, Crew, Wing], monkeypatch: pytest.MonkeyPatch
) -> None:
    _web, crew, far = mesh
    federation = crew[0].hub.federation
    describe = federation.describe

    def fail(key: str, node: str | None = None) -> bytes | None:
        if key == "x/two":
            raise RuntimeError
        return describe(key, node)

    monkeypatch.setattr(federation, "describe", fail)
    for name in ("one", "two", "six"):
        far.say("cid", register(name))
    crew.run()
    assert found(crew[1], "bob") == EVERYWHERE | {"x/one": "b", "x/six": "b"}
    assert crew[0].broker.faults.counts.total() == 1
    monkeypatch.undo()
    far.say("cid", register("two", metadata={"n": 1}))
    crew.run()
    assert found(crew[1], "bob").keys() == found(crew[0], "ann").keys()


def test_a_daemon_that_dies_takes_its_actors_with_it_at_all_workers(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    web, crew, _far = mesh
    web.kill("b")
    crew.run(3.0)
    assert found(crew[1], "bob") == found(crew[0], "ann") == {"x/ann": "a", "x/bob": "a"}
    assert "b" not in crew[1].hub.federation.mirrors
    web.add("b")
    again = Wing(web, web["b"], rate=0.0)
    web.link("ab")
    crew.run(3.0)
    again.join("dan")
    again.say("dan", register("dan"))
    crew.run()
    assert found(crew[1], "bob") == {"x/ann": "a", "x/bob": "a", "x/dan": "b"}


def test_the_later_of_two_registrations_ends_at_whichever_worker_it_is(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    web, crew, far = mesh
    far.say("cid", register("eve"))
    far.web.run(0.1)
    crew[1].join("eve")
    crew[1].say("eve", register("eve"))  # it does not know yet
    crew.run()
    web.run(1.0)
    crew.run()
    assert [one["type"] for one in crew[1].hears("eve")] == [
        "hub:registered",
        "hub:registration_lost",
    ]
    assert found(crew[1], "bob") == found(far, "cid") == EVERYWHERE | {"x/eve": "b"}
    assert "x/eve" not in crew[0].web["a"].mesh.directory.own


def take_over(wing: Any, name: str, address: str) -> None:
    """Let a new client ask for an address that somebody has elsewhere."""
    wing.join(name)
    wing.connect_a(name)
    payload = {"actorAddress": f"@({address})", "capabilities": ["ui"]}
    wing.say(name, message_a("hub:register", payload, me=f"@({address})"))


@pytest.mark.parametrize("number", [0, 1])
def test_an_address_that_was_given_away_is_not_lost_again_to_who_had_it(
    mesh: tuple[Web, Crew, Wing], number: int
) -> None:
    web, crew, far = mesh
    far.join("dan")
    far.say("dan", register("dan"))  # so what changes next is told only after a while
    far.web.run(0.01)
    take_over(crew[number], "eve", "x/cid")
    crew.run()
    web.run(1.0)
    crew.run()
    assert [one["type"] for one in crew[number].hears("eve")] == ["hub:registered"]
    places = {"@(x/cid)": "a", "x/dan": "b", "x/ann": "a", "x/bob": "a"}
    for worker, name in ((crew[0], "ann"), (crew[1], "bob")):
        assert found(worker, name) == places
    assert crew.web["a"].mesh.directory.lost == 0


def test_an_address_that_another_daemon_has_given_away_is_found_once(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    web, crew, _far = mesh
    take_over(crew[1], "eve", "x/cid")
    crew.step(1)  # the request comes to the first worker, which asks the other daemon
    web.run(0.02)
    _, queue = crew[0].links[1]
    while queue:  # the answer, but not yet what has changed
        crew.carry(0, 1, queue.popleft())
    assert [one["type"] for one in crew[1].hears("eve")] == ["hub:registered"]
    answer = crew[1].ask("bob", message_b("hub:discover", {"pattern": "x/cid"}))["payload"]
    assert [one["daemon"] for one in answer["actors"]] == ["a"]


def test_a_daemon_of_which_a_worker_does_not_say_has_not_answered_a_broadcast(
    mesh: tuple[Web, Crew, Wing], monkeypatch: pytest.MonkeyPatch
) -> None:
    web, crew, far = mesh
    hail = message_b("hub:broadcast", {"type": "hail", "data": 3, "excludeSelf": True})
    far.say("cid", hail)
    monkeypatch.setattr(asking, "MAX_WAITING", 0)  # so the first worker does not ask the other
    crew.run()
    assert far.hears("cid") == []
    web.run(PATIENCE + 2)
    (ack,) = far.hears("cid")
    assert ack["payload"]["unanswered"] == ["a"]
    assert [one["payload"] for one in crew[0].hears("ann")] == [3]
    monkeypatch.undo()
    far.say("cid", hail)
    crew.run()
    (ack,) = far.hears("cid")
    assert (ack["payload"]["deliveredCount"], ack["payload"]["unanswered"]) == (2, [])


def test_an_address_moves_from_any_worker_to_any_daemon_and_back(
    mesh: tuple[Web, Crew, Wing],
) -> None:
    _web, crew, far = mesh
    first, second = crew.all
    places = [far, second, first, second, far, first]
    for number, wing in enumerate(places):
        node = "b" if wing is far else "a"
        name = f"taker{number}"
        wing.join(name)
        wing.connect_a(name)
        payload = {"actorAddress": "@(x/moving)", "capabilities": ["ui"]}
        wing.say(name, message_a("hub:register", payload, me="@(x/moving)"))
        crew.run()
        assert wing.hears(name)[-1]["type"] == "hub:registered"
        for worker, who in ((crew[0], "ann"), (crew[1], "bob"), (far, "cid")):
            assert found(worker, who)["@(x/moving)"] == node
            worker.say(who, send("moving", who, who))
        crew.run()
        heard = [one for one in wing.hears(name) if one["type"] == "t"]
        assert {one["payload"] for one in heard} == {"ann", "bob", "cid"}
        if number:
            earlier = places[number - 1]
            assert earlier.ended[f"taker{number - 1}"][0] == "duplicate-connection"
