"""The mesh, simulated: what must hold on any graph, and that the simulation would notice."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from pubsubd.cli.mesh_sim import command
from pubsubd.mesh.forwarding import Forwarding
from pubsubd.mesh.graphs import Graph, line, read_graph, regular, ring, small_world, tree
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.link import Link
from pubsubd.mesh.linkstate import Table
from pubsubd.mesh.sim import Action, Player, Results, ScriptError, Simulation, parse_script
from pubsubd.mesh.window import Window

TRAFFIC = """
    at 0 subscribe 20% //fwd/x/
    at 0 subscribe any //fwd/x/y
    at 3 publish any //x/y 400 0.05
    at 3 publish any //fwd/x/z 100 0.2
"""

GRAPHS: dict[str, Graph] = {
    "two": line(2),
    "line": line(6),
    "ring": ring(5),
    "chords": [*ring(5), ("n1", "n3"), ("n4", "n2"), ("m1", "n1"), ("n3", "m1"), ("m2", "m1")],
    "tree": tree(10),
    "regular": regular(20, 4, random.Random(1)),
    "complete": regular(8, 7, random.Random(1)),
    "small world": small_world(20, random.Random(1)),
    "each dials the other": [(a, b) for one, two in ring(5) for a, b in ((one, two), (two, one))],
    "all dial themselves": ring(5) + [(f"n{i}", f"n{i}") for i in range(1, 6)],
    "two parts": [*ring(4), ("m1", "m2"), ("m2", "m3")],
}


def simulate(graph: Graph, script: str = TRAFFIC, until: float = 30.0, **more) -> Simulation:
    simulation = Simulation(graph, **more)
    Player(simulation).play(parse_script(script))
    simulation.run_until(until)
    return simulation


def check(results: Results) -> None:
    """Check what must hold whatever happens, and that stable messages were among it."""
    assert results.stable.messages > 50
    assert results.stable.due > 50
    assert results.stable.lost == results.stable.overtaken == 0
    assert results.stable.duplicates == results.unstable.duplicates == 0
    assert results.stable.crossings == results.stable.least
    assert results.relapses == 0
    assert results.counters["broken"] == results.counters["dropped"] == 0
    assert results.changes[-1].took is not None


# What must hold on any graph


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_on_any_graph_messages_come_once_and_cross_no_more_links_than_needed(
    graph: Graph, warm: bool
) -> None:
    results = simulate(graph, warm=warm).results()
    check(results)
    assert [change.at for change in results.changes] == [0]
    assert results.unstable.messages < 50  # those of the last second


@pytest.mark.parametrize(
    "script",
    [
        "at 8 kill n5\n at 18 start n5",
        "at 8 vanish n5\n at 18 start n5",
        "at 8 vanish n5\n at 8.5 start n5",
        "at 8 kill n5\n at 8 start n5",
        "at 8 cut n1 n2\n at 18 heal n1 n2",
        "at 8 swallow n1 n2\n at 18 heal n1 n2",
        "at 8 swallow n1 n2\n at 9 heal n1 n2",
        "at 8 swallow n1 n2\n at 8 swallow n3 n4\n at 18 heal n1 n2\n at 18 heal n3 n4",
        "at 8 cut n1 n2\n at 8 cut n1 n5",
        "at 8 kill all\n at 12 start all",
        "at 0 skew n5 -7200\n at 8 kill n5\n at 12 start n5",
        "at 0 skew n5 7200\n at 8 kill n5\n at 9 skew n5 0\n at 9 start n5",
        "at 0 skew n1 1e6\n at 0 skew n2 -1e6",
    ],
)
@pytest.mark.parametrize("name", ["ring", "chords", "each dials the other"])
def test_failures_cost_nothing_that_is_published_after_them(name: str, script: str) -> None:
    script = f"{TRAFFIC} {script}\n at 50 publish any //x/y 100 0.05"
    simulation = simulate(GRAPHS[name], script, until=60.0)
    check(simulation.results())
    assert simulation.converged


@pytest.mark.parametrize("verb", ["kill-random", "vanish-random"])
def test_a_tenth_may_fail_at_once(verb: str) -> None:
    script = f"{TRAFFIC} at 10 {verb} 10%"
    results = simulate(GRAPHS["regular"], script).results()
    check(results)
    assert results.living == 18
    took = results.changes[-1].took
    assert took is not None
    assert took < (1 if verb == "kill-random" else 5)


def test_a_link_that_swallows_bytes_is_noticed_within_three_heartbeats() -> None:
    for seed in range(10):
        script = "at 0 subscribe n3 //fwd/x/\n at 4 swallow n2 n3\n at 7.2 publish n1 //x/y 50 0.05"
        simulation = simulate(ring(5), script, until=12, seed=seed)
        results = simulation.results()
        assert results.changes[-1].took is not None
        assert results.changes[-1].took < 3.1
        assert all(len(message.got) == 1 for message in simulation.mail.messages)
        assert results.unstable.duplicates == 0


def test_delivery_goes_on_by_another_path_while_the_table_changes() -> None:
    script = "at 0 subscribe n3 //fwd/x/\n at 4 cut n2 n3\n at 4.03 publish n2 //x/y 100 0.01"
    simulation = simulate(ring(5), script, until=8)
    assert all(len(message.got) == 1 for message in simulation.mail.messages)


def test_interest_that_is_withdrawn_stops_the_traffic() -> None:
    script = """
        at 0 subscribe all //fwd/x/
        at 2 publish any //x/y 100 0.01
        at 5 unsubscribe all //fwd/x/
        at 6 publish any //x/y 100 0.01
    """
    simulation = simulate(ring(5), script, until=10)
    assert all(message.crossings == 4 for message in simulation.mail.messages[:100])
    assert all(message.crossings == 0 for message in simulation.mail.messages[100:])


def test_local_names_stay_where_they_are() -> None:
    script = "at 0 subscribe all x\n at 2 publish n1 x/y 9\n at 2 publish n1 //x/y 9"
    simulation = simulate(ring(5), script, until=10)
    assert [len(message.got) for message in simulation.mail.messages] == [1] * 18
    assert not simulation.results().link_messages


# The simulation


def test_every_table_is_the_graph_once_it_has_converged() -> None:
    graph = GRAPHS["regular"]
    for warm in (False, True):
        simulation = Simulation(graph, warm=warm)
        assert simulation.run_until_converged(20)
        for daemon in simulation.daemons.values():
            links = {
                frozenset((node, other))
                for node, near in daemon.mesh.table.graph.items()
                for other in near
            }
            assert links == set(map(frozenset, graph))
            assert len(daemon.mesh.links) == 4


def test_the_same_seed_is_the_same_story() -> None:
    script = f"{TRAFFIC} at 5 kill-random 20%\n at 10 start all"
    one, two, other = (
        simulate(GRAPHS["chords"], script, until=15, seed=seed).results() for seed in (5, 5, 6)
    )
    assert one == two
    assert one != other


def test_a_mesh_that_forgets_what_it_has_taken_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Window, "take", lambda _self, _number: True)
    script = "at 0 subscribe n3 //fwd/x/\n at 0.3 publish n1 //x/y"
    assert simulate(ring(5), script, until=2).results().unstable.duplicates > 0


def test_a_mesh_that_does_not_pass_on_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Table, "subtree", lambda *_: {})
    results = simulate(ring(5)).results()
    assert results.stable.lost > 0
    assert results.stable.crossings < results.stable.least


def test_a_mesh_that_sends_everything_everywhere_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def go_everywhere(self: Forwarding, _origin: str, _group: object, arrival: Link | None):
        return [link for link in self.state.links.values() if link is not arrival]

    monkeypatch.setattr(Forwarding, "find_next_hops", go_everywhere)
    results = simulate(ring(5)).results()
    assert results.stable.excess > 1.05
    assert results.stable.lost == results.stable.duplicates == 0


def test_tables_that_never_agree_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Table.put

    def forget(self: Table, advert) -> None:
        if self.me != "n3" or advert.node != "n1":
            put(self, advert)

    monkeypatch.setattr(Table, "put", forget)
    simulation = Simulation(ring(5))
    assert not simulation.run_until_converged(30)
    assert simulation.results().changes[0].took is None


def test_what_is_lost_with_a_daemon_is_nobodys_loss() -> None:
    script = "at 0 subscribe n3 //fwd/x/\n at 3 publish n1 //x/y\n at 3.001 kill n3"
    results = simulate(ring(5), script, until=10).results()
    assert results.unstable.due == 1
    assert results.unstable.lost == results.stable.messages == 0


def test_edges_are_the_graph_again(tmp_path: Path) -> None:
    simulation = simulate(GRAPHS["two parts"], "", until=5)
    path = tmp_path / "edges"
    path.write_text("".join(json.dumps(row) + "\n" for row in simulation.edges()))
    assert read_graph(path) == sorted(GRAPHS["two parts"])
    assert len(simulation.edges()) == 2 * len(GRAPHS["two parts"])  # each end tells of it


# Scripts


def test_a_script_is_a_list_of_actions_in_order() -> None:
    script = """
        # a comment
        at 20 start n5
        at 10.5 kill n5   # and another
        at 20 publish n3 //x/y 100 0.05
    """
    assert parse_script(script) == [
        Action(10.5, "kill", ("n5",)),
        Action(20, "start", ("n5",)),
        Action(20, "publish", ("n3", "//x/y", "100", "0.05")),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("kill n5", "line 1: it is not: at <seconds>"),
        ("\nat x kill n5", 'line 2: "x" is not a number of seconds'),
        ("at -1 kill n5", "not a number of seconds"),
        ("at nan kill n5", "not a number of seconds"),
        ("at 1 hit n5", '"hit" is none of: kill, vanish'),
        ("at 1 kill", "kill takes 1 arguments, not 0"),
        ("at 1 cut a", "cut takes 2 arguments, not 1"),
        ("at 1 publish a", "publish takes 2 to 4 arguments, not 1"),
        ("at 1 kill-random 10", '"10" is not a share like 10%'),
        ("at 1 kill-random 110%", "not a share"),
        ("at 1 publish a b x", "not how often"),
        ("at 1 skew a b", "not a number"),
        ("at 1 subscribe a " + "b" * 2_000, "the name has 2000 bytes"),
    ],
)
def test_a_line_that_is_no_action_is_told_with_its_number(text: str, reason: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(text)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("at 1 kill n9", "there is no daemon n9"),
        ("at 1 cut n1 n3", "there is no link of n1 and n3"),
        ("at 1 kill n1\n at 2 kill n1", "at 2 kill n1: n1 is dead already"),
        ("at 1 start n1", "at 1 start n1: n1 is running already"),
        ("at 1 unsubscribe n1 x", "n1 does not subscribe x"),
    ],
)
def test_an_action_that_cannot_be_done_is_told(text: str, reason: str) -> None:
    with pytest.raises(ScriptError) as caught:
        simulate(ring(5), text)
    assert reason in str(caught.value)


# The command


def test_the_command_prints_a_report(tmp_path: Path) -> None:
    script, edges = tmp_path / "script", tmp_path / "edges"
    script.write_text(f"{TRAFFIC} at 10 swallow n1 n2")
    arguments = ["--ring", "5", "--script", str(script), "--edges", str(edges)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0
    assert "5 daemons with 5 links; 5 daemons are alive at the end\n20 s simu" in done.output
    assert "swallow n1 n2" in done.output
    assert len(read_graph(edges)) == 4


def test_the_command_prints_json() -> None:
    done = CliRunner().invoke(command, ["--regular", "12", "--degree", "3", "--json"])
    found = json.loads(done.output)
    assert (found["daemons"], found["links"], found["living"]) == (12, 18, 12)
    assert found["stable"]["lost"] == 0
    assert found["stable"]["excess"] == 1
    assert [change["at"] for change in found["changes"]] == [0, 15, 25]
    assert {"nodes", "messages", "least"} == set(found["link_messages"][0])


def test_the_command_takes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    path.write_text("a b\nb c\n")
    done = CliRunner().invoke(command, [str(path), "--duration", "10", "--latency", "0.2"])
    assert "3 daemons with 2 links" in done.output


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--ring", "5", "--line", "5"],
        ["--ring", "2"],
        ["none"],
        ["--ring", "5", "--latency=-1"],
    ],
)
def test_the_command_needs_one_graph_and_sound_values(arguments: list[str]) -> None:
    assert CliRunner().invoke(command, arguments).exit_code == 2


def test_the_command_tells_which_line_of_a_script_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text("at 1 kill n5\nat 2 hit n5\n")
    done = CliRunner().invoke(command, ["--ring", "5", "--script", str(path)])
    assert done.exit_code == 1
    assert 'script, line 2: "hit" is none of' in done.output


def test_actors_are_known_everywhere_while_daemons_fail_and_come_back() -> None:
    sim = Simulation(ring(7), seed=5, hubs=True)
    script = (
        "at 1 actors 60 20\nat 4 kill-random 20%\nat 8 cut n1 n2\nat 11 start all\nat 11 heal n1 n2"
    )
    Player(sim).play(parse_script(script))
    sim.run_until(45)
    actors = sim.results().actors
    assert actors is not None
    assert actors.actors > 40
    assert actors.changes > 300
    assert actors.looked_up > 100
    assert (actors.not_found, actors.missing, actors.ghosts) == (0, 0, 0)


def test_a_daemon_that_comes_back_knows_all_actors_although_links_are_still_missing() -> None:
    sim = Simulation(ring(7), seed=5, hubs=True)
    Player(sim).play(parse_script("at 1 actors 200 40\nat 6 kill n5\nat 20 start n5"))
    sim.run_until(60)
    start = sim.results().changes[-1]
    assert start.what == "start n5"
    assert start.took is not None  # who dials it has waited for longer and longer
    assert start.actors_known is not None
    assert start.actors_known < 1 < start.took


def test_a_daemon_that_comes_back_and_is_told_nothing_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sim = Simulation(ring(5), seed=3, hubs=True)
    Player(sim).play(parse_script("at 1 actors 50 5\nat 6 kill n5\nat 20 start n5"))
    sim.run_until(19)
    monkeypatch.setattr(Letters, "reaches", lambda *_: False)
    sim.run_until(60)
    start = sim.results().changes[-1]
    assert start.took is not None
    assert start.actors_known is None


def test_without_actors_there_are_no_letters() -> None:
    sim = Simulation(ring(5))
    sim.run_until(5)
    assert sim.results().actors is None
    assert all(one.mesh.letters.sent == 0 for one in sim.daemons.values())


def test_a_script_says_how_many_actors() -> None:
    assert parse_script("at 1 actors 10 2.5")[0].args == ("10", "2.5")
    for line_ in ("at 1 actors", "at 1 actors x", "at 1 actors 1 x", "at 1 actors 1 2 3"):
        with pytest.raises(ScriptError):
            parse_script(line_)
