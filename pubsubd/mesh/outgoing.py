"""Messages to actors of other daemons, kept until they are confirmed, without I/O.

See :mod:`pubsubd.mesh.streams`.

Invariant: ``_Out.unconfirmed`` is in the order of the numbers, and so of their times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from pubsubd.broker.actor_messages import ActorMessage
from pubsubd.broker.faults import Faults
from pubsubd.broker.turn import Steps
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.state import State
from pubsubd.protocol.limits import KIB, MIB

PATIENCE = 5.0
"""Seconds after which a letter that was not confirmed is given up."""

AGAIN = 0.25
"""Seconds until letters are sent again, or twice what confirmations take, if that is longer.

Then twice as long each time, up to a second.
"""

REPEATED = 128 * KIB
"""Bytes that are sent again at a time, to each daemon."""

MAX_EACH = 32 * MIB
"""Bytes of letters to one daemon that are kept because they are not confirmed."""

MAX_UNCONFIRMED = 128 * MIB
"""Bytes of letters to all daemons that are kept because they are not confirmed.

Of these, one daemon has no more than what is left: one that confirms nothing leaves as much to
others as it has taken.
"""

_WEIGHT = 512  # bytes that a letter takes besides its text
_MAX_BODY = 64 * KIB  # bytes of the numbers in a confirmation
_STREAMS = 1_024  # above, those of daemons that are forgotten are dropped
_STEP = 64  # letters between two looks at the clock
_DIGITS = 15  # of a time in milliseconds
_LONGEST = 1.0  # seconds until letters are sent again


class _Letter(Struct):
    """A letter that is not confirmed.

    Attributes:
        at: when it was sent first; ``sent``: when it was sent last.
        after: the number of the letter before it.
        message: it.
        size: bytes that it takes.
    """

    at: float
    sent: float
    after: int
    message: ActorMessage
    size: int


class _Out:
    """What is sent to another daemon.

    Attributes:
        incarnation: of the daemon.
        stream: the number of the stream.
        head: the words with which its letters begin.
        number: of the last letter.
        unconfirmed: number -> letter.
        size: bytes of these.
        latest: sender and receiver -> the number of the last letter, if that is unconfirmed.
        again: when the oldest are sent again.
        pause: seconds from then until the next time.
        usual: seconds that confirmations take, as the last ones did.
    """

    __slots__ = (
        "again",
        "head",
        "incarnation",
        "latest",
        "number",
        "pause",
        "size",
        "stream",
        "unconfirmed",
        "usual",
    )

    def __init__(self, incarnation: int, stream: int) -> None:
        self.incarnation = incarnation
        self.stream = stream
        self.head = f"send {stream}"
        self.number = self.size = 0
        self.unconfirmed: OrderedDict[int, _Letter] = OrderedDict()
        self.latest: dict[tuple[str, str], int] = {}
        self.again = float("inf")
        self.pause = AGAIN
        self.usual = 0.0

    def confirmed(self, took: float) -> None:
        """Note how long a confirmation took, and wait so much longer for the next ones."""
        self.usual = max(took, self.usual / 2)
        self.pause = min(max(AGAIN, 2 * self.usual), _LONGEST)


class Outgoing:
    """The streams to all other daemons.

    Args:
        state: the daemon's.
        faults: the daemon's.
        letters: of the daemon.
        wake: called with a time at which :meth:`acting` has something to do.

    Attributes:
        size: bytes of letters that are kept.
        repeated: letters that were sent again.
        lost: letters that were not delivered to anybody, as far as is known.
    """

    def __init__(
        self, state: State, faults: Faults, letters: Letters, wake: Callable[[float], None]
    ) -> None:
        self._state = state
        self._faults = faults
        self._letters = letters
        self._wake = wake
        self.size = self.repeated = self.lost = 0
        self._outs: dict[str, _Out] = {}
        self._sending: dict[str, None] = {}  # daemons that have not confirmed everything
        self._ended: list[_Out] = []  # streams whose letters nobody will confirm
        self._stream = 0  # the number of the last stream
        letters.kinds["got"] = self._take

    def send(self, node: str, message: ActorMessage) -> bool:
        """Send a message to an actor of another daemon; return False if too many are under way."""
        out = self._outs.get(node) or self._open(node)
        advert = self._state.table.adverts.get(node)
        if advert is not None and advert.incarnation != out.incarnation:
            self._lose(node)  # it has been started anew
            out = self._open(node)
        size = len(message.body) + _WEIGHT
        # As much as is left for others at most: however many are silent, they leave some of it.
        if out.size + size > min(MAX_EACH, MAX_UNCONFIRMED - self.size):
            return False
        now, unconfirmed = self._state.now(), out.unconfirmed
        number = out.number = out.number + 1
        letter = _Letter(now, now, out.latest.get(message.pair, 0), message, size)
        if not unconfirmed:
            self._sending[node] = None
            out.again = now + out.pause + self._state.spread
            self._wake(out.again)
        unconfirmed[number] = letter
        out.latest[message.pair] = number
        out.size += size
        self.size += size
        self._post(node, out, number, letter)
        return True

    def _open(self, node: str) -> _Out:
        """Begin a stream to a daemon."""
        adverts = self._state.table.adverts
        if len(self._outs) >= _STREAMS:
            for other in [one for one in self._outs if one not in adverts]:
                if not self._outs[other].unconfirmed:
                    del self._outs[other]
        advert = adverts.get(node)
        self._stream = max(self._stream + 1, int(self._state.wall() * 1000))
        out = _Out(0 if advert is None else advert.incarnation, self._stream)
        self._outs[node] = out
        return out

    def _post(self, node: str, out: _Out, number: int, letter: _Letter) -> None:
        floor, message = next(iter(out.unconfirmed)), letter.message
        wanted = "ask" if message.ask else "tell"
        words = f"{out.head} {number} {floor} {letter.after} {wanted} {message.pair[1]}"
        self._letters.send(node, words, message.body)

    def _resolve(self, out: _Out, number: int, at: int | None) -> None:
        """Note what has become of a letter, if that is not known yet."""
        letter = out.unconfirmed.pop(number, None)
        if letter is None:
            return
        pair, answer = letter.message.pair, letter.message.answer
        if out.latest.get(pair) == number:
            del out.latest[pair]
        out.size -= letter.size
        self.size -= letter.size
        self.lost += at is None
        if answer is not None:
            try:
                answer(at)
            except Exception as error:  # noqa: BLE001  (the other letters are not concerned)
                self._faults.end(answer.peer, error)

    def _take(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        """Take a confirmation."""
        _, stream, first, last, at = words
        out = self._outs.get(node)
        if out is None or int(stream) != out.stream:
            return None
        if len(body) > _MAX_BODY:
            raise ValueError(f"{len(body)} bytes")
        failed, _, later = body.partition(b"\n")
        if len(at) > _DIGITS:  # clients are told that
            raise ValueError(at)
        numbers = range(int(first), min(int(last), out.number) + 1)
        return self._confirmed(node, out, numbers, int(at), failed.split(), later.split())

    def _confirmed(
        self, node: str, out: _Out, numbers: range, at: int, failed: list[bytes], later: list[bytes]
    ) -> Steps[None]:
        unconfirmed, count = out.unconfirmed, 0
        if not unconfirmed:
            return
        before = next(iter(unconfirmed))
        oldest = unconfirmed[before]
        for one in failed:
            self._resolve(out, int(one), None)
            if (count := count + 1) % _STEP == 0:
                yield
        for number in numbers[max(0, before - numbers.start) :]:
            self._resolve(out, number, at)
            if (count := count + 1) % _STEP == 0:
                yield
        for one in later:
            self._resolve(out, int(one), at)
            if (count := count + 1) % _STEP == 0:
                yield
        if before in unconfirmed:
            return
        now = self._state.now()
        if oldest.at == oldest.sent:  # otherwise nobody knows which of them was confirmed (Karn)
            out.confirmed(now - oldest.at)
        if not unconfirmed:
            return
        out.again = next(iter(unconfirmed.values())).sent + out.pause + self._state.spread
        if now >= out.again:
            self._repeat(node, out, now)
            out.again = now + out.pause + self._state.spread
        self._wake(out.again)

    def _repeat(self, node: str, out: _Out, now: float) -> None:
        """Send the oldest letters to a daemon again, but not those that have just been sent."""
        size = 0
        for number, letter in out.unconfirmed.items():
            fresh = letter.sent > now - out.pause / 2
            if size >= REPEATED or (fresh and letter.at == letter.sent):
                break  # all further ones are fresh, too
            if fresh:
                continue
            letter.sent = now
            self._post(node, out, number, letter)
            self.repeated += 1
            size += letter.size

    def acting(self, now: float) -> Steps[None]:
        """Give up and send again what is due, in steps."""
        for number, node in enumerate(list(self._sending), 1):
            yield from self._looking_after(node, now)
            if number % _STEP == 0:
                yield
        while self._ended:
            yield from self._giving_up(self._ended[0], float("inf"))
            del self._ended[0]

    def _lose(self, node: str) -> None:
        """End the stream to a daemon: that knows nothing of the letters of it that are unconfirmed,
        and may have clients with the same addresses.
        """
        out = self._outs.pop(node)
        self._sending.pop(node, None)
        if out.unconfirmed:
            self._ended.append(out)
            self._wake(self._state.now())

    def _giving_up(self, out: _Out, old: float) -> Steps[None]:
        """Give up letters that are not younger, in steps."""
        unconfirmed, count = out.unconfirmed, 0
        while unconfirmed and next(iter(unconfirmed.values())).at <= old:
            self._resolve(out, next(iter(unconfirmed)), None)
            if (count := count + 1) % _STEP == 0:
                yield

    def _looking_after(self, node: str, now: float) -> Steps[None]:
        """Give up letters to a daemon that are old, and send the others again, if it is time."""
        out = self._outs.get(node)
        if out is None:
            self._sending.pop(node, None)
            return
        advert = self._state.table.adverts.get(node)
        if advert is not None and advert.incarnation != out.incarnation:
            self._lose(node)
            return
        yield from self._giving_up(out, now - PATIENCE)
        unconfirmed = out.unconfirmed
        if not unconfirmed:
            if self._outs.get(node, out) is out:
                self._sending.pop(node, None)
            return
        if now >= out.again:
            self._repeat(node, out, now)
            out.pause = min(2 * out.pause, _LONGEST)
            out.again = now + out.pause + self._state.spread
            yield
        self._wake(min(out.again, next(iter(unconfirmed.values())).at + PATIENCE))
