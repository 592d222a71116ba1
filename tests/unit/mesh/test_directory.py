"""Claims of addresses: who has which, in the whole mesh."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from pubsubd.broker.turn import Turn, finish
from pubsubd.hub.mirrors import Mirrors
from pubsubd.mesh import directory
from pubsubd.protocol import wire
from pubsubd.routing import claims
from tests.federations import BareHub as Hub
from tests.footprint import reached
from tests.webs import Web, build


class Counted(Turn):
    """A turn that is over whenever one looks.

    Attributes:
        looks: how often one has.
    """

    looks = 0

    def over(self) -> bool:
        self.looks += 1
        return True


Hubs = dict[str, Hub]


def start(*edges: str) -> tuple[Web, Hubs]:
    """Return a mesh of daemons with hubs."""
    web = Web()
    web.add(*sorted(set("".join(edges))))
    hubs = {name: Hub(node) for name, node in web.nodes.items()}
    web.link(*edges)
    web.run()
    return web, hubs


def found(hubs: Hubs, key: str) -> list[str | None]:
    """Return where each daemon says that a key is claimed elsewhere."""
    return [hub.directory.find(key) for hub in hubs.values()]


def check(web: Web, hubs: Hubs) -> None:
    """Check that each daemon knows exactly what is claimed at those that it can reach."""
    for name, hub in hubs.items():
        reached = web[name].mesh.table.hops.keys() - {name}
        claims = {
            (other, key): since
            for other in reached & hubs.keys()
            for key, since in hubs[other].directory.own.items()
        }
        assert {one: since for one, (since, _) in hub.known.items()} == claims, name
        assert hub.directory.known == len(claims)
        assert hub.directory.unsettled == []
        for _, key in claims:
            where = min((since, other) for (other, one), since in claims.items() if one == key)
            assert hub.directory.find(key) == where[1]


def test_a_claim_is_known_everywhere_and_gone_everywhere() -> None:
    web, hubs = start("ab", "bc", "cd")
    hubs["a"].directory.claim("x/ann")
    web.run(0.1)
    assert found(hubs, "x/ann") == [None, "a", "a", "a"]
    assert hubs["d"].known["a", "x/ann"][1] == b'{"of":"x/ann"}'
    assert [hub.directory.count("a") for hub in hubs.values()] == [1] * 4
    hubs["a"].directory.release("x/ann")
    web.run(0.1)
    assert found(hubs, "x/ann") == [None] * 4
    check(web, hubs)


def test_one_who_comes_later_is_told_everything() -> None:
    web, hubs = start("ab")
    for number in range(3_000):
        hubs["a"].directory.claim(f"x/{number}")
    web.run(0.5)
    web.add("c")
    hubs["c"] = Hub(web["c"])
    web.link("cb")
    web.run(1.0)
    assert hubs["c"].directory.count("a") == 3_000
    check(web, hubs)


def test_however_many_ask_for_everything_what_changes_is_told_after_one_answer() -> None:
    web, hubs = start("ab", "ac", "ad", "ae")
    for number in range(300):
        hubs["a"].directory.claim(f"x/{number}")
    web.run(2.0)
    said: list[str] = []
    letters = web["a"].mesh.letters
    send = letters.send

    def sending(node: str | None, words: str, body: bytes = b"") -> None:
        if not said:
            hubs["a"].directory.claim("x/new")
        said.append(words.split(maxsplit=1)[0])
        send(node, words, body)

    letters.send = sending  # type: ignore[method-assign]
    for other in "bcde":
        web[other].mesh.letters.send("a", "sync")
        web[other].mesh.letters.post()
    web.run(0.5)
    assert sorted(said) == ["claims"] + 4 * ["whole"]
    assert said.index("claims") <= 2
    check(web, hubs)


def test_many_changes_go_together() -> None:
    web, hubs = start("ab")
    for number in range(100):
        hubs["a"].directory.claim(f"x/{number}")
        hubs["a"].directory.claim(f"x/{number}")
        web.run(0.005)
    web.run(0.1)
    assert hubs["a"].directory.sequence <= 0.5 / directory.GATHER + 2
    check(web, hubs)


@pytest.mark.parametrize("later", ["a", "b"])
def test_of_two_claims_the_earlier_wins_on_both_sides_of_a_partition(later: str) -> None:
    web, hubs = start("ab", "bc", "cd")
    bc = next(one for one in web["b"].connections if web["c"] in one.nodes)
    bc.close()
    web.run(0.2)
    first, second = ("d", "a") if later == "a" else ("a", "d")
    hubs[first].directory.claim("x/ann")
    web.run(0.2)
    hubs[second].directory.claim("x/ann")
    web.run(0.2)
    assert hubs["b"].directory.find("x/ann") == "a"
    assert hubs["c"].directory.find("x/ann") == "d"
    web.link("bc")
    web.run(2.0)  # heartbeats of a second
    assert hubs[second].lost == [("x/ann", first)]
    assert hubs[first].lost == []
    assert hubs["b"].directory.find("x/ann") == hubs["c"].directory.find("x/ann") == first
    check(web, hubs)


def test_two_claims_at_one_moment_are_decided_by_the_ids() -> None:
    web, hubs = start("ab", "bc")
    hubs["c"].directory.claim("x/ann")
    hubs["a"].directory.claim("x/ann")
    web.run(1.0)
    assert (hubs["a"].lost, hubs["c"].lost) == ([], [("x/ann", "a")])
    assert hubs["b"].directory.find("x/ann") == "a"
    check(web, hubs)


def test_a_claim_that_has_moved_stays_although_its_withdrawal_comes_later() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.1)
    letters = web["a"].mesh.letters
    send, letters.send = letters.send, lambda *_: None  # type: ignore[method-assign]
    hubs["a"].directory.release("x/ann")
    web.run(0.1)  # the letter about that is lost
    letters.send = send  # type: ignore[method-assign]
    hubs["b"].directory.claim("x/ann")
    web.run(0.1)
    hubs["a"].directory.claim("x/bob")  # so that "b" notices, and asks
    web.run(3.0)
    assert hubs["b"].lost == []
    assert found(hubs, "x/ann") == ["b", None]
    check(web, hubs)


def test_when_the_winner_is_gone_the_other_one_is_found() -> None:
    web, hubs = start("ab", "bc")
    hubs["c"].directory.claim("x/ann")
    web.run(0.2)
    letters = web["a"].mesh.letters
    later = hubs["c"].directory.own["x/ann"] + 5
    letters.send(None, "claims 1", b"+ %d x/ann {}\n" % later)  # and does not withdraw it
    letters.post()
    web.run(0.2)
    assert hubs["b"].directory.find("x/ann") == "c"
    hubs["c"].directory.release("x/ann")
    web.run(0.2)
    assert hubs["b"].directory.find("x/ann") == "a"
    letters.send(None, "claims 2", b"- x/ann\n")
    letters.post()
    web.run(0.2)
    assert hubs["b"].directory.find("x/ann") is None
    check(web, hubs)


def test_a_dead_daemon_takes_its_claims_with_it_and_brings_no_ghosts() -> None:
    web, hubs = start("ab", "bc")
    for key in ("x/ann", "x/bob"):
        hubs["c"].directory.claim(key)
    web.run(0.2)
    web.kill("c")
    del hubs["c"]
    web.run(0.2)
    assert hubs["a"].directory.find("x/ann") is None
    check(web, hubs)
    web.add("c")
    hubs["c"] = Hub(web["c"])
    hubs["c"].directory.claim("x/bob")
    web.link("bc")
    web.run(1.0)
    assert found(hubs, "x/ann") == [None] * 3
    assert found(hubs, "x/bob") == ["c", "c", None]
    check(web, hubs)


def test_a_letter_that_was_lost_is_noticed_by_the_next_or_by_an_advert() -> None:
    for noticed in ("next", "advert"):
        web, hubs = start("ab")
        letters = web["a"].mesh.letters
        hubs["a"].directory.claim("x/ann")
        send, letters.send = letters.send, lambda *_: None  # type: ignore[method-assign]
        web.run(0.1)
        letters.send = send  # type: ignore[method-assign]
        assert hubs["b"].directory.find("x/ann") is None
        if noticed == "next":
            hubs["a"].directory.claim("x/bob")
            web.run(1.0)
        else:
            web.run(12.0)
        assert hubs["b"].directory.find("x/ann") == "a"
        check(web, hubs)


def test_a_letter_lost_with_a_daemon_on_its_way_is_noticed_when_the_graph_changes() -> None:
    web, hubs = start("ab", "bc", "cd", "de", "ea")
    hubs["a"].directory.claim("x/ann")
    web.run(0.1)
    letters = web["a"].mesh.letters
    said: list[str] = []
    send = letters.send

    def sending(node: str | None, words: str, body: bytes = b"") -> None:
        said.append(words)
        if len(said) > 1:  # the first one is lost
            send(node, words, body)

    letters.send = sending  # type: ignore[method-assign]
    hubs["a"].directory.claim("x/bob")
    web.run(0.1)
    web.kill("c")
    del hubs["c"]
    web.run(0.7)
    assert said == ["claims 2", "claims 3", *3 * ["whole 3 0 0"]]
    check(web, hubs)
    # Who has told nothing lately sends nothing.
    web.run(5.0)
    web.kill("d")
    del hubs["d"]
    web.run(3.0)
    assert said[5:] == []


def test_a_daemon_without_a_hub_gets_no_letters_and_carries_them() -> None:
    web = build(["ab", "bc"])
    hubs = {name: Hub(web[name]) for name in "ac"}
    web.run(11.0)
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    assert hubs["c"].directory.find("x/ann") == "a"
    assert web["b"].mesh.letters.received == 0
    assert web["b"].mesh.directory.count("a") is None
    assert hubs["a"].directory.others == ["c"]


def test_nobody_but_the_daemons_sees_letters_or_draws_them_over_links() -> None:
    web, hubs = start("ab", "bc")
    for node in "ac":
        for text in (b"//fwd/", b"hub", b"//fwd/hub/default/*/"):
            web[node].say("spy", b"sub %b\n" % text)
    web.run()
    assert web["c"].mesh.broker.router.forwarded.keys() == {b"//fwd/"}
    before = web["c"].mesh.counters.received
    letters = web["a"].mesh.letters
    letters.send("b", "sync")
    letters.post()
    web.run(0.2)
    assert web["c"].mesh.counters.received == before
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    for node in "ac":
        assert not [name for name, _ in web[node].hears("spy") if name.startswith(wire.HUB)]


def test_letters_of_strangers_and_malformed_ones_change_nothing() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    letters = web["a"].mesh.letters
    bad = [
        "claims",
        "claims x",
        "claims 99999999999999999999",
        "whole 1",
        "whole 1 0 x",
        "nonsense",
        "x" * 5_000,
    ]
    for words in bad:
        letters.send("b", words, b"")
    letters.send("b", "claims 2", b"+ 5\n")
    letters.send("b", "claims 3", b"? x\n")
    letters.send("b", "claims 4", b"+ 5 %b {}\n" % (b"k" * 300))
    letters.post()
    web.run(2.5)
    ignored = web["b"].mesh.letters.ignored
    assert ignored["malformed"] >= len(bad) - 1
    assert ignored["unknown"] == 1
    check(web, hubs)
    web["b"].mesh.table.adverts.pop("a")
    letters.send("b", "claims 5", b"- x/ann\n")
    letters.post()
    web.run(0.05)
    assert ignored["stranger"] == 1


def test_a_letter_is_no_larger_than_a_part_and_taken_in_steps() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    letters, others = web["a"].mesh.letters, web["b"].mesh.letters
    lines = b"".join(b"+ 5 x/%d {}\n" % number for number in range(2_000))
    letters.send("b", "claims 2", lines)
    turns = Counted()
    web["b"].broker.delivery.turn = turns
    letters.post()
    web.run(0.2)
    assert turns.looks > 2_000 / 16
    assert hubs["b"].directory.count("a") == 2_001
    letters.send("b", "claims 3", b"+ 5 x/y {}\n" * 60_000)
    letters.post()
    web.run(0.2)
    assert others.ignored["malformed"] == 1


def test_few_lines_with_many_details_are_taken_in_steps_too() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    letters = web["a"].mesh.letters
    details = b'{"d":"%b"}' % (b"d" * 20_000)
    letters.send("b", "claims 2", b"".join(b"+ 5 x/%d %b\n" % (n, details) for n in range(10)))
    turns = Counted()
    web["b"].broker.delivery.turn = turns
    letters.post()
    web.run(0.2)
    assert hubs["b"].directory.count("a") == 11
    assert turns.looks >= 10


def test_a_fault_of_the_directory_costs_the_mesh_nothing_and_is_made_good() -> None:
    web, hubs = start("ab")
    hub = hubs["a"]
    describe, faults = hub.describe, []

    def fail(key: str) -> bytes | None:
        faults.append(key)
        hub.describe = describe  # type: ignore[method-assign]
        raise RuntimeError

    hub.describe = fail  # type: ignore[method-assign]
    hub.directory.claim("x/ann")
    web["b"].say("bob", b"sub //fwd/chat/\n")
    web.run(0.3)
    web["a"].say("pub", wire.frame(b"//chat/main", b"x"))
    web.run(0.1)
    assert faults == ["x/ann"]
    assert web["b"].hears("bob") == [(b"//fwd/chat/main", b"x")]
    web.run(2.0)
    assert hubs["b"].directory.find("x/ann") == "a"
    check(web, hubs)


def test_a_fault_of_one_claim_loses_no_other() -> None:
    web, hubs = start("ab")
    hub = hubs["a"]
    describe, faults = hub.describe, []

    def fail(key: str) -> bytes | None:
        if key == "x/bob" and not faults:
            faults.append(key)
            raise RuntimeError
        return describe(key)

    hub.describe = fail  # type: ignore[method-assign]
    for key in ("x/ann", "x/bob", "x/cay"):
        hub.directory.claim(key)
    web.run(3.0)
    assert faults == ["x/bob"]
    check(web, hubs)


def test_a_letter_whose_taking_has_failed_is_made_good() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    learn = hubs["b"].learn

    def fail(*_: object) -> bool:
        hubs["b"].learn = learn  # type: ignore[method-assign]
        raise RuntimeError

    hubs["b"].learn = fail  # type: ignore[method-assign]
    hubs["a"].directory.claim("x/bob")
    web.run(2.5)
    assert hubs["b"].directory.find("x/bob") == "a"
    check(web, hubs)


@pytest.mark.parametrize("part", [0, 1, -1])
def test_what_was_told_in_part_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    monkeypatch.setattr(directory, "PART", 1_000)
    web, hubs = start("ab")
    for number in range(200):
        hubs["a"].directory.claim(f"x/{number}")
    web.run(1.0)
    letters = web["a"].mesh.letters
    send, lost = letters.send, []

    def lose(node: str | None, words: str, body: bytes = b"") -> None:
        wanted = words.endswith(" 0") if part < 0 else words.endswith(f" {part} 1")
        if words.startswith("whole") and wanted and not lost:
            lost.append(words)
        else:
            send(node, words, body)

    letters.send = lose  # type: ignore[method-assign]
    web.add("c")
    hubs["c"] = Hub(web["c"])
    web.link("cb")
    web.run(1.0)
    hubs["a"].directory.claim("x/more")
    web.run(2.0)
    assert lost
    check(web, hubs)


def test_so_many_may_claim_one_key() -> None:
    web, hubs = start("ab")
    known = hubs["b"].directory
    for number in range(claims.MAX_RIVALS + 9):
        node = f"n{number}"
        letter = b"+ %d x/ann {}\n" % (500 - number)
        advert = dataclasses.replace(web["b"].mesh.table.adverts["a"], node=node)
        web["b"].mesh.table.adverts[node] = advert
        web["b"].mesh.table.hops[node] = 1
        take = web["b"].mesh.letters.kinds
        for kind, words in (("whole", ["whole", "0", "0", "0"]), ("claims", ["claims", "1"])):
            finish(take[kind](node, words, letter if kind == "claims" else b""))  # type: ignore[arg-type]
    assert known.known == claims.MAX_RIVALS
    assert known.find("x/ann") == f"n{claims.MAX_RIVALS - 1}"


def test_everything_is_told_once_a_second_at_most_to_each() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    letters = web["b"].mesh.letters
    before = web["a"].mesh.letters.sent
    for _ in range(50):
        letters.send("a", "sync")
    letters.post()
    web.run(0.5)
    assert web["a"].mesh.letters.sent - before == 1
    assert web["a"].mesh.letters.ignored["rate"] == 49


def test_there_is_room_for_so_many_and_it_is_told_whose_are_missing() -> None:
    web, hubs = start("ab")
    hubs["b"].room = 10
    for number in range(20):
        hubs["a"].directory.claim(f"x/{number}")
    web.run(0.5)
    assert hubs["b"].directory.known == 10
    assert hubs["b"].directory.unsettled == ["a"]
    (event,) = [one for one in web["b"].events if one["event"] == "directory-full"]
    assert event["node"] == "a"


@pytest.mark.parametrize("seed", range(4))
def test_any_churn_ends_in_one_truth(seed: int) -> None:
    rng = random.Random(seed)
    web, hubs = start("ab", "bc", "cd", "de", "ea")
    down: list[tuple[str, str]] = []
    for _step in range(60):
        what = rng.random()
        hub = rng.choice(list(hubs.values()))
        if what < 0.75:
            key = f"x/{rng.randrange(12)}"
            if key in hub.directory.own:
                hub.directory.release(key)
            elif hub.directory.find(key) is None or rng.random() < 0.3:
                hub.directory.claim(key)
        elif what < 0.85:
            node = rng.choice(list(web.nodes.values()))
            if node.connections:
                one = rng.choice(node.connections)
                one.close()
                down.append((one.nodes[0].name, one.nodes[1].name))
        elif down:
            web.link("".join(down.pop()))
        web.run(rng.choice((0.0, 0.01, 0.3)))
    for near, far in down:
        if far not in web[near].mesh.links:
            web.link(near + far)
    web.run(4.0)
    check(web, hubs)
    keys = list(itertools.chain.from_iterable(hub.directory.own for hub in hubs.values()))
    assert len(keys) == len(set(keys))


def test_no_table_of_many_claims_is_one_that_moves_all_at_once() -> None:
    mirrors = Mirrors()

    class Learning:
        learn, forget = staticmethod(mirrors.learn), staticmethod(mirrors.forget)

    known = claims.Claims()
    known.learner = Learning()
    table = known.tables["a"] = claims.Table(1)
    details = b'{"address":"x/%d","capabilities":["c"],"metadata":{}}'
    for number in range(3_000):
        assert known.add("a", table, f"x/{number}", 5, details % number)
    tables = [one for one in (*reached(known), *reached(mirrors)) if type(one) is dict]
    assert max(map(len, tables)) < 1_025
    known.drop("a")
    finish(known.emptying())
    assert (known.known, mirrors) == (0, {})


def test_a_claim_whose_withdrawal_has_failed_is_withdrawn_later() -> None:
    web, hubs = start("ab")
    hubs["a"].directory.claim("x/ann")
    web.run(0.2)
    lose, faults = hubs["b"].lose, []

    def fail(key: str, node: str) -> None:
        faults.append(key)
        if len(faults) == 1:
            raise RuntimeError
        lose(key, node)

    hubs["b"].lose = fail  # type: ignore[method-assign]
    hubs["b"].directory.claim("x/ann")
    web.run(5.0)
    assert faults == ["x/ann", "x/ann"]
    assert list(hubs["b"].directory.own) == []
    check(web, hubs)
