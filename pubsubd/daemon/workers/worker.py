"""One of several processes that are one daemon: it serves what the supervisor passes to it."""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from msgspec.json import encode

from pubsubd.broker.peer import Peer, discard
from pubsubd.broker.trace import TRACE
from pubsubd.daemon.check import check
from pubsubd.daemon.reloading import apply
from pubsubd.daemon.run import serve
from pubsubd.daemon.systemd import Notifier
from pubsubd.daemon.workers.channel import Channel
from pubsubd.daemon.workers.passage import Passage
from pubsubd.daemon.workers.relief import Relief
from pubsubd.hub.expiries import EXPIRIES, answer_expiries
from pubsubd.hub.listing import NAMES, RECORDS, answer_names, answer_records
from pubsubd.hub.sums import METRICS, STATISTICS, answer_metrics
from pubsubd.hub.synap import NAMED
from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.limits import TURN
from pubsubd.protocol.wire import frame, quote
from pubsubd.siblings.actors import Actors
from pubsubd.siblings.elsewhere import Elsewhere
from pubsubd.siblings.in_mesh import FirstActors, OtherActors
from pubsubd.siblings.live import install as show_whole
from pubsubd.siblings.live import install_mesh as show_mesh
from pubsubd.siblings.progress import Progress
from pubsubd.siblings.questions import telling_errors
from pubsubd.siblings.siblings import Siblings
from pubsubd.siblings.whole import Whole
from pubsubd.transport.accept import Listener, Reserve, refuse, serve_connection
from pubsubd.transport.connection import open_connection

if TYPE_CHECKING:
    from pubsubd.broker.requests import Request
    from pubsubd.broker.turn import Steps
    from pubsubd.daemon.reload import Prepared, Reloader
    from pubsubd.daemon.scraping import Scraping
    from pubsubd.daemon.status import Status
    from pubsubd.hub.port import Hub
    from pubsubd.mesh.dial import Mesher
    from pubsubd.settings.config import Config, MeshOptions
    from pubsubd.siblings.sibling import Sibling
    from pubsubd.transport.listen import BoundSocket
    from pubsubd.transport.server import Server

log = logging.getLogger("pubsubd")

_AT_ONCE = 16  # messages of the supervisor taken before others get their turn
_EVENT, _FAILURE, _HINT = b"event", b"login-failed", b"hint"
_METRICS, _MESH_TRACE = b"metrics", b"mesh-trace"
_OF_THE_MESH = (
    b"//pubsubd/peers",
    b"//pubsubd/weak",
    b"//pubsubd/edges",
    b"//pubsubd/advertised",
)
_NOBODY = Peer(0, "", discard)


async def run_worker(
    prepared: Prepared,
    all_bound: Sequence[BoundSocket],
    channel: Channel,
    number: int,
    mesh: MeshOptions | None,
    progress: Progress,
) -> None:
    """Serve until the supervisor says that it is enough, or is gone; then drain.

    Args:
        prepared: what holds.
        all_bound: the sockets that the supervisor listens on.
        channel: to the supervisor.
        number: of this worker, from 0.
        mesh: how the daemon takes part in a mesh, which is the first worker's to do.
        progress: what all workers share.
    """
    await serve(prepared, Worker(all_bound, channel, number, mesh, progress))


def own_config(config: Config, number: int) -> Config:
    """Return what holds for a worker: only the first one takes part in the mesh."""
    return config if number == 0 else replace(config, mesh=None)


class Worker:
    """The place of a worker; see :class:`pubsubd.daemon.run.Place`."""

    def __init__(
        self,
        all_bound: Sequence[BoundSocket],
        channel: Channel,
        number: int,
        mesh: MeshOptions | None,
        progress: Progress,
    ) -> None:
        self.all_bound = all_bound
        self.notifier = Notifier({})
        self._channel = channel
        self._number = number
        self._expected = float("inf")  # siblings to be linked
        self._links: Counter[int] = Counter()  # how many links to each sibling there were
        self._end, self._linked, self._changed = trio.Event(), trio.Event(), trio.Event()
        self._put_config, self._configs = trio.open_memory_channel[int](16)
        self._listeners: list[Listener] = []
        # Open connections, by the name of their listener: those that the supervisor was told of
        # (None: it has to be), those that it has passed since, and the number of the last of these.
        self._told: Counter[str] | None = None
        self._taken: Counter[str] = Counter()
        self._passed = 0
        self._server: Server | None = None
        self._siblings: Siblings | None = None
        self._whole: Whole | None = None
        self._bell = trio.Event()
        self._mesh = mesh
        self._progress = progress
        self._status: Status | None = None
        self._next = 0  # number of the next connection, if that was accepted
        self._numbers: deque[int] = deque()  # for those that were not

    # Parts

    def join(self, reloader: Reloader, scraping: Scraping | None) -> None:
        """Begin to be a sibling of the other workers."""
        server = self._server = reloader.server
        broker = server.broker
        siblings = Siblings(broker, self._number, server.clock, self._progress, self._wake)
        self._siblings = siblings
        siblings.on_introduced = self._note_introduced
        siblings.on_lost = self._report_lost
        relief = Relief(server)
        siblings.relieve, siblings.hold_up = relief.begin, relief.hold_up
        server.on_close = self._note_close
        server.on_read_out = siblings.say_out
        server.behind = siblings.behind
        server.on_event = lambda event: siblings.tell(_EVENT, json.dumps(event).encode())
        siblings.told[_EVENT] = self._hear_event
        self._view(siblings, server, scraping)
        broker.number = self._take_number
        if self._mesh is not None:
            self._join_mesh(self._mesh, reloader)
        if reloader.hub is not None:
            _join_hub(siblings, reloader.hub, reloader.mesher, in_mesh=self._mesh is not None)
        access = server.broker.access
        access.on_failure = lambda address, guess: siblings.tell(
            _FAILURE, b"%d %b" % (guess, address.encode())
        )
        siblings.told[_FAILURE] = self._hear_failure
        server.tasks.start("siblings", self._keep_siblings)
        server.tasks.start("answers", self._keep_answering)
        server.tasks.start("supervisor", self._listen)

    def _view(self, siblings: Siblings, server: Server, scraping: Scraping | None) -> None:
        """Let requests about the daemon be answered for all workers."""
        whole = self._whole = Whole(siblings, os.getppid())
        server.statistics = whole.tell
        show_whole(siblings, server.broker.live)
        if scraping is None:
            return

        def gather() -> Steps[dict[int, bytes]]:
            answers = yield from siblings.ask(_METRICS, b"")
            return siblings.progress.metrics.fill(answers.got, self._number)

        scraping.number, scraping.gather = self._number, gather
        scraping.kept = siblings.progress.metrics
        siblings.questions[_METRICS] = lambda _data: scraping.families()

    def _wake(self) -> None:
        self._bell.set()

    async def _keep_siblings(self) -> None:
        """Tell siblings what has changed, after the turn in which it has."""
        siblings = self._siblings
        assert siblings is not None
        while True:
            self._bell = trio.Event()
            more = siblings.act()
            if more:
                await trio.lowlevel.checkpoint()
                continue
            with trio.move_on_at(siblings.due):
                await self._bell.wait()
            siblings.expire()

    async def _keep_answering(self) -> None:
        """Answer the questions of siblings, a turn in each pass that has room for it."""
        siblings, server = self._siblings, self._server
        assert siblings is not None
        assert server is not None
        bell = trio.Event()

        def ring() -> None:
            bell.set()

        siblings.questions.woken = ring
        while True:
            await server.lane.wait(TURN)
            server.broker.delivery.turn.begin()
            with server.unpressed():
                more = siblings.questions.work()
            if not more:
                await bell.wait()
                bell = trio.Event()

    def _hear_event(self, _sibling: Sibling, data: bytes) -> Iterator[None] | None:
        assert self._server is not None
        self._server.put_out(json.loads(data))
        return None

    def _hear_failure(self, _sibling: Sibling, data: bytes) -> Iterator[None] | None:
        assert self._server is not None
        guess, _, address = data.partition(b" ")
        self._server.broker.access.note_failure(address.decode(), guess=guess == b"1")
        return None

    def _report_lost(self, number: int) -> None:
        """Ask for another link to a worker, if that lives; one of the two does so."""
        if number > self._number:
            self._channel.say("unlinked", number, self._links[number])

    def _note_introduced(self) -> None:
        siblings = self._siblings
        assert siblings is not None
        if self._links.total() >= self._expected and siblings.introduced:
            self._linked.set()

    # The supervisor

    async def _listen(self) -> None:
        """Do what the supervisor says."""
        channel = self._channel
        while not channel.lost:
            await trio.lowlevel.wait_readable(channel.sock)
            for _ in range(_AT_ONCE):
                found = channel.hear()
                if found is None:
                    break
                try:
                    self._obey(*found)
                except Exception as error:  # noqa: BLE001  (only what it was about ends)
                    self._give_up(error, *found)
        self._linked.set()
        self._end.set()

    def _give_up(self, error: Exception, words: list[Any], files: list[int]) -> None:
        """Let a message go that could not be obeyed, and what came with it."""
        assert self._server is not None
        self._server.broker.faults.note(error, "supervisor")
        for file in files:
            with suppress(OSError):
                os.close(file)
        if words[0] in ("connection", "link"):
            self._passed, self._told = words[1], None
            self._note_close()

    def _obey(self, words: list[Any], files: list[int]) -> None:
        what, *more = words
        if what == "connection":
            self._note_passed(*more[:2])
            self._take(socket.socket(fileno=files[0]), *more[1:])
        elif what == "sibling":
            self._link(socket.socket(fileno=files[0]), *more)
        elif what == "settings":
            self._put_config.send_nowait(files[0])
        elif what == "siblings":
            self._expected = more[0]
            self._note_introduced()
        elif what == "numbers":
            self._numbers += more[0]
        elif what == "link":
            self._note_passed(*more[:2])
            self._take_link(socket.socket(fileno=files[0]), *more[1:])
        elif what == "event":
            assert self._server is not None
            self._server.publish_quietly(*more)
        elif what == "alive":
            assert self._server is not None
            counters = self._server.broker.counters
            older = "" if self._status is None else self._status.older
            self._channel.say("alive", counters.messages_in, older)
        elif what == "end":
            self._end.set()

    def _note_passed(self, passed: int, which: int) -> None:
        """Take note of a connection that was passed, the ``passed``-th one."""
        self._passed = passed
        self._taken[self._listeners[which].state.name] += 1

    def _take(self, sock: socket.socket, which: int, number: int, refused: str) -> None:
        server = self._server
        assert server is not None
        listener = self._listeners[which]
        try:
            if refused:
                refuse(sock, server, listener, refused)
                return
            address = "" if sock.family == socket.AF_UNIX else sock.getpeername()
            self._next = number
            serve_connection(sock, address, listener, server)
        except OSError:  # it has gone already
            sock.close()
        except Exception as error:  # noqa: BLE001  (whatever it is, only that connection ends)
            server.broker.faults.note(error, "accept")
            sock.close()
        finally:
            self._note_close()

    def _take_number(self) -> int:
        """Return the number of a new connection: the supervisor's, so that it is no other's."""
        number, self._next = self._next, 0
        if not number and self._numbers:
            number = self._numbers.popleft()
            self._channel.say("number")
        return number

    # The mesh

    def _join_mesh(self, mesh: MeshOptions, reloader: Reloader) -> None:
        """Let the mesh be the first worker's, and pass what is for it to that one."""
        from pubsubd.mesh.adverts import AdvertError, parse_first_line  # noqa: PLC0415
        from pubsubd.mesh.core import claim_names  # noqa: PLC0415  (not without a mesh)
        from pubsubd.mesh.hello import HELLO  # noqa: PLC0415

        siblings, server, whole = self._siblings, reloader.server, self._whole
        assert siblings is not None
        assert whole is not None
        show_mesh(siblings, server.broker.live)
        if (mesher := reloader.mesher) is not None:

            def take_hint(_sibling: Sibling, data: bytes) -> None:
                if mesher.mesh.hint is not None:
                    mesher.mesh.hint(data)

            siblings.told[_HINT] = take_hint
            traces = mesher.mesh.traces
            traces.look = whole.look
            server.broker.requests[TRACE] = traces.request
            siblings.questions[_MESH_TRACE] = telling_errors(
                lambda data: traces.start(*whole.read_trace(data))
            )
            for name in _OF_THE_MESH:
                answer = partial(_answer, server.broker.requests[name])
                siblings.questions[name] = telling_errors(answer)
            return

        def refuse_name(name: bytes, data: bytes) -> None:
            if mesh.discover == "any" and b"/peers/" in name[: len(b"//fwd/peers/")]:
                line = data.split(b"\n", 1)[0]
                try:
                    parse_first_line(line)  # what the first worker cannot read ends the link to it
                except AdvertError as error:
                    raise ProtocolError("bad-request", str(error)) from None
                siblings.tell(_HINT, line)
                return
            server.broker.counters.errors["forged-advert"] += 1
            text = f"{quote(name)} is for the daemons of this mesh alone"
            raise ProtocolError("forged-advert", text)

        for name in _OF_THE_MESH:
            ask = partial(siblings.questions.ask_one, 0, name)
            server.broker.requests[name] = partial(_ask, ask)
        server.broker.requests[TRACE] = partial(whole.pass_trace, _MESH_TRACE)
        claim_names(server.broker, mesh.name, mesh.topics, refuse_name)
        server.broker.requests[HELLO] = partial(self._pass_link, server, HELLO)

    def _pass_link(self, server: Server, name: bytes, peer: Peer, data: bytes) -> None:
        """Pass a connection that says hello to the first worker, which answers."""
        if peer.link is not None or data.startswith(b"proof "):
            raise ProtocolError("bad-hello", "a proof without a hello")
        states = [listener.state for listener in self._listeners]
        if peer.listener not in states:
            raise ProtocolError("bad-hello", "not on this connection")
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        passage = Passage(peer)
        open_connection(server, ours, peer.label, passage.make)
        words = states.index(peer.listener), peer.number, peer.label, peer.identity
        with theirs:
            self._channel.say("link", *words, file=theirs)
        server.broker.peers.pop(peer.number, None)  # it is among those of the first worker
        peer.number = 0
        server.broker.access.trust(peer)
        peer.link = passage
        passage.receive(frame(name, data))

    def _take_link(
        self, sock: socket.socket, which: int, number: int, label: str, identity: str | None
    ) -> None:
        """Take a connection that has said hello at another worker."""
        server = self._server
        assert server is not None
        listener = self._listeners[which]
        sock.setblocking(False)
        self._next = number
        try:
            peer = open_connection(server, sock, label, listener.make)
            if identity is not None:
                server.broker.login(peer, identity)
        except Exception as error:  # noqa: BLE001  (only that connection ends)
            server.broker.faults.note(error, "accept")
            sock.close()
        self._note_close()

    # The siblings

    def _link(self, sock: socket.socket, number: int) -> None:
        server, siblings = self._server, self._siblings
        assert server is not None
        assert siblings is not None
        before = set(server.connections)
        sock.setblocking(False)
        open_connection(server, sock, "", partial(siblings.link, number))
        server.siblings |= server.connections - before
        self._links[number] += 1
        self._note_introduced()

    def _note_close(self) -> None:
        self._changed.set()

    async def _tell_closed(self) -> None:
        """Tell the supervisor how many connections are open, whenever some have ended."""
        while True:
            self._changed = trio.Event()
            states = {one.state for one in self._listeners}
            open_ = Counter({one.name: one.connections for one in states})
            if self._told is None or open_ != self._told + self._taken:
                self._channel.say("open", self._passed, open_)
                self._told = open_
                self._taken.clear()
            while self._channel.waiting:
                await trio.lowlevel.wait_writable(self._channel.sock)
                self._channel.send_more()
            await self._changed.wait()

    # The place

    async def accept(
        self,
        all_listeners: list[Listener],
        server: Server,
        _reserve: Reserve,
        listeners: trio.CancelScope,
        closed: trio.Event,
    ) -> None:
        """Serve what the supervisor accepts."""
        self._listeners = all_listeners
        with listeners:
            await server.tasks.keep("closed connections", self._tell_closed)
        for listener in all_listeners:
            listener.bound.listener.close()
        closed.set()

    async def reload(self, reloader: Reloader, status: Status) -> None:
        """Put settings into force that the supervisor has read."""
        self._status = status
        if self._number == 0:
            reloader.server.tasks.start("files of the settings", partial(status.watch, always=True))
        async for descriptor in self._configs:
            try:
                with open(descriptor, "rb") as file:  # noqa: ASYNC230  (it is in memory)
                    config: Config = pickle.load(file)
                config = own_config(config, self._number)
                prepared = await trio.to_thread.run_sync(
                    partial(check, config, self.all_bound), abandon_on_cancel=True
                )
                await apply(prepared, reloader)
                await status.look()
            except ConfigError as error:
                self._channel.say("failed", str(error))
            except Exception as error:  # noqa: BLE001  (the supervisor waits for an answer)
                place = reloader.server.broker.faults.note(error, "reload")
                self._channel.say("failed", f"a fault of the daemon's own, at {place}")
            else:
                self._channel.say("reloaded")

    async def begin(self) -> None:
        """Tell the supervisor that this worker serves, once it knows all others."""
        await self._linked.wait()
        self._channel.say("ready")

    async def wait_end(self, _server: Server) -> None:
        """Wait until the supervisor says that it is enough, or is gone."""
        await self._end.wait()

    async def wait_abort(self) -> None:
        """Wait for ever: the supervisor ends who is not to wait."""
        await trio.sleep_forever()

    def finish(self) -> None:
        """Say nothing: the supervisor sees it."""
        log.debug("event=worker-ended pid=%d", os.getpid())


def _join_hub(siblings: Siblings, hub: Hub, mesher: Mesher | None, *, in_mesh: bool) -> None:
    """Let the hub ports of all workers be one, and part of that of the mesh."""
    hub.settle = siblings.settle
    counts = hub.counts
    if in_mesh:
        counts["connections"] = lambda: len(hub.connections)
    elsewhere = hub.policy.elsewhere = Elsewhere(siblings, counts)
    far = None
    if not in_mesh:
        actors = Actors(siblings, time.time)
    elif mesher is None:
        actors = OtherActors(siblings, time.time)
    else:
        mesh = mesher.mesh
        far = mesh.letters, mesh.streams
        actors = first = FirstActors(siblings, time.time, mesh.directory)
        first.connections_elsewhere = lambda: elsewhere.count("connections")
    hub.join(actors, near=(actors.letters, actors.streams), far=far)

    def ask(name: bytes, data: bytes) -> Steps[list[bytes]]:
        return list((yield from siblings.ask(name, data)).got.values())

    hub.elsewhere = ask
    siblings.questions |= {
        NAMES: partial(answer_names, hub),
        RECORDS: partial(answer_records, hub),
        METRICS: partial(answer_metrics, hub),
        STATISTICS: lambda _data: encode(hub.synap.count()),
        NAMED: hub.synap.elsewhere.answer,
        EXPIRIES: partial(answer_expiries, hub),
    }


def _answer(request: Request, data: bytes) -> bytes | Steps[bytes]:
    """Answer a request that does not depend on who makes it."""
    found = request(_NOBODY, data)
    return b"" if found is None else found


def _ask(ask: Callable[[bytes], Steps[bytes]], _peer: Peer, data: bytes) -> Steps[bytes]:
    return ask(data)
