"""Messages to actors of this daemon, in the order in which they were sent, without I/O.

See :mod:`pubsubd.mesh.streams`.

Invariants:

- Each number of a stream up to ``_In.done``, or in ``_In.later``, was delivered, could not be, or
  was given up. Only numbers above wait in ``_In.held``.
- Those in ``_In.under_way`` are neither: another worker has not said yet what has become of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from pubsubd.broker.turn import Steps
from pubsubd.mesh.letters import Letters
from pubsubd.mesh.state import State
from pubsubd.protocol.limits import MIB
from pubsubd.protocol.steps import Later

CONFIRM = 0.05
"""Seconds until letters are confirmed, unless they are many, or an answer is waited for."""

AT_ONCE = 256
"""Letters that are confirmed without waiting."""

MAX_HELD = 64 * MIB
"""Bytes of letters of all daemons that wait for earlier ones."""

MAX_WAITING = 16_384
"""Letters of one daemon that wait for earlier ones."""

WINDOW = 16_384
"""Numbers above the one up to which all have come, of which letters are taken."""

MAX_FAILED = 1_000
"""Letters of a daemon that could not be delivered and are told of until it knows."""

_NEVER = float("inf")
_WEIGHT = 512  # bytes that a letter takes besides its text
_STREAMS = 1_024  # above, those of daemons that are forgotten are dropped


Deliver = Callable[[str, str, bytes, bool], bool | Later]
"""Delivers what a daemon has sent to an address; the last argument says whether somebody waits.

Returns whether it was delivered to somebody.

Raises ValueError if it is not as it should be.
"""


class _In:
    """What another daemon sends.

    Attributes:
        life: its incarnation, and the number of its stream.
        stream: that number, as it writes it.
        done: the number up to which nothing is missing.
        later: numbers above that are not missing either.
        failed: numbers of letters that could not be delivered.
        forgotten: up to which number some of those may be missing there.
        told: what the last confirmation has said: all up to which number.
        doubted: the lowest number that came again since.
        unsaid: those of ``failed`` that no confirmation has named.
        news: those of ``later`` that no confirmation has named, and that did not fail.
        held: number -> the letter that waits for it: its own number, its words and its body.
        under_way: numbers of letters of which it is not known yet what has become of them.
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
        "stream",
        "told",
        "under_way",
        "unsaid",
    )

    def __init__(self, life: tuple[int, int], stream: str, done: int) -> None:
        self.life = life
        self.stream = stream
        self.done = self.told = done
        self.doubted = done + 1
        self.later: set[int] = set()
        self.failed: dict[int, None] = {}
        self.forgotten = 0
        self.unsaid: list[int] = []
        self.news: list[int] = []
        self.held: dict[int, tuple[int, str, str, bytes]] = {}
        self.under_way: set[int] = set()
        self.count = 0
        self.confirm = _NEVER


class Incoming:
    """The streams of all other daemons.

    Args:
        state: the daemon's.
        letters: of the daemon.
        wake: called with a time at which :meth:`acting` has something to do.

    Attributes:
        deliver: see :data:`Deliver`; the hub's.
        held: bytes of letters that wait for earlier ones.
    """

    def __init__(self, state: State, letters: Letters, wake: Callable[[float], None]) -> None:
        self._state = state
        self._letters = letters
        self._wake = wake
        self.deliver: Deliver = lambda _node, _key, _body, _ask: False
        self.held = 0
        self._ins: dict[str, _In] = {}
        self._confirming: dict[str, None] = {}  # daemons that are to be sent a confirmation
        self._at_once: dict[str, None] = {}  # those of them for which it is due
        letters.kinds["send"] = self._take
        letters.answer = self.confirm

    def _take(self, node: str, words: list[str], body: bytes) -> Steps[None] | None:
        """Take a letter to an actor of this daemon."""
        _, stream, this, lowest, before, wanted, key = words
        number, floor, after = int(this), int(lowest), int(before)
        incarnation = self._state.table.adverts[node].incarnation
        one = self._ins.get(node)
        if one is None or one.stream != stream or one.life[0] != incarnation:
            life = incarnation, int(stream)
            if one is not None and life <= one.life:
                return None
            one = self._begin(node, life, stream, floor - 1)
        elif floor > one.done + 1:
            return self._skipping(node, one, floor, (number, after, wanted, key, body))
        if one.failed:
            one.failed = {failed: None for failed in one.failed if failed >= floor}
        free = not one.held and not one.under_way
        if free and number == one.done + 1 and after <= one.done:
            self._hand(node, one, number, wanted, key, body)
            return None
        return self._judge(node, one, number, after, wanted, key, body)

    def _begin(self, node: str, life: tuple[int, int], stream: str, done: int) -> _In:
        """Begin a stream of a daemon; the one before is over."""
        if node not in self._ins and len(self._ins) >= _STREAMS:
            for other in [one for one in self._ins if one not in self._state.table.adverts]:
                self._forget(other)
        self._forget(node)
        one = self._ins[node] = _In(life, stream, done)
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
        elif number in one.under_way:
            pass
        elif after > one.done and after not in one.later and after not in one.under_way:
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
        there: bool | Later = False
        try:
            there = self.deliver(node, key, body, wanted == "ask")
        finally:
            if isinstance(there, bool):
                self._settle(node, one, number, wanted, there)
            else:
                one.under_way.add(number)
                there.done = partial(self._take_outcome, node, one, number, wanted)

    def _take_outcome(self, node: str, one: _In, number: int, wanted: str, there: bool) -> None:
        """Take what has become of a letter that another worker was given."""
        if self._ins.get(node) is one and number in one.under_way:
            one.under_way.discard(number)
            self._settle(node, one, number, wanted, there)
            if self._at_once:
                self._wake(self._state.now())

    def _settle(self, node: str, one: _In, number: int, wanted: str, there: bool) -> None:
        """Note what has become of a letter."""
        if not there:
            one.failed[number] = None
            one.unsaid.append(number)
            wanted = "ask"
        if number == one.done + 1:
            one.done = number
            if one.later:
                self._advance(one)
        else:
            one.later.add(number)
            if there:
                one.news.append(number)
        if there and wanted != "ask" and one.confirm != _NEVER and one.count < AT_ONCE - 1:
            one.count += 1  # it is confirmed with others, as most are
            return
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
        one.under_way = {number for number in one.under_way if number >= floor}
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
        elif one.confirm == _NEVER:
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
        one.count, one.confirm = 0, _NEVER
        one.told, one.doubted = one.done, one.done + 1
        one.unsaid = [number for number in one.unsaid if number > one.done]
        one.news = []
        self._letters.send(node, words, body)

    def acting(self, now: float) -> Steps[None]:
        """Confirm what is due, in steps."""
        self.confirm()
        for node in list(self._confirming):
            one = self._ins.get(node)
            if one is None or one.confirm <= now:
                self._confirm(node)
                yield
            else:
                self._wake(one.confirm)


def _join(numbers: Iterable[int]) -> bytes:
    return b" ".join([b"%d" % one for one in numbers])
