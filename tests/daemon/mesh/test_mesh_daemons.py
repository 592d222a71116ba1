"""Meshes of real daemons: whatever the graph and whatever happens, each message comes once."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import DEADLINE, Background, Line, frame, wait_until
from tests.meshes import Listener, Mesh, Program, distances, hello, prove

Weave = Callable[..., Mesh]


@pytest.fixture
def weave(tmp_path: Path) -> Iterator[Weave]:
    """Make meshes: the arguments are those of :class:`Mesh` behind the directory."""
    meshes: list[Mesh] = []

    def weave_one(*edges: str, flags: tuple[str, ...] = (), **more: Any) -> Mesh:
        mesh = Mesh(tmp_path / f"mesh{len(meshes)}", edges, *flags, **more)
        meshes.append(mesh)
        return mesh

    yield weave_one
    for mesh in meshes:
        mesh.stop()


@pytest.fixture
def answer(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Make programs that wait to be dialled."""
    programs: list[Program] = []

    def make(greeting: bytes = b"") -> Program:
        programs.append(Program(greeting))
        return programs[-1]

    yield make
    for one in programs:
        one.close()


def chain(names: str) -> list[str]:
    return [one + other for one, other in pairwise(names)]


def ring(names: str) -> list[str]:
    return chain(names + names[0])


def listen_everywhere(mesh: Mesh) -> dict[str, Listener]:
    return {name: mesh.listen(name, "//fwd/chat/") for name in mesh.daemons}


def check_delivery(
    mesh: Mesh, near: dict[str, set[str]], listeners: dict[str, Listener], count: int = 50
) -> None:
    """Publish at each daemon; each listener must get each message once, by the shortest paths.

    The mesh has settled, ``near`` is the graph, and somebody listens at each daemon.
    """
    mesh.wait_quiet()
    crossings, duplicates = mesh.crossings(), mesh.counted("duplicates")
    for name in mesh.daemons:
        for start in range(0, count, 10):
            numbers = range(start, start + 10)
            mesh.publish(name, *[(f"//chat/{name}", b"%d" % number) for number in numbers])
    mesh.wait_quiet()
    reach = {name: distances(near, name) for name in near}
    for name, listener in listeners.items():
        heard = listener.take()
        for other in mesh.daemons:
            numbers = [int(data) for where, data in heard if where == f"//fwd/chat/{other}"]
            assert numbers == (list(range(count)) if other in reach[name] else []), (name, other)
        assert len(heard) == count * len(reach[name])
    links = sum(len(one) - 1 for one in reach.values())  # of the trees of all origins
    assert mesh.crossings() - crossings == count * links
    assert mesh.counted("duplicates") == duplicates


# Graphs. Larger ones, and more of them, are those of tests/unit/mesh/test_mesh_core.py.

GRAPHS = {
    "a chain": chain("abcde"),
    "a ring": ring("abcd"),
    "a full mesh": ["".join(pair) for pair in combinations("abcd", 2)],
    "a star": ["a" + other for other in "bcdef"],
}

PAIRS = {
    "one dials": ["ab"],
    "one dials twice": ["ab", "ab2"],
    "one dials two addresses of the other": ["ab", "a~b"],
    "both dial": ["ab", "ba"],
    "both dial two addresses": ["ab", "ba", "a~b", "b~a"],
    "both dial themselves too": ["aa", "ab", "b~b"],
}


@pytest.mark.parametrize("graph", GRAPHS)
def test_each_subscriber_gets_each_message_once_and_then_there_is_silence(
    weave: Weave, graph: str
) -> None:
    mesh = weave(*GRAPHS[graph])
    mesh.start()
    check_graphs({mesh: listen_everywhere(mesh)})


def test_two_daemons_have_one_link_whoever_dials_and_how_often(weave: Weave) -> None:
    meshes = {pair: weave(*edges) for pair, edges in PAIRS.items()}
    for mesh in meshes.values():
        mesh.start(wait=False)
    for mesh in meshes.values():
        mesh.wait_ready()
    check_graphs({mesh: listen_everywhere(mesh) for mesh in meshes.values()})


def check_graphs(meshes: dict[Mesh, dict[str, Listener]]) -> None:
    """Each message has to come once, and then there has to be silence."""
    for mesh, listeners in meshes.items():
        near = mesh.wait_settled()
        # Of several connections between two daemons, one is left; the others are its listener and
        # the one that asks.
        wanted = {name: len(near[name]) + 2 for name in listeners}
        wait_until(
            lambda mesh=mesh, wanted=wanted: (
                {name: mesh.stats(name)["connections"] for name in wanted} == wanted
            ),
            f"only the links, the listener and this are left: {wanted}",
        )
        check_delivery(mesh, near, listeners)

    def traffic() -> list[tuple[int, int, int]]:
        return [
            (mesh.crossings(), mesh.counted("originated"), mesh.counted("received"))
            for mesh in meshes
        ]

    before = traffic()
    next(iter(meshes)).wait_heartbeats(2)
    assert traffic() == before
    assert all(one.take() == [] for listeners in meshes.values() for one in listeners.values())


def test_a_message_crosses_only_the_links_that_lead_to_its_subscriber(weave: Weave) -> None:
    mesh = weave(*ring("abcdef"))
    mesh.start()
    listener = mesh.listen("c", "//fwd/chat/")
    mesh.listen("f", "//fwd/other/")
    mesh.wait_settled()
    mesh.publish("a", *[("//chat/x", b"%d" % number) for number in range(50)])
    mesh.publish("a", *[(name, b"") for name in ("local", "/chat/x", "//nobody/x", "//fwd/none")])
    mesh.wait_quiet()
    assert [data for _, data in listener.take()] == [b"%d" % number for number in range(50)]
    assert mesh.crossings() == 2 * 50
    carried = {
        (name, link["node"]): link["messages_out"]
        for name, told in mesh.describe_all().items()
        for link in told["links"]
        if link["messages_out"]
    }
    assert carried == {("a", "b"): 50, ("b", "c"): 50}


def test_a_daemon_that_dials_itself_is_told_so_and_does_not_try_again(weave: Weave) -> None:
    mesh = weave("aa")
    mesh.start()
    mesh.daemons["a"].wait_log("event=self-link")
    told = mesh.describe("a")
    assert (told["links"], told["plain"], told["dialling"]) == ([], [], [])
    assert set(told["counters"]["refused"]) == {"self-link"}


# Starting and restarting


def test_a_triangle_works_whichever_starts_first(weave: Weave) -> None:
    meshes = {order: weave(*ring("abc")) for order in ("abc", "cba")}
    for place in range(3):
        for order, mesh in meshes.items():
            mesh.start([order[place]], wait=False)
        for mesh in meshes.values():
            mesh.wait_ready()
    listeners = {order: listen_everywhere(mesh) for order, mesh in meshes.items()}
    for order, mesh in meshes.items():
        check_delivery(mesh, mesh.wait_settled(), listeners[order])


def test_slow_wires_change_nothing_but_the_time(weave: Weave) -> None:
    mesh = weave("a~b", "b~c", "c~a", "c~d", delay=0.1)
    mesh.start()
    listeners = listen_everywhere(mesh)
    check_delivery(mesh, mesh.wait_settled(), listeners)
    for told in mesh.describe_all().values():
        assert all(link["rtt_ms"] >= 200 for link in told["links"])


def test_each_daemon_in_turn_is_killed_and_back_again(weave: Weave) -> None:
    mesh = weave(*ring("abc"))
    mesh.start()
    listeners = listen_everywhere(mesh)
    mesh.wait_settled()
    for name in mesh.names:
        mesh.restart(name)
        listeners[name] = mesh.listen(name, "//fwd/chat/")
        check_delivery(mesh, mesh.wait_settled(), listeners, 10)


def test_what_was_received_before_the_end_is_still_passed_on(weave: Weave) -> None:
    mesh = weave(*chain("abc"))
    mesh.start()
    listener = mesh.listen("c", "//fwd/chat/")
    mesh.wait_settled()
    mesh.publish("a", *[("//chat/x", b"%d" % number) for number in range(5_000)])
    mesh.end("a")
    wait_until(lambda: len(listener.data("//fwd/chat/")) == 5_000, "all that was published")
    assert listener.data("//fwd/chat/") == [b"%d" % number for number in range(5_000)]


def test_a_restarted_daemon_takes_part_as_itself(weave: Weave) -> None:
    mesh = weave(*chain("abc"))
    mesh.start()
    listener = mesh.listen("a", "//fwd/chat/")
    mesh.listen("c", "//fwd/old/", "//fwd/older/")  # more than later: that tells what is settled
    mesh.wait_settled()
    life = mesh.describe("c")["life"]
    mesh.restart("c")
    again = mesh.listen("c", "//fwd/new/")
    mesh.wait_settled()
    assert mesh.describe("c")["life"] > life
    mesh.publish("c", ("//chat/c", b"1"))
    mesh.publish("a", ("//new/a", b"2"), ("//old/a", b"3"))
    mesh.wait_quiet()
    assert again.catch_up() == [("//fwd/new/a", b"2")]
    assert listener.take() == [("//fwd/chat/c", b"1")]
    (link,) = mesh.describe("a")["links"]
    assert link["messages_out"] == 1  # nobody wants //fwd/old/ any more
    assert "duplicate-node" not in mesh.refused("b")


def test_all_links_of_a_hub_come_back_and_nothing_is_left_open(weave: Weave) -> None:
    leaves = "bcdefghi"
    mesh = weave(*[leaf + "a" for leaf in leaves])
    mesh.start()
    listeners = {leaf: mesh.listen(leaf, "//fwd/chat/") for leaf in leaves}
    mesh.wait_settled()
    open_before = {name: daemon.descriptors() for name, daemon in mesh.daemons.items()}
    mesh.restart("a")
    mesh.wait_settled()
    hub = mesh.listen("a", "//fwd/chat/")
    check_delivery(mesh, mesh.wait_settled(), listeners | {"a": hub}, 10)
    hub.close()
    wait_until(
        lambda: {name: one.descriptors() for name, one in mesh.daemons.items()} == open_before,
        f"descriptors as before: {open_before}",
    )


# Messages


@pytest.mark.parametrize("edges", [chain("abc"), ring("abcd")], ids="-".join)
def test_the_same_message_three_times_is_three_messages(weave: Weave, edges: list[str]) -> None:
    mesh = weave(*edges)
    mesh.start()
    listener = mesh.listen("c", "//fwd/chat/")
    mesh.wait_settled()
    mesh.publish("a", *[("//chat/x", b"same")] * 3)
    for _ in range(3):
        mesh.publish("a", ("//chat/y", b"same"))
    mesh.wait_quiet()
    assert listener.take() == [("//fwd/chat/x", b"same")] * 3 + [("//fwd/chat/y", b"same")] * 3


def test_a_burst_crosses_each_link_of_a_ring_once_at_most(weave: Weave) -> None:
    count = 50_000
    mesh = weave(*ring("abc"))
    mesh.start()
    listeners = listen_everywhere(mesh)
    mesh.wait_settled()
    mesh.publish("a", *[("//chat/a", b"%d" % number) for number in range(count)])
    for listener in listeners.values():
        wait_until(lambda one=listener: len(one.heard) >= count, "all of the burst")
    mesh.wait_quiet()
    for listener in listeners.values():
        assert listener.take() == [("//fwd/chat/a", b"%d" % number) for number in range(count)]
    carried = {
        (name, link["node"]): link["messages_out"]
        for name, told in mesh.describe_all().items()
        for link in told["links"]
    }
    assert carried == {(one, other): count * (one == "a") for one, other in permutations("abc", 2)}
    assert mesh.counted("duplicates") == mesh.counted("relayed") == 0
    assert mesh.counted("received") == 2 * mesh.counted("originated")


def test_bursts_from_all_sides_cross_each_link_once_at_most(weave: Weave) -> None:
    count = 1_000
    mesh = weave(*ring("abcd"), "ac")
    mesh.start()
    listeners = listen_everywhere(mesh)
    near = mesh.wait_settled()
    check_delivery(mesh, near, listeners, count)


def test_when_a_subscriber_leaves_what_it_wants_is_gone_everywhere(weave: Weave) -> None:
    mesh = weave(*ring("abcdef"))
    mesh.start()
    watcher = mesh.listen("a", "//fwd/peers/")
    for how in ("unsub", "close", "reset", "kill"):
        line = mesh.dial("d")
        line.say(b"sub //fwd/chat/\n")
        line.ping()
        mesh.wait_settled()
        wait_until(lambda: b"want //fwd/chat/" in _advert(watcher, "d"), "an advert with it")
        mesh.publish("a", ("//chat/x", b"1"))
        assert line.hear_frame() == ("//fwd/chat/x", b"1")
        mesh.wait_quiet()

        if how == "unsub":
            line.say(b"unsub //fwd/chat/\n")
            line.ping()
        elif how == "close":
            line.close()
            # Whether it has closed for good, or still listens, shows when something is sent to it.
            mesh.publish("a", ("//chat/x", b"2"))
        elif how == "reset":
            line.vanish()
        else:
            mesh.kill("d")
        if how != "kill":
            wait_until(lambda: b"want" not in _advert(watcher, "d"), "an advert without it")
            wait_until(lambda: _interests(mesh) == {("a", 1)}, "it is in nobody's table")
        mesh.wait_settled()
        assert _interests(mesh) == {("a", 1)}
        mesh.wait_quiet()
        before = mesh.crossings(), mesh.counted("originated")
        for name in mesh.daemons:
            mesh.publish(name, *[("//chat/x", b"%d" % number) for number in range(10)])
        mesh.wait_quiet()
        assert (mesh.crossings(), mesh.counted("originated")) == before


def _advert(watcher: Listener, node: str) -> bytes:
    """Return the last advert of a daemon that a watcher has heard, if any."""
    return [b"", *watcher.data(f"//fwd/peers/m/{node}")][-1]


def _interests(mesh: Mesh) -> set[tuple[str, int]]:
    """Return who wants something, and how much, by anybody's table."""
    return {
        (one["node"], one["interests"])
        for told in mesh.describe_all().values()
        for one in told["daemons"]
        if one["interests"]
    }


# Death and silence


class Stream:
    """Numbered messages that a daemon's client publishes without a pause, for a ``with`` block.

    Args:
        mesh: where.
        name: the daemon.
        least: how many there are at least.
        size: bytes of one.

    Attributes:
        said: how many were published and carried out so far.
    """

    def __init__(self, mesh: Mesh, name: str, least: int = 0, size: int = 0) -> None:
        self.said = 0
        self._least, self._size = least, size
        self._line = mesh.dial(name)
        self._over = threading.Event()
        self._background = Background(self._publish)

    def _publish(self) -> None:
        while self.said < self._least or not self._over.is_set():
            numbers = [b"%d" % number for number in range(self.said, self.said + 100)]
            self._line.say(b"".join(frame("//numbers", one.zfill(self._size)) for one in numbers))
            assert self._line.ping() == b""
            self.said += 100
            time.sleep(0.001)  # the others need the processor too

    def __enter__(self) -> Stream:
        self._background.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._over.set()
        self._background.__exit__(kind, *more)

    def wait_flowing(self, listener: Listener) -> None:
        """Wait until what is published from now on is heard."""
        more = self.said + 10_000
        wait_until(lambda: listener.heard and int(listener.heard[-1][1]) >= more, "messages flow")


def numbers_of(listener: Listener) -> list[int]:
    return [int(data) for name, data in listener.take() if name == "//fwd/numbers"]


def transit(mesh: Mesh, name: str) -> str:
    """Return the neighbour by which messages come to a daemon."""
    (via,) = (link["node"] for link in mesh.describe(name)["links"] if link["messages_in"])
    return str(via)


def test_after_a_transit_daemon_is_killed_delivery_goes_on_without_duplicates(weave: Weave) -> None:
    mesh = weave(*ring("abcd"))
    mesh.start()
    listener = mesh.listen("c", "//fwd/numbers")
    mesh.wait_settled()
    with Stream(mesh, "a", 100_000) as stream:
        stream.wait_flowing(listener)
        before = len(listener.heard)
        mesh.kill(transit(mesh, "c"))
        stream.wait_flowing(listener)
    mesh.wait_settled()
    mesh.wait_quiet()
    numbers = numbers_of(listener)
    assert numbers[:before] == list(range(before))
    assert numbers[-1] == stream.said - 1
    assert all(one < other for one, other in pairwise(numbers))
    # What was on its way is lost, and nothing before and after it.
    assert sum(other - one != 1 for one, other in pairwise(numbers)) <= 1


def test_after_a_transit_daemon_has_stopped_delivery_goes_on_without_duplicates(
    weave: Weave,
) -> None:
    """It takes nothing and closes nothing, so the publisher is held up until it is given up."""
    mesh = weave(*ring("abcd"))
    mesh.start()
    listener = mesh.listen("c", "//fwd/numbers")
    near = mesh.wait_settled()
    with Stream(mesh, "a", size=1_000) as stream:
        stream.wait_flowing(listener)
        before = len(listener.heard)
        via = transit(mesh, "c")
        mesh.daemons[via].signal(signal.SIGSTOP)
        try:
            for name in "ac":
                wait_until(lambda name=name: via not in mesh.links(name), f"{name} has noticed")
            stream.wait_flowing(listener)
        finally:
            mesh.daemons[via].signal(signal.SIGCONT)
    assert mesh.wait_settled() == near
    mesh.wait_quiet()
    numbers = numbers_of(listener)
    assert numbers[:before] == list(range(before))
    assert len(set(numbers)) == len(numbers)
    assert numbers[-1] == stream.said - 1
    listeners = listen_everywhere(mesh)
    check_delivery(mesh, mesh.wait_settled(), listeners, 10)


def test_a_link_that_is_new_loses_nothing_and_doubles_nothing(weave: Weave) -> None:
    mesh = weave(*chain("abcd"), "a~d")
    mesh.proxies["a~d"].cut()
    mesh.start()
    listener = mesh.listen("d", "//fwd/numbers")
    mesh.wait_settled(but=["a~d"])
    with Stream(mesh, "a") as stream:
        stream.wait_flowing(listener)
        mesh.proxies["a~d"].heal()
        mesh.wait_settled()
        crossings = mesh.crossings()
        stream.wait_flowing(listener)
        assert mesh.crossings() > crossings
    mesh.wait_quiet()
    assert sorted(numbers_of(listener)) == list(range(stream.said))
    assert mesh.counted("duplicates") > 0, "there was nothing to be taken once"


def test_a_wire_that_swallows_is_noticed_and_another_path_used(weave: Weave) -> None:
    mesh = weave("a~b", "bc", "ca")
    mesh.start()
    listeners = listen_everywhere(mesh)
    watchers = {name: mesh.listen(name, "//pubsubd/events") for name in "ab"}
    near = mesh.wait_settled()
    check_delivery(mesh, near, listeners)

    mesh.proxies["a~b"].swallow()
    for name, watcher in watchers.items():
        wait_until(lambda one=watcher: b'"link-down"' in b"".join(one.data("")), "it is noticed")
        (down,) = (
            event
            for event in map(json.loads, watcher.data("//pubsubd/events"))
            if event["event"] == "link-down"
        )
        assert (down["node"], down["reason"]) == ("ba"["ab".index(name)], "link-timeout")
    check_delivery(mesh, mesh.wait_settled(but=["a~b"]), listeners)

    mesh.proxies["a~b"].heal()
    check_delivery(mesh, mesh.wait_settled(), listeners)


def test_a_partition_that_heals_is_whole_again(weave: Weave) -> None:
    mesh = weave("ab", "b~c", "cd", "d~a")
    mesh.start()
    listeners = listen_everywhere(mesh)
    check_delivery(mesh, mesh.wait_settled(), listeners)
    mesh.proxies["b~c"].cut()
    mesh.proxies["d~a"].swallow()
    check_delivery(mesh, mesh.wait_settled(but=mesh.proxies), listeners)
    # What is wanted has changed on both sides meanwhile.
    listeners["b"].say(b"unsub //fwd/chat/\nsub //fwd/chat/b\n")
    listeners["d"].say(b"unsub //fwd/chat/\n")
    for name in "bd":
        listeners[name].catch_up()
    for proxy in mesh.proxies.values():
        proxy.heal()
    mesh.wait_settled()
    assert all(listener.take() == [] for listener in listeners.values())
    mesh.publish("d", ("//chat/d", b""), ("//chat/b", b""))
    mesh.wait_quiet()
    assert {name: [where[-1] for where, _ in one.take()] for name, one in listeners.items()} == {
        "a": ["d", "b"],
        "b": ["b"],
        "c": ["d", "b"],
        "d": [],
    }


# Who is let in


def test_a_second_daemon_with_an_id_is_refused_until_the_first_has_gone(weave: Weave) -> None:
    mesh = weave(*chain("abc"))
    mesh.start()
    listeners = listen_everywhere(mesh)
    near = mesh.wait_settled()
    watcher = mesh.listen("c", "//pubsubd/events")
    twin = weave(nodes="a")
    twin.start("a", "--peer", "{}:{}".format(*mesh.addresses["c"]))
    wait_until(lambda: twin.refused("a").get("duplicate-node"), "the second one is told")
    assert twin.links("a") == []
    assert mesh.refused("c")["duplicate-node"] >= 1
    told = json.loads(watcher.take()[0][1])
    assert (told["event"], told["reason"]) == ("refused", "duplicate-node")
    assert mesh.wait_settled() == near
    check_delivery(mesh, near, listeners)

    mesh.kill("a")
    wait_until(lambda: twin.links("a") == ["c"], "the id is free")


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Flags for three secrets."""
    found = {}
    for name in ("one", "other"):
        path = tmp_path / name
        path.write_text(f"the {name} secret of all\n", encoding="ascii")
        found[name] = ("--mesh-secret-file", str(path))
    return found


@pytest.mark.parametrize("theirs", ["other", "", "reversed"])
def test_a_daemon_with_a_wrong_secret_or_none_is_refused_and_counted(
    weave: Weave, secrets: dict[str, tuple[str, str]], theirs: str
) -> None:
    mesh = weave("ba", "cb")
    flags: dict[str, tuple[str, ...]] = {"a": secrets["one"], "c": secrets["one"], "b": ()}
    if theirs == "other":
        flags["b"] = secrets["other"]
    elif theirs == "reversed":  # the one has none that the others have
        flags = {"a": (), "c": (), "b": secrets["one"]}
    for name in mesh.names:
        mesh.start([name], *flags[name])
    listener = mesh.listen("a", "//fwd/chat/")
    wait_until(lambda: mesh.refused("b").get("bad-secret", 0) >= 2, "b refuses or is refused")
    wait_until(lambda: mesh.refused("c").get("bad-secret"), "c refuses or is refused")
    mesh.publish("b", ("//chat/b", b""))
    assert listener.take() == []
    for name in mesh.names:
        told = mesh.describe(name)
        assert (told["links"], told["plain"]) == ([], [])
        assert [one["node"] for one in told["daemons"]] == [name]
    assert not any("the one secret of all" in daemon.log for daemon in mesh.daemons.values())


def greet(line: Line, first: bytes, theirs: bytes | None, ours: bytes | None) -> bytes:
    """Say hello as pubsubd-mesh(7) tells it, and return all that was said.

    Args:
        line: a connection.
        first: the hello.
        theirs: the daemon's secret.
        ours: the one that is used here.
    """
    said = frame("//pubsubd/hello", first)
    line.say(said)
    name, answer = line.hear_frame()
    assert name == "//pubsubd/hello", answer
    second, _, proof = answer.rpartition(b" ")
    assert proof == prove(theirs, "acceptor", first, second)
    last = frame("//pubsubd/hello", b"proof " + prove(ours, "dialler", first, second))
    line.say(last)
    return said + last


def test_a_program_that_follows_the_manual_is_let_in_and_its_words_are_of_no_use_to_others(
    weave: Weave, secrets: dict[str, tuple[str, str]]
) -> None:
    mesh = weave("a~b")
    mesh.start(None, *secrets["one"])
    near = mesh.wait_settled()
    line = mesh.dial("b")
    said = greet(line, hello("z"), b"the one secret of all", b"the one secret of all")
    assert line.hear_frame() == ("//pubsubd/hello", b"welcome")
    assert mesh.links("b") == ["a", "z"]
    line.close()
    wait_until(lambda: mesh.links("b") == ["a"], "it has left")

    for overheard in (said, mesh.proxies["a~b"].said[: len(said) + 20]):
        thief = mesh.dial("b")
        thief.say(overheard.partition(b"pub //pubsubd/heartbeat")[0])
        assert b" bad-secret " in thief.hear_end()
    wait_until(lambda: mesh.refused("b") == {"bad-secret": 2}, "both are counted")
    assert mesh.wait_settled() == near


@pytest.mark.parametrize("secret", [b"a wrong secret", None])
def test_a_program_that_does_not_know_the_secret_is_refused(
    weave: Weave, secrets: dict[str, tuple[str, str]], secret: bytes | None
) -> None:
    mesh = weave(nodes="a")
    mesh.start(None, *secrets["one"])
    watcher = mesh.listen("a", "//pubsubd/events")
    line, stranger = mesh.dial("a"), mesh.dial("a")
    labels = line.label, stranger.label
    greet(line, hello("z"), b"the one secret of all", secret)
    stranger.say(frame("//pubsubd/hello", hello("z", mesh="n")))
    for one, code in ((line, b"bad-secret"), (stranger, b"other-mesh")):
        where, error = one.hear_frame()
        assert (where, error.split()[0]) == ("//pubsubd/error", code)
        assert one.hear_end() == b""
    told = mesh.describe("a")
    assert told["counters"]["refused"] == {"bad-secret": 1, "other-mesh": 1}
    assert told["links"] == []
    events = [json.loads(data) for _, data in watcher.take()]
    assert {
        (event["peer"], event["reason"]) for event in events if event["event"] == "refused"
    } == {
        (labels[0], "bad-secret"),
        (labels[1], "other-mesh"),
    }


def test_an_advert_by_a_client_is_refused_and_nobody_is_dialled(weave: Weave) -> None:
    mesh = weave("ab")
    mesh.start(["a"])
    mesh.start(["b"], "--discover")
    near = mesh.wait_settled()
    watcher = mesh.listen("b", "//fwd/peers/", "//peers/")
    watcher.take()
    with socket.create_server((mesh.addresses["a"][0], 0)) as bait:
        advert = "{} {}\nnode 9999999999999 1 9999999999999".format(*bait.getsockname()).encode()
        names = ["//peers/m/z", "//fwd/peers/m/z", "//fwd/peers/m/b", "//peers/m/a"]
        for client in "ab":
            line = mesh.dial(client)
            for name in names:
                line.say(frame(name, advert))
                where, error = line.hear_frame()
                assert (where, error.split()[0]) == ("//pubsubd/error", b"forged-advert")
            assert line.ping() == b""
        # What only a daemon may say on a link is no command for a client either.
        line.say(frame("//pubsubd/relay", b"z@1 1 255 1\n" + frame("//fwd/peers/m/z", advert)))
        line.say(frame("//pubsubd/heartbeat", b"ping 1"))
        for _ in range(2):
            where, error = line.hear_frame()
            assert (where, error.split()[0]) == ("//pubsubd/error", b"unknown-request")
        mesh.wait_heartbeats(3)  # discovery acts every one and a half at least
        for name in "ab":
            assert mesh.refused(name) == {"forged-advert": len(names)}
            told = mesh.describe(name)
            assert [one["node"] for one in told["daemons"]] == ["a", "b"]
            assert (told["dialling"], told["plain"]) == ([], [])
        assert not any(b"9999999999999" in data for _, data in watcher.take())
        assert mesh.wait_settled() == near
        bait.setblocking(False)
        with pytest.raises(BlockingIOError):
            bait.accept()


def test_an_advert_by_a_client_is_a_hint_only_if_that_was_asked_for(weave: Weave) -> None:
    """The counterpart: what is dialled here is what is not dialled above."""
    mesh = weave(nodes="a", flags=("--discover=any",))
    mesh.start()
    with socket.create_server((mesh.addresses["a"][0], 0)) as bait:
        mesh.publish("a", ("//peers/m/z", "{} {}".format(*bait.getsockname()).encode()))
        bait.settimeout(DEADLINE)
        bait.accept()[0].close()


# Peers that know three commands


@pytest.mark.parametrize("greeting", [b"sub //fwd/chat/\n", b""], ids=["says sub", "is silent"])
def test_a_program_of_three_commands_is_a_peer(
    weave: Weave, answer: Callable[..., Program], greeting: bytes
) -> None:
    program = answer(greeting)
    mesh = weave("ab")
    mesh.start(["a"])
    mesh.start(["b"], "--peer", program.address)
    listeners = {name: mesh.listen(name, "//fwd/news/") for name in "ab"}
    wait_until(lambda: len(mesh.describe("b")["plain"]) == 1, "it is taken for what it is")
    mesh.wait_settled()
    program.wait_heard(b"sub //fwd/news/")
    program.say(b"sub //fwd/chat/\nsub //fwd/news/\n")
    wait_until(
        lambda: {("a", 1), ("b", 2)} == _interests(mesh),
        "both daemons know what it wants",
    )
    mesh.wait_settled()

    program.say(b"pub //fwd/news/1 3 one\npub //news/2 3 two\n")
    for listener in listeners.values():
        wait_until(lambda one=listener: len(one.data("//fwd/news/")) == 2, "its messages")
    for name in "ab":
        mesh.publish(name, (f"//chat/{name}", b"hi"), (f"//none/{name}", b""))
        program.wait_heard(b"pub //fwd/chat/%b 2 hi" % name.encode())
    mesh.publish("a", ("//news/3", b"three"))
    program.wait_heard(b"pub //fwd/news/3 5 three")
    mesh.wait_quiet()
    for listener in listeners.values():
        assert listener.take() == [
            ("//fwd/news/1", b"one"),
            ("//fwd/news/2", b"two"),
            ("//fwd/news/3", b"three"),
        ]
    pubs = [line for line in program.heard.split(b"\n") if line.startswith(b"pub //fwd/")]
    assert pubs == [
        b"pub //fwd/chat/a 2 hi",
        b"pub //fwd/chat/b 2 hi",
        b"pub //fwd/news/3 5 three",
    ]

    for name in "ba":
        listeners[name].say(b"unsub //fwd/news/\n")
        listeners[name].catch_up()
    program.wait_heard(b"unsub //fwd/news/")
    mesh.listen("a", "//fwd/later/")
    program.wait_heard(b"sub //fwd/later/")


def test_a_program_of_three_commands_that_is_back_is_asked_again(
    weave: Weave, answer: Callable[..., Program]
) -> None:
    program = answer(b"sub //fwd/chat/\n")
    mesh = weave(nodes="a")
    mesh.start("a", "--peer", program.address)
    listener = mesh.listen("a", "//fwd/news/")
    for round_ in range(1, 3):
        wait_until(lambda count=round_: program.connections == count, "it is dialled")
        program.wait_heard(b"sub //fwd/news/")
        program.say(b"pub //fwd/news/x 1 x\n")
        wait_until(lambda count=round_: len(listener.data("//fwd/news/")) == count, "a message")
        program.hang_up()
    assert "refused" not in str(listener.catch_up())


def test_a_client_of_three_commands_is_a_peer(weave: Weave) -> None:
    mesh = weave(*chain("abc"))
    mesh.start()
    program, listener = mesh.dial("a"), mesh.listen("c", "//fwd/news/")
    program.say(b"sub //fwd/chat/\n")
    program.ping()
    mesh.wait_settled()
    program.say(b"pub //fwd/news/1 3 one\npub //news/2 3 two\n")
    assert program.ping() == b""
    mesh.publish("c", ("//chat/c", b"hi"), ("//fwd/chat/d", b"hi"), ("chat", b"hi"))
    mesh.wait_quiet()
    assert program.ping() == b"pub //fwd/chat/c 2 hi\npub //fwd/chat/d 2 hi\n"
    assert listener.take() == [("//fwd/news/1", b"one"), ("//fwd/news/2", b"two")]
    program.say(b"unsub //fwd/chat/\n")
    program.ping()
    mesh.wait_settled()
    mesh.publish("c", ("//chat/c", b"hi"))
    mesh.wait_quiet()
    assert program.ping() == b""
