"""What one fault at a daemon leaves behind in a mesh: nothing, once all have dialled again.

A profile function raises at the call; what it is told of comes in the same order in each run.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsubd.mesh.sim.daemon import End
from pubsubd.routing.outbox import Pieces
from tests.webs import Node, Web, build

PACKAGES = ("pubsubd.mesh.", "pubsubd.routing.", "pubsubd.broker.")
SIMULATED = "pubsubd.mesh.sim."
EDGES = ("ab", "bc", "cd")


class PlannedError(Exception):
    """What nobody expects."""


class Faulty(Web):
    """A mesh whose daemons meet faults as the transport and the tasks of a daemon do.

    A fault ends the connection whose input has led to it. What a task does is done again later.

    Attributes:
        count: calls of functions of the daemons so far, while it lives.
        failed: the function that was called at the ``failing``-th.
    """

    def __init__(self, failing: int) -> None:
        super().__init__()
        self.count = 0
        self.failed = ""
        self._failing = failing

    def schedule(self, at: float, call: Callable[..., None], *args: Any) -> None:
        super().schedule(at, self._call, call, *args)

    def _call(self, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except PlannedError:
            owner = getattr(call, "__self__", None)
            if isinstance(owner, End):
                self._end(owner)
            elif isinstance(owner, Node):
                self.schedule(self.now + 1.0, owner.mesh.act)

    def _end(self, end: End) -> None:
        peer, broker = end.peer, end.daemon.broker
        end.daemon.broker.faults.end(peer, RuntimeError())
        for step in broker.leaving(peer):
            for _ in range(2):
                with contextlib.suppress(Exception):
                    for _ in step():
                        pass
                    break
        broker.repair(peer)
        end.close()
        end.hang_up()

    def live(self) -> None:
        """Let interests and links come and go."""
        sys.setprofile(self._profile)
        try:
            for node in "abc":
                self.say(node, b"sub //fwd/early/\n")
            self.run(0.3)
            self.say("a", b"pub //early/a 1 x\n")
            self.relink()
            self.run(0.5)
            self.say("d", b"sub //fwd/late/\n")
            self.run(0.3)
            self.say("b", b"pub //late/b 1 x\n")
            for link in self["b"].connections:
                for end in link.ends if self["c"] in link.nodes else ():
                    self.schedule(self.now, end.close)
            self.run(0.5)
            self.say("a", b"unsub //fwd/early/\n")
            self.run(0.5)
        finally:
            sys.setprofile(None)

    def say(self, node: str, data: bytes) -> None:
        """Let the client of a daemon say something; after a fault it comes again."""
        with contextlib.suppress(PlannedError):
            self[node].say("client", data)
            return
        broker, peer = self[node].broker, self[node].client("client")
        with contextlib.suppress(Exception):
            self[node].leave("client")
        broker.repair(peer)

    def relink(self) -> None:
        """Let daemons dial who are not linked."""
        for edge in EDGES:
            with contextlib.suppress(PlannedError):
                if edge[1] not in self[edge[0]].mesh.links:
                    self.link(edge)

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if event != "call" or not module.startswith(PACKAGES) or name == "<genexpr>":
            return
        if not module.startswith(SIMULATED):
            self.count += 1
            if self.count == self._failing:
                self.failed = f"{module}.{frame.f_code.co_qualname}"
                raise PlannedError(self.failed)


def fail(at: int) -> tuple[Faulty, dict[str, object]]:
    """Let a mesh live, with a fault at the ``at``-th call; return what is not healed then."""
    web = Faulty(at)
    web.add(*"abcd")
    web.link("ab", "bc")
    web.run()
    web.live()
    for _ in range(3):
        web.relink()
        web.run(2.0)
    for node in web.nodes:
        web[node].say("hearer", b"sub //fwd/heal/\n")
    web.run(2.0)
    for node in web.nodes:
        web[node].say("speaker", b"pub //heal/%b 1 x\n" % node.encode())
    web.run(2.0)
    wrong: dict[str, object] = {}
    for node in web.nodes:
        heard = sorted(name for name, _ in web[node].hears("hearer"))
        if heard != [b"//fwd/heal/%b" % one.encode() for one in sorted(web.nodes)]:
            wrong[node] = heard
        mesh, broker = web[node].mesh, web[node].broker
        if len(mesh.links) != sum(node in edge for edge in EDGES):
            wrong[f"links of {node}"] = list(mesh.links)
        for other, remote in mesh.remotes.items():
            if remote.substrings != set(web[other].mesh.table.adverts[other].interests):
                wrong[f"{other} at {node}"] = remote.substrings
        remote_count = sum(len(one.substrings) for one in mesh.remotes.values())
        own = sum(len(peer.substrings) for peer in broker.peers.values())
        if broker.router.subscriptions != remote_count + own:
            wrong[f"subscriptions of {node}"] = broker.router.subscriptions
    return web, wrong


CALLS = 4_100  # some more than there are


# A fault where a generator that nobody has any more is closed goes nowhere.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@given(st.integers(1, CALLS))
def test_a_mesh_heals_from_a_fault_at_any_call(at: int) -> None:
    web, wrong = fail(at)
    assert wrong == {}, web.failed


def test_a_fault_where_messages_are_put_together_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    web = build(["ab"])
    web["b"].say("sub", b"sub //fwd/x\nsub //fwd/y\n")
    web.run()

    def fail_once(*_: object) -> object:
        patch.undo()
        raise PlannedError

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "__init__", fail_once)
        web["a"].say("pub", b"pub //x 1 1\npub //y 1 2\npub //x 1 3\n")
    web.run()
    heard = web["b"].hears("sub")
    assert heard == [(b"//fwd/x", b"1"), (b"//fwd/y", b"2"), (b"//fwd/x", b"3")]
    assert sum(web["a"].broker.faults.counts.values()) == 1
