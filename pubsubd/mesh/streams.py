"""Streams: letters that arrive once and in order, or whose sender is told, without I/O.

A batch may be overtaken by a later one when a link comes up, and is lost with a link that breaks.
For messages to actors, that is made good here. Each daemon numbers what it sends to another one,
and keeps it until that one says that it has come; what is not confirmed for a while is sent again,
and given up after :data:`PATIENCE`. Each letter names the last one before it from the same sender
to the same receiver, and waits for that one alone.

    send <stream> <number> <floor> <after> <wanted> <address>
    got <stream> <first> <last> <time>      all of these; a line of those of them that could not
                                            be delivered, and a line of later ones that were

``floor`` is the lowest number that is not confirmed or given up: nothing below it comes any more.
``after`` is the number of the letter before, or 0. ``wanted`` is ``ask`` if the answer is waited
for, and ``tell`` if it may come with others.

Invariants:

- ``_Out.unconfirmed`` is in the order of the numbers, and so of their times.
- Each number of a stream up to ``_In.done``, or in ``_In.later``, was delivered, could not be, or
  was given up. Only numbers above wait in ``_In.held``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from pubsubd.broker.faults import Faults
from pubsubd.broker.turn import Steps
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.state import State
from pubsubd.protocol.limits import KIB, MIB

PATIENCE = 5.0
"""Seconds after which a letter that was not confirmed is given up."""

CONFIRM = 0.05
"""Seconds until letters are confirmed, unless they are many, or an answer is waited for."""

AT_ONCE = 256
"""Letters that are confirmed without waiting."""

AGAIN = 0.25
"""Seconds until letters are sent again, and a round trip; then twice as long, up to a second."""

REPEATED = 128 * KIB
"""Bytes that are sent again at a time, to each daemon."""

MAX_EACH = 32 * MIB
"""Bytes of letters to one daemon that are kept because they are not confirmed."""

MAX_UNCONFIRMED = 128 * MIB
"""Bytes of letters to all daemons that are kept because they are not confirmed."""

MAX_HELD = 64 * MIB
"""Bytes of letters of all daemons that wait for earlier ones."""

MAX_WAITING = 16_384
"""Letters of one daemon that wait for earlier ones."""

WINDOW = 16_384
"""Numbers above the one up to which all have come, of which letters are taken."""

MAX_FAILED = 1_000
"""Letters of a daemon that could not be delivered and are told of until it knows."""

_WEIGHT = 512  # bytes that a letter takes besides its text
_MAX_BODY = 64 * KIB  # bytes of the numbers in a confirmation
_STREAMS = 1_024  # above, those of daemons that are forgotten are dropped
_STEP = 64  # letters between two looks at the clock
_LONGEST = 1.0  # seconds until letters are sent again, and a round trip

Answer = Callable[[int | None], None]
"""Called with when a letter was delivered, in milliseconds since the epoch; None if it was not, or
if nobody has said so."""

Deliver = Callable[[str, str, bytes], bool]
"""Delivers what a daemon has sent to an address; returns whether it was delivered to somebody.

Raises ValueError if it is not as it should be.
"""


class _Letter:
    """A letter that is not confirmed.

    Attributes:
        at: when it was sent first; ``sent``: when it was sent last.
        after: the number of the letter before it.
        pair: sender and receiver.
        wanted, key, body: see the module.
        answer: called with what has become of it.
    """

    __slots__ = ("after", "answer", "at", "body", "key", "pair", "sent", "wanted")

    def __init__(
        self,
        at: float,
        after: int,
        pair: tuple[str, str],
        wanted: str,
        key: str,
        body: bytes,
        answer: Answer | None,
    ) -> None:
        self.at = self.sent = at
        self.after = after
        self.pair = pair
        self.wanted = wanted
        self.key = key
        self.body = body
        self.answer = answer

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.body) + _WEIGHT


class _Out:
    """What is sent to another daemon.

    Attributes:
        incarnation: of the daemon.
        stream: the number of the stream.
        number: of the last letter.
        unconfirmed: number -> letter.
        size: bytes of these.
        latest: sender and receiver -> the number of the last letter, if that is unconfirmed.
        again: when the oldest are sent again.
        pause: seconds from then until the next time.
    """

    __slots__ = (
        "again",
        "incarnation",
        "latest",
        "number",
        "pause",
        "size",
        "stream",
        "unconfirmed",
    )

    def __init__(self, incarnation: int, stream: int) -> None:
        self.incarnation = incarnation
        self.stream = stream
        self.number = self.size = 0
        self.unconfirmed: OrderedDict[int, _Letter] = OrderedDict()
        self.latest: dict[tuple[str, str], int] = {}
        self.again = float("inf")
        self.pause = AGAIN


class _In:
    """What another daemon sends.

    Attributes:
        life: its incarnation, and the number of its stream.
        done: the number up to which nothing is missing.
        later: numbers above that are not missing either.
        failed: numbers of letters that could not be delivered.
        forgotten: up to which number some of those may be missing there.
        told: what the last confirmation has said: all up to which number.
        doubted: the lowest number that came again since.
        unsaid: those of ``failed`` that no confirmation has named.
        news: those of ``later`` that no confirmation has named, and that did not fail.
        held: number -> the letter that waits for it: its own number, its words and its body.
        count: letters since the last confirmation.
        confirm: when the next one is due.
    """

    __slots__ = (
        "confirm",
        "count",
        "done",
        "doubted",
        "failed",
        "forgotten",
        "held",
        "later",
        "life",
        "news",
        "told",
        "unsaid",
    )

    def __init__(self, life: tuple[int, int], done: int) -> None:
        self.life = life
        self.done = self.told = done
        self.doubted = done + 1
        self.later: set[int] = set()
        self.failed: dict[int, None] = {}
        self.forgotten = 0
        self.unsaid: list[int] = []
        self.news: list[int] = []
        self.held: dict[int, tuple[int, str, str, bytes]] = {}
        self.count = 0
        self.confirm = float("inf")


class Streams:
    """The streams to and from all other daemons.

    Args:
        state: the daemon's.
        faults: the daemon's.
        letters: of the daemon.
        wake: called with a time at which :meth:`acting` has something to do.

    Attributes:
        deliver: see :data:`Deliver`; the hub's.
        due: when :meth:`acting` has something to do.
        unconfirmed: bytes of letters that are kept.
        held: bytes of letters that wait for earlier ones.
        repeated: letters that were sent again.
        lost: letters to other daemons that were not delivered to anybody, as far as is known.
    """

    def __init__(
        self, state: State, faults: Faults, letters: Letters, wake: Callable[[float], None]
    ) -> None:
        self._state = state
        self._faults = faults
        self._letters = letters
        self._wake_mesh = wake
        self.deliver: Deliver = lambda _node, _key, _body: False
        self.due = float("inf")
        self.unconfirmed = self.held = 0
        self.repeated = self.lost = 0
        self._outs: dict[str, _Out] = {}
        self._ins: dict[str, _In] = {}
        self._sending: dict[str, None] = {}  # daemons that have not confirmed everything
        self._confirming: dict[str, None] = {}  # daemons that are to be sent a confirmation
        self._at_once: dict[str, None] = {}  # those of them for which it is due
        self._stream = 0  # the number of the last stream to another daemon
        letters.kinds.update(send=self._take, got=self._take_got)
        letters.answer = self.confirm

    # Out

    def send(
        self,
        node: str,
        pair: tuple[str, str],
        key: str,
        body: bytes,
        *,
        ask: bool,
        answer: Answer | None,
    ) -> bool:
        """Send a letter to an actor of another daemon; return False if too many are under way.

        Args:
            node: the daemon.
            pair: sender and receiver.
            key: the receiver's address.
            body: what :attr:`deliver` is called with there.
            ask: whether ``answer`` waits.
            answer: called once with what has become of it; not if False is returned.
        """
        out = self._outs.get(node) or self._open(node)
        size = len(body) + _WEIGHT
        if out.size + size > MAX_EACH or self.unconfirmed + size > MAX_UNCONFIRMED:
            return False
        now, unconfirmed = self._state.now(), out.unconfirmed
        number = out.number = out.number + 1
        letter = _Letter(
            now, out.latest.get(pair, 0), pair, "ask" if ask else "tell", key, body, answer
        )
        if not unconfirmed:
            self._sending[node] = None
            out.pause, out.again = AGAIN, now + AGAIN + self._state.spread
            self._wake(out.again)
        unconfirmed[number] = letter
        out.latest[pair] = number
        out.size += size
        self.unconfirmed += size
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
        floor = next(iter(out.unconfirmed))
        words = f"send {out.stream} {number} {floor} {letter.after} {letter.wanted} {letter.key}"
        self._letters.send(node, words, letter.body)

    def _resolve(self, out: _Out, number: int, at: int | None) -> None:
        """Note what has become of a letter, if that is not known yet."""
        letter = out.unconfirmed.pop(number, None)
        if letter is None:
            return
        if out.latest.get(letter.pair) == number:
            del out.latest[letter.pair]
        size = letter.size
        out.size -= size
        self.unconfirmed -= size
        self.lost += at is None
        if letter.answer is not None:
            try:
                letter.answer(at)
            except Exception as error:  # noqa: BLE001  (the other letters are not concerned)
                self._faults.note(error, "hub")

    def _take_got(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        """Take a confirmation."""
        _, stream, first, last, at = words
        out = self._outs.get(node)
        if out is None or int(stream) != out.stream:
            return None
        if len(body) > _MAX_BODY:
            raise ValueError(f"{len(body)} bytes")
        failed, _, later = body.partition(b"\n")
        numbers = range(int(first), min(int(last), out.number) + 1)
        return self._confirmed(node, out, numbers, int(at), failed.split(), later.split())

    def _confirmed(
        self, node: str, out: _Out, numbers: range, at: int, failed: list[bytes], later: list[bytes]
    ) -> Steps[None]:
        unconfirmed, count = out.unconfirmed, 0
        before = next(iter(unconfirmed), None)
        for one in failed:
            self._resolve(out, int(one), None)
            if (count := count + 1) % _STEP == 0:
                yield
        for number in numbers[max(0, (before or 0) - numbers.start) :]:
            self._resolve(out, number, at)
            if (count := count + 1) % _STEP == 0:
                yield
        for one in later:
            self._resolve(out, int(one), at)
            if (count := count + 1) % _STEP == 0:
                yield
        if not unconfirmed or next(iter(unconfirmed)) == before:
            return
        now, oldest = self._state.now(), next(iter(unconfirmed.values()))
        out.pause, out.again = AGAIN, oldest.sent + AGAIN + self._state.spread
        if now >= out.again or oldest.at != oldest.sent:  # and so are others that were lost
            self._repeat(node, out, now)
            out.again = now + AGAIN + self._state.spread
        self._wake(out.again)

    def _repeat(self, node: str, out: _Out, now: float) -> None:
        """Send the oldest letters to a daemon again, but not those that have just been sent."""
        size = 0
        for number, letter in out.unconfirmed.items():
            fresh = letter.sent > now - AGAIN / 2
            if size >= REPEATED or (fresh and letter.at == letter.sent):
                break  # all further ones are fresh, too
            if fresh:
                continue
            letter.sent = now
            self._post(node, out, number, letter)
            self.repeated += 1
            size += letter.size

    # In

    def _take(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        """Take a letter to an actor of this daemon."""
        _, stream, this, lowest, before, wanted, key = words
        number, floor, after = int(this), int(lowest), int(before)
        life = self._state.table.adverts[node].incarnation, int(stream)
        one = self._ins.get(node)
        if one is None or one.life != life:
            if one is not None and life < one.life:
                return None
            one = self._begin(node, life, floor - 1)
        elif floor > one.done + 1:
            return self._skipping(node, one, floor, (number, after, wanted, key, body))
        if one.failed:
            one.failed = {failed: None for failed in one.failed if failed >= floor}
        return self._judge(node, one, number, after, wanted, key, body)

    def _begin(self, node: str, life: tuple[int, int], done: int) -> _In:
        """Begin a stream of a daemon; the one before is over."""
        if node not in self._ins and len(self._ins) >= _STREAMS:
            for other in [one for one in self._ins if one not in self._state.table.adverts]:
                self._forget(other)
        self._forget(node)
        one = self._ins[node] = _In(life, done)
        return one

    def _forget(self, node: str) -> None:
        one = self._ins.pop(node, None)
        if one is not None:
            self.held -= sum(len(letter[3]) + _WEIGHT for letter in one.held.values())

    def _judge(
        self, node: str, one: _In, number: int, after: int, wanted: str, key: str, body: bytes
    ) -> Steps[None] | None:
        """Deliver a letter, or let it wait for the one before it.

        What there is no room for is not taken, and comes again.
        """
        if number <= one.done or number in one.later:
            self._repeat_confirmation(node, one, number)
        elif after > one.done and after not in one.later:
            size = len(body) + _WEIGHT
            if (
                after not in one.held
                and after < number <= one.done + WINDOW
                and len(one.held) < MAX_WAITING
                and self.held + size <= MAX_HELD
            ):
                one.held[after] = number, wanted, key, body
                self.held += size
        elif number == one.done + 1 or (
            number <= one.done + WINDOW and len(one.failed) < MAX_FAILED
        ):
            self._hand(node, one, number, wanted, key, body)
            if one.held:
                return self._releasing(node, one, [number])
        return None

    def _hand(self, node: str, one: _In, number: int, wanted: str, key: str, body: bytes) -> None:
        """Deliver a letter whose turn it is."""
        there = False
        try:
            there = self.deliver(node, key, body)
        finally:
            if not there:
                one.failed[number] = None
                one.unsaid.append(number)
                wanted = "ask"
            if number == one.done + 1:
                one.done = number
                self._advance(one)
            else:
                one.later.add(number)
                if there:
                    one.news.append(number)
            self._note(node, one, wanted)
            if len(one.failed) > MAX_FAILED:
                self._confirm(node)  # or they are forgotten before they are told of
                one.forgotten = one.done
                one.failed = {number: None for number in one.failed if number > one.done}

    def _advance(self, one: _In) -> None:
        later = one.later
        while later and one.done + 1 in later:
            one.done += 1
            later.remove(one.done)

    def _releasing(self, node: str, one: _In, numbers: list[int]) -> Steps[None]:
        """Deliver the letters that wait for others, in steps."""
        while numbers:
            letter = one.held.pop(numbers.pop(), None)
            if letter is None or self._ins.get(node) is not one:
                continue
            number, wanted, key, body = letter
            self.held -= len(body) + _WEIGHT
            numbers.append(number)
            if number > one.done and number not in one.later:
                try:
                    self._hand(node, one, number, wanted, key, body)
                except ValueError:
                    self._letters.refuse("malformed")
            yield

    def _skipping(
        self, node: str, one: _In, floor: int, letter: tuple[int, int, str, str, bytes]
    ) -> Steps[None]:
        """Do without the letters below ``floor``, which were given up, then take ``letter``."""
        one.done = floor - 1
        one.later = {number for number in one.later if number >= floor}
        one.failed = {number: None for number in one.failed if number >= floor}
        self._advance(one)
        free = sorted((after for after in one.held if after <= one.done), reverse=True)
        yield from self._releasing(node, one, free)
        yield from self._judge(node, one, *letter) or ()

    # Confirmations

    def _note(self, node: str, one: _In, wanted: str) -> None:
        """Take note that a letter is to be confirmed."""
        one.count += 1
        if wanted == "ask" or one.count >= AT_ONCE:
            self._at_once[node] = None
        elif one.confirm == float("inf"):
            one.confirm = self._state.now() + CONFIRM
            self._confirming[node] = None
            self._wake(one.confirm)

    def _repeat_confirmation(self, node: str, one: _In, number: int) -> None:
        """Confirm a letter that has come again: the confirmation was lost, or is on its way."""
        if number <= one.done:
            one.doubted = min(one.doubted, number)
        elif number not in one.failed:
            one.news.append(number)
        self._note(node, one, "tell")

    def confirm(self) -> None:
        """Confirm what is to be confirmed without waiting."""
        while self._at_once:
            self._confirm(self._at_once.popitem()[0])

    def _confirm(self, node: str) -> None:
        self._confirming.pop(node, None)
        one = self._ins.get(node)
        if one is None:
            return
        first, failed = 1, one.unsaid
        if one.failed and one.doubted > one.told:  # those of which it was told are left out
            first = one.told + 1
        elif one.failed:
            first, failed = one.doubted, list(one.failed)
        first = max(first, one.forgotten + 1)
        failed = [number for number in failed if number <= one.done]
        words = f"got {one.life[1]} {first} {one.done} {int(self._state.wall() * 1000)}"
        body = b"%b\n%b" % (_join(failed), _join(one.news)) if failed or one.news else b""
        one.count, one.confirm = 0, float("inf")
        one.told, one.doubted = one.done, one.done + 1
        one.unsaid = [number for number in one.unsaid if number > one.done]
        one.news = []
        self._letters.send(node, words, body)

    # Time

    def _wake(self, at: float) -> None:
        if at < self.due:
            self.due = at
            self._wake_mesh(at)

    def acting(self) -> Steps[None]:
        """Do what is due, in steps."""
        now = self._state.now()
        if now < self.due:
            return
        self.due = float("inf")
        for node in list(self._confirming):
            one = self._ins.get(node)
            if one is None or one.confirm <= now:
                self._confirm(node)
                yield
            else:
                self._wake(one.confirm)
        for node in list(self._sending):
            yield from self._looking_after(node, now)
        self._letters.after()

    def _looking_after(self, node: str, now: float) -> Steps[None]:
        """Give up letters to a daemon that are old, and send the others again, if it is time."""
        out = self._outs.get(node)
        if out is None:
            self._sending.pop(node, None)
            return
        advert = self._state.table.adverts.get(node)
        gone = advert is not None and advert.incarnation != out.incarnation
        if gone:  # it knows nothing of them, and may have clients with the same addresses
            del self._outs[node]
        old = float("inf") if gone else now - PATIENCE
        unconfirmed, count = out.unconfirmed, 0
        while unconfirmed and next(iter(unconfirmed.values())).at <= old:
            self._resolve(out, next(iter(unconfirmed)), None)
            if (count := count + 1) % _STEP == 0:
                yield
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


def _join(numbers: Iterable[int]) -> bytes:
    return b" ".join([b"%d" % one for one in numbers])
