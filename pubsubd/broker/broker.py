"""Commands in, without I/O; what they lead to goes out by :mod:`pubsubd.broker.delivery`.

Being synchronous buys this: nothing else runs between the first and the last
command of a read, so each read is atomic, no lock is needed, and what a read
leads to reaches each receiver as one piece.

Strategy: never do per message what can be done per run. A *run* is a stretch of
one read whose frames all go to the same peers; it is cut out of the read once,
and that one bytes object is put to each of them. Whether the next frame belongs
to the run is told by its header, compared or looked up as raw bytes together
with the LF before it, which so is proved to be there. What has not been seen
before leaves the hot loop for :class:`~pubsubd.broker.commands.Commands`.

Invariants:

- ``peer.parts`` joined is what came and is not worked off: always an LF, the
  one before the first command that is not complete, and what follows it.
- The outcome does not depend on how the input is cut into reads.
- In the hot loop, ``total - begun`` frames from ``start`` to ``at`` are not put: that is 0 before
  they are, so that whatever is raised, each frame is put once.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from typing import NoReturn

from pubsubd.broker import alone
from pubsubd.broker.auth import Authentication
from pubsubd.broker.commands import CR, LF, Commands, wrong_length
from pubsubd.broker.connections import Connections
from pubsubd.broker.delivery import AUTH, NO_ROUTE, Delivery
from pubsubd.broker.events import Events
from pubsubd.broker.explain import explain
from pubsubd.broker.large import LargeFrames
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.live.event_rows import EventRows
from pubsubd.broker.live.names import NameRows
from pubsubd.broker.live.observers import LIVE, STOP, Live
from pubsubd.broker.live.sections import (
    NO_MESH,
    PEERS,
    ConnectionRows,
    NoMesh,
    Totals,
)
from pubsubd.broker.logins import Access
from pubsubd.broker.peer import Peer, stay
from pubsubd.broker.requests import HELP, Requests
from pubsubd.broker.rows import deal
from pubsubd.broker.statistics import Statistics, take_statistics
from pubsubd.broker.trace import TRACE, read_request, trace_here
from pubsubd.broker.traffic import Traffic
from pubsubd.broker.turn import Shared, Steps
from pubsubd.protocol import wire
from pubsubd.protocol.errors import GOODBYE, ProtocolError
from pubsubd.protocol.limits import (
    LARGE,
    MAX_DIGITS,
    MAX_LINE,
    WORK_PER_LOOK,
    WORK_PER_TURN,
    Limits,
)
from pubsubd.protocol.telnet import STARTS, strip_telnet
from pubsubd.protocol.wire import equal_headers
from pubsubd.routing.lookups import Unfinished
from pubsubd.routing.outbox import Pieces
from pubsubd.routing.scanner import SCAN_FROM, find_scanner
from pubsubd.routing.targets import CopyTargets, Denied, Route, Targets

_STEP = 16  # work (see limits.WORK_PER_TURN) of a new header or an uncommon command
_PROBE = 8  # frames ahead; an equal header there promises a long run of equal ones
_STRIDE = 64  # frames looked up one by one before equal headers are hoped for again
_FAR = 1_024  # the most of them, when it has been in vain so far
_SCANNED = 4  # work of a name that the scanner matches
_FRESH = 32  # new names in a row, after which the next ones are thought to be new, too
_COLUMNS = 64  # bytes of headers that are compared by columns in one step of work
_SURE = 8_192  # known frames that take no longer than a turn, even if others had the processor
_STRETCH = 32_768  # bytes of headers of several widths, after which the clock is looked at
_ANY_SIZE = 10**10  # bytes: more than MAX_DIGITS can say
_DIGITS = MAX_DIGITS + 2  # and the spaces around them
_LUCK = 4  # headers that may not have the width of the one before the last one
_CUTS = 16  # ends of runs, after which it is asked whether these are short
_SHORT = 6  # frames of such runs, on average
_WORTH = 64  # frames: fewer take longer when they are dealt out at once
_PARTS = 512  # pieces of one unfinished command before they are joined


class Broker:
    """The peers, their subscriptions, and what happens when one of them speaks.

    Attributes:
        delivery: queues what it leads to for the receivers, and sends it.
        router, counters, faults: the delivery's own.
        listener: of peers that come by no listener, such as those that were dialled.
        access: who may come in, and what they may do then.
        peers: number -> peer, of all that are connected, oldest first.
        traffic: how fast they carry messages.
        connections: what is told of them.
        events: the last of them.
        live: who looks at what goes on, and ``totals``, one of the things to look at.
        number: returns that of the next peer; 0 for how many there have been.
        requests: name under ``//pubsubd/`` -> what a ``pub`` to it does.
        scan: the compiled scanner; None to do without it.
        scan_from: bytes of a read from which on it is used.
        reserved: what names begin with that nobody but the daemon may publish, besides its own.
        match_header: :data:`pubsubd.protocol.wire.match_header`, for names that are not reserved.
        match_relayed: the same, for what comes from other daemons.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.delivery = Delivery(clock)
        self.router, self.counters = self.delivery.router, self.delivery.counters
        self.faults = self.delivery.faults
        self._clock = clock
        self.listener = ListenerState("", limits)
        self.peers: dict[int, Peer] = {}
        self.access = Access(self.peers, self.router, clock)
        self.traffic = Traffic(self.peers, clock)
        self.wall = time.time
        statistics = Shared(self._describe, clock)
        self.connections = Connections(
            self.peers,
            self.access,
            self.traffic,
            self.faults,
            clock,
            lambda: self.wall(),  # noqa: PLW0108  (which a test may replace)
        )
        self.events = Events(lambda: self.wall())  # noqa: PLW0108
        self.totals = Totals(
            self.counters,
            self.router,
            self.peers,
            clock,
            lambda: self.wall(),  # noqa: PLW0108
        )
        names = NameRows(self.delivery, self.counters, clock)
        self.live = Live(
            self.delivery,
            self.peers,
            {
                "totals": self.totals,
                "connections": ConnectionRows(self.connections, self.peers),
                "names": names,
                "events": EventRows(self.events, self.connections),
                "mesh": NoMesh(),
            },
            self._about,
            clock,
            lambda: self.wall(),  # noqa: PLW0108
        )
        self.live.spent = names.spent
        self.requests = Requests(self.delivery, clock)
        self.requests |= {
            AUTH: Authentication(self.delivery, self.access, lambda: self.wall()).request,  # noqa: PLW0108
            b"//pubsubd/ping": lambda _peer, data: data,
            wire.HELP: lambda _peer, _data: HELP,
            b"//pubsubd/stats": lambda _peer, _data: statistics.get(),
            b"//pubsubd/explain": lambda _peer, data: self._explain(data),
            TRACE: self._trace,
            b"//pubsubd/connections": self.connections.show,
            b"//pubsubd/kill": self.connections.kill,
            b"//pubsubd/weak": _tell_no_mesh,
            b"//pubsubd/advertised": _tell_no_mesh,
            LIVE: self.live.request,
            STOP: self.live.stop,
            PEERS: _tell_no_mesh,
            b"//pubsubd/edges": _tell_no_mesh,
        }
        self._commands = Commands(self.delivery, self.requests, lambda: self.listener.limits)
        self.number: Callable[[], int] = lambda: 0
        self._started = clock()
        self._looks = 0  # at the clock, that the present turn may still take
        self._sizes = wire.Sizes()
        self._large = LargeFrames(
            self.delivery,
            lambda text: self.match_header(text),  # noqa: PLW0108  (which is replaced)
        )
        self.scan = find_scanner()
        self.scan_from = SCAN_FROM
        self.reserved: tuple[bytes, ...] = ()
        self.match_header = self.match_relayed = wire.match_header

    # Peers

    def reserve(
        self,
        prefixes: tuple[bytes, ...],
        refuse: Callable[[bytes, bytes], None],
        daemons: tuple[bytes, ...] = (),
    ) -> None:
        """Let nobody publish names that begin with any of ``prefixes``, which begin with a slash.

        ``refuse`` is called with the name and the data; it may raise ProtocolError. Other daemons
        may publish names that begin with any of ``daemons``, and nobody else may.
        """
        self._commands.reserve(prefixes, refuse, daemons)
        self.reserved = self._commands.reserved
        self.match_header = wire.header_matcher((wire.OWN, *prefixes, *daemons))
        self.match_relayed = wire.header_matcher((wire.OWN, *prefixes))

    def join(
        self,
        label: str,
        send: Callable[[bytes | Pieces], None],
        end: Callable[[str, str], None] = stay,
        listener: ListenerState | None = None,
    ) -> Peer:
        """Return a new peer.

        Args:
            label: what it is called in logs.
            send: takes whole frames for it, never waiting.
            end: closes its connection, for a code and a text.
            listener: what holds for it; None for the daemon's own.
        """
        total = self.counters.connections_total + 1
        number = self.number() or total
        peer = self.peers[number] = Peer(
            number, label, send, end, listener or self.listener, self._clock()
        )
        self.counters.connections_total = total  # not before it is there, see abandon()
        self.access.meet(peer)
        return peer

    def abandon(self, before: int) -> None:
        """Forget the peers that have joined since there had been ``before`` in all."""
        for _ in range(self.counters.connections_total - before):
            self.peers.popitem()

    def login(self, peer: Peer, identity: str) -> None:
        """Let ``peer`` be who its connection says: a user of this machine, or a certificate's."""
        self.access.enter(peer, identity)

    def leaving(self, peer: Peer) -> tuple[Callable[[], Iterable[None]], ...]:
        """Return what forgets ``peer``: each in steps of bounded work, to be iterated to the end.

        One that has failed may be called again.
        """
        peer.discard_all()
        return (
            partial(self._drop, peer),
            partial(_tell, peer),
            partial(self.router.forget, peer),
        )

    def _drop(self, peer: Peer) -> tuple[()]:
        if self.peers.pop(peer.number, None) is not None and peer.halfway and peer.ending is None:
            self.counters.half_frames += 1
        if self.delivery.speaker is peer:
            self.delivery.speaker = None
        return ()

    def repair(self, peer: Peer) -> None:
        """Make the tables whole when forgetting ``peer`` has failed; takes no steps."""
        self.router.repair(peer)

    def leave(self, peer: Peer) -> Iterator[None]:
        """Forget ``peer``, in steps of bounded work: iterate to the end."""
        for step in self.leaving(peer):
            yield from step()

    # Input

    def receive(self, peer: Peer, data: bytes) -> bool:
        """Work off ``data`` from ``peer``, and send what it leads to.

        Returns:
            Whether work was left for a further turn, which ``receive(peer, b"")`` takes,
            because this one has used up :data:`~pubsubd.protocol.limits.WORK_PER_TURN`, or because
            there is a ``peer.job`` now, which has to be done and finished before.

        Where the input breaks the protocol beyond repair, ``peer.ending`` is set, the
        peer is told, and all input from there on is ignored.
        """
        if peer.ending is not None:
            return False
        parts = peer.parts
        delivery = self.delivery
        delivery.speaker = peer
        if not peer.relayed:
            delivery.turn.begin()
            self.counters.bytes_in += len(data)
            if peer.link is not None:
                return peer.link.receive(data)
            if peer.step is not None and not self.requests.go_on(peer):
                if data:
                    parts.append(data)
                return True
            if len(data) <= alone.MOST and alone.pass_on(delivery, peer, data):
                return False
        if 0 < len(data) < peer.missing:
            peer.missing -= len(data)
            parts.append(data)
            if len(parts) > _PARTS:
                parts[:] = [b"".join(parts)]
            return False
        rest: bytes | None = data
        if peer.large:
            if not data:
                return False
            rest = self._large.complete(peer, data)
        elif len(data) >= LARGE and parts == [b"\n"] and not peer.relayed:
            rest = self._large.begin(peer, data)
        if rest is None:
            return False
        data, peer.expected = rest, 0
        parts.append(data)
        buf = b"".join(parts)
        parts.clear()

        # Hot loop: scripts/bench. Offsets into buf: `at`, the LF that ends the frame before;
        # `start`, where the run begins. The run is the frames from the one with number `begun` to
        # that with number `total`, all for `targets`. The last one, of `route` and `length`, is
        # known to be whole only when `buf[at]` exists and is LF. A header is looked up with the LF
        # before it, `width` bytes in all. A run that is put elsewhere leaves nobody as targets.
        router, publish_filter, nobody = self.router, peer.publish_filter, self.router.nobody
        get: Callable[[bytes], Route | None] = router.routes.get
        learn, index = router.learn, router.index
        alike: Callable[[bytes, int, bytes, int], int] | None = router.alike
        sizes = self._sizes
        match_header, max_payload = self.match_header, peer.listener.limits.max_payload
        scan = None
        if peer.relayed:
            match_header, max_payload = self.match_relayed, _ANY_SIZE
            if not peer.sibling:
                get, learn, alike = router.relays.get, router.learn_relayed, None
            elif len(buf) >= self.scan_from:
                scan = self.scan
        elif publish_filter is not None:
            get, learn, alike = publish_filter.get, publish_filter.learn, None
            max_payload = publish_filter.limit(max_payload)
        elif len(buf) >= self.scan_from:
            scan = self.scan
        end, at, start, begun, total = len(buf), 0, 1, 0, 0
        # A width of 0 is that of no header, and leads to the scanner.
        route, length, width = NO_ROUTE, 0, 0 if scan is not None else peer.width
        targets: Targets | CopyTargets | Denied = nobody
        enqueue, special = None, False  # the targets' own; a look at the class is dear
        more, missing, large = False, 1, b""
        ending: ProtocolError | None = None
        fault: Exception | None = None
        touched, find = delivery.touched, buf.find
        self._looks = WORK_PER_TURN // WORK_PER_LOOK
        budget, credit = index.work + WORK_PER_LOOK, WORK_PER_TURN
        other, luck, stride, look = width, _LUCK, _STRIDE, min(end, _STRETCH)
        hope = wait = mark = probe = vain = 0
        cuts = patience = _CUTS
        key = buf[:width]
        following = get(key)
        try:
            while True:
                # A known header of another width may have that of the one before the last one.
                # Otherwise it ends at its third space.
                if following is None and at + 5 < look and scan is None:
                    if luck > 0:
                        following = get(key := buf[at : at + other])
                        luck += -1 if following is None else 1
                    if following is None:
                        gap = find(b" ", at + 5, at + MAX_LINE)
                        following = get(key := buf[at : find(b" ", gap + 1, gap + _DIGITS) + 1])

                if following is None:
                    if at >= end:  # the last frame is not whole yet
                        at -= length
                        total -= 1
                        missing = at + length + 1 - end
                        if length >= LARGE and not peer.relayed:  # those have other receivers
                            large = buf[at : at + route.width]
                        break
                    if buf[at] != LF:
                        if buf[at] == CR and at + 1 == end:
                            at -= length
                            total -= 1
                            break
                        if buf[at] == CR and buf[at + 1] == LF:
                            frames, done = buf[start:at] + b"\n", total - begun
                            at += 1
                            start, begun = at + 1, total
                            delivery.deliver(targets, route, frames, 0, len(frames), done)
                            targets, route, enqueue, special = nobody, NO_ROUTE, None, False
                            budget -= _STEP
                            if index.work > budget and not (budget := self._allow()):
                                more = True
                                break
                            following = get(key := buf[at : at + width])
                            continue
                        at -= length
                        total -= 1
                        ending = wrong_length(buf, at, length)
                        break
                    if at + 1 == end:  # nothing has come of the next one
                        missing = 1
                        break
                    if (
                        not at
                        and buf[1:2] in STARTS
                        and len(buf) == len(data) + 1
                        and not peer.relayed
                    ):
                        data, answers = strip_telnet(data)
                        if answers:
                            delivery.answer(peer, answers)
                        buf = b"\n" + data
                        end, find = len(buf), buf.find
                    if index.work > budget and not (budget := self._allow()):
                        more = True
                        break
                    if at + 5 >= look < end and scan is None:
                        if total > _SURE and delivery.turn.over():
                            more = True
                            break
                        look = min(end, at + _STRETCH)
                        continue
                    while scan is not None:
                        room = (budget - index.work) // _SCANNED + 1
                        runs, names = scan(buf, at, *router.tables, room, max_payload)
                        if not runs:
                            break
                        if total > begun:
                            first, done = start, total - begun
                            start, begun = at + 1, total
                            delivery.deliver(targets, route, buf, first, start, done)
                            targets, route, enqueue, special = nobody, NO_ROUTE, None, False
                        route, width = NO_ROUTE, 0
                        for found, chunk, done, at in runs:
                            start = at + 1
                            total = begun = total + done
                            if not found.enqueues:
                                continue
                            if not found.enqueued:
                                touched.append(found)
                            found.enqueued += done
                            if found.enqueue is not None:
                                found.enqueue(chunk)
                                continue
                            for put in found.enqueues:
                                put(chunk)
                            credit -= found.cost
                            if credit < 0 or index.work > budget:
                                break
                        router.lookups += names
                        budget -= _SCANNED * names
                        if credit < 0 or (index.work > budget and not (budget := self._allow())):
                            more = True
                            break
                    if more:
                        break
                    before, fresh = at, 0
                    match = match_header(buf, at)
                    while match is not None:  # hot loop: names that come once
                        budget -= _STEP
                        key, name, digits = match.group(0, 1, 2)
                        following = get(key)
                        if following is not None:
                            break
                        size = sizes[digits]
                        if size > max_payload or not (name.isascii() or wire.is_utf8(name)):
                            break
                        following = learn(key, name, size)
                        new = following.targets
                        if new is not targets or (special and following is not route):
                            break
                        length = following.length
                        at += length
                        total += 1
                        if following is route and total > hope and alike is not None:
                            rows = alike(buf, at, key, length)  # which is checked to be legal
                            at += rows * length
                            total += rows
                            budget -= rows * len(key) // _COLUMNS
                            wait = 0 if rows > _PROBE else min(max(_STRIDE, 2 * wait), _FAR)
                            hope = total + wait
                        route, following = following, None
                        fresh += 1
                        if fresh > _FRESH and alike is not None and get(key) is None:
                            rows, at = router.alike_in(buf, at, name, sizes, max_payload)
                            total += rows
                            budget -= rows * _SCANNED
                            fresh = 0 if rows > _FRESH else -_FAR
                        if index.work > budget:
                            break
                        match = match_header(buf, at)
                    if following is None and at > before:
                        continue
                    if following is None:
                        if total > begun:
                            first, done = start, total - begun
                            start, begun = at + 1, total
                            delivery.deliver(targets, route, buf, first, start, done)
                            targets, route, enqueue, special = nobody, NO_ROUTE, None, False
                        budget -= _STEP
                        try:
                            stop, missing = self._commands.carry_out(peer, buf, at + 1)
                        except ProtocolError as error:
                            ending = error.detach()
                            break
                        if missing:
                            break
                        at = stop
                        start = at + 1
                        if scan is not None:
                            width = 0
                        if (
                            peer.publish_filter
                            is not publish_filter  # what follows is by other rights
                            or peer.job is not None
                            or peer.step is not None
                            or delivery.turn.over()
                        ):
                            more = True
                            break
                        following = get(key := buf[at : at + width])
                        continue

                # Hot loop: known headers, all of one width.
                other, width = width, following.width
                while following is not None:
                    if following.targets is not targets or (special and following is not route):
                        if enqueue is not None:
                            if not targets.enqueued:
                                touched.append(targets)
                            targets.enqueued += total - begun
                            begun = total
                            enqueue(buf[start : (start := at + 1)])
                            cuts -= 1
                            if not cuts:
                                short, dealt = total - mark < _SHORT * patience, 0
                                if short:
                                    dealt = deal(buf, at, following, get, touched)
                                patience = _CUTS if dealt >= _WORTH else min(2 * patience, _FAR)
                                cuts, mark = patience, total + dealt
                                total = begun = mark
                                at += dealt * following.length
                                start = at + 1
                                targets, enqueue = nobody, None
                                if total > _SURE and delivery.turn.over():
                                    more = True
                                    break
                                following = get(key := buf[at : at + width])
                                continue
                        else:
                            first, done = start, total - begun
                            start, begun = at + 1, total
                            if special:
                                delivery.deliver(targets, route, buf, first, start, done)
                            elif targets.enqueues:
                                if not targets.enqueued:
                                    touched.append(targets)
                                targets.enqueued += done
                                chunk = buf[first:start]
                                for put in targets.enqueues:
                                    put(chunk)
                                credit -= targets.cost
                            if (special or targets.enqueues) and (
                                credit < 0
                                or (index.work > budget and not (budget := self._allow()))
                            ):
                                more = True
                                break
                            special = False
                        targets = following.targets
                        enqueue = targets.enqueue
                        if enqueue is None:
                            special = targets.special
                    elif following is route:  # the same receivers and lengths: run on
                        length, step = route.length, 1
                        ahead = at + _PROBE * length
                        if at >= probe and buf[ahead : ahead + width] == key:
                            step = equal_headers(buf, at, key, length)
                            vain = 0 if step > _PROBE else min(max(_STRIDE, 2 * vain), _FAR)
                            probe = at + vain * length
                        if step > _PROBE:  # else it was a few names in turn
                            at += step * length
                            total += step
                            stride = _STRIDE
                        else:
                            first = at
                            last = min(end, at + stride * length)
                            for at in range(first, last, length):
                                if get(buf[at : at + width]) is not route:
                                    stride = _STRIDE
                                    break
                            else:
                                at += length
                                stride = min(2 * stride, _FAR)
                            total += (at - first) // length
                        following = get(key := buf[at : at + width])
                        continue
                    route = following
                    at += route.length
                    total += 1
                    following = get(key := buf[at : at + width])
                length = route.length
                if more:
                    break
        except Unfinished:
            more = True  # whom the next name goes to takes more than a turn to find out
        except Exception as error:  # noqa: BLE001  (raised below, when what came before is sent)
            fault = error

        if total > begun:
            delivery.deliver(targets, route, buf, start, at + 1, total - begun)
        self.counters.messages_in += total
        if delivery.sampler is not None and total:
            delivery.sampler.read(peer, buf, total)
        if publish_filter is not None:
            delivery.tell_refusals(peer)
        if width:
            peer.width = width
        if ending is not None:
            parts.append(b"\n")
            if ending.code != GOODBYE:
                delivery.tell(peer, ending)
        else:
            parts.append(buf[at + 1 :] if large else buf[at:] if at else buf)
            peer.missing, peer.large = missing, large
            if large:
                peer.expected = length
        if not peer.echo:
            delivery.withhold(peer)
        delivery.send()
        if fault is not None:
            try:
                raise fault
            finally:
                fault = None  # which knows this frame, and all that it holds, by its traceback
        if ending is not None:
            peer.ending = ending
        return more

    def _allow(self) -> int:
        """Return up to which work the turn goes on before this is called again; 0 ends it."""
        self._looks -= 1
        if self._looks < 0 or self.delivery.turn.over():
            return 0
        return self.router.index.work + WORK_PER_LOOK

    # Statistics

    def statistics(self) -> Statistics:
        """Return a snapshot."""
        uptime = self._clock() - self._started
        return take_statistics(self.counters, self.faults, self.router, self.peers.values(), uptime)

    def describe(self) -> bytes:
        """Return the statistics as the JSON object that ``//pubsubd/stats`` carries."""
        return json.dumps(asdict(self.statistics())).encode()

    def _about(self, observer: Peer) -> dict[str, object]:
        """Return what an observer of ``//pubsubd/live`` is told of itself."""
        return {"own": observer.number, "may_kill": self.connections.may_kill(observer)}

    def _describe(self) -> Steps[bytes]:
        yield from ()
        return self.describe()

    def _explain(self, data: bytes) -> Steps[bytes]:
        found = yield from explain(self.router, self.delivery.turn, data)
        return json.dumps(found).encode()

    def _trace(self, asker: Peer, data: bytes) -> Steps[bytes]:
        _, name = read_request(asker, data)
        return trace_here(self.router, self.peers, self.connections.scope(asker), name)


def _tell(peer: Peer) -> tuple[()]:
    if peer.gone is not None:
        peer.gone()
    peer.gone = None
    return ()


def _tell_no_mesh(_peer: Peer, _data: bytes) -> NoReturn:
    raise ProtocolError("no-mesh", NO_MESH)
