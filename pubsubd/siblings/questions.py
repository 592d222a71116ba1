"""Questions of one worker to all others, and their answers, without I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from pubsubd.broker.delivery import Delivery
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import MIB
from pubsubd.siblings import frames

PATIENCE = 1.0
"""Seconds after which a worker that has not answered is taken not to."""

MAX_ANSWER = 4 * MIB
"""Bytes of an answer; a longer one is not given."""

MAX_ASKED = 10_000
"""Questions that are waited for; a further one is answered as if nobody did."""


class Other(Protocol):
    """Another worker, as one that asks and answers.

    Attributes:
        out: whether it has nothing more to say for its clients.
    """

    number: int
    label: str
    peer: Peer
    out: bool

    def say(self, kind: int, data: bytes = b"") -> None:
        """Send a frame."""


class Later(Protocol):
    """An answer that takes time, in which others are answered.

    Attributes:
        answer: the answer, once it is there.
        done: called then.
    """

    answer: bytes
    done: Callable[[], None]


Question = Callable[[bytes], bytes | Later | Steps[bytes] | Steps[bytes | Later]]
"""Called with the data of a question; returns the answer, or how it is made.

What it raises is an answer that is none.
"""


class Answers:
    """The answers to one question.

    Args:
        asked: numbers of those that are waited for.
        deadline: until when.

    Attributes:
        got: number of a worker -> its answer, of those that have answered.
        silent: numbers of those that have not in time, or could not.
        done: called when nobody is waited for any more.
        waiting: numbers of those that have not answered yet.
    """

    def __init__(self, asked: Iterable[int], deadline: float) -> None:
        self.got: dict[int, bytes] = {}
        self.silent: list[int] = []
        self.done: Callable[[], None] = lambda: None
        self.waiting = set(asked)
        self.deadline = deadline

    def settle(self, number: int, answer: bytes | None) -> None:
        """Take what has come of one worker."""
        if number in self.waiting:
            self.waiting.remove(number)
            if answer is None:
                self.silent.append(number)
            else:
                self.got[number] = answer
            if not self.waiting:
                self.done()


def telling_errors(answer: Question) -> Question:
    """Return a question whose errors are told, for :meth:`Questions.ask_one`."""

    def tell(data: bytes) -> Steps[bytes | Later]:
        try:
            found = answer(data)
            if isinstance(found, Generator):
                found = yield from found
            return b"+" + found if isinstance(found, bytes) else found
        except ProtocolError as error:
            return f"-{error.code} {error.text}".encode()

    return tell


class Questions(dict[bytes, Question]):
    """The questions that siblings may ask here, by name; and those that are asked there.

    Args:
        others: the workers with a link.
        delivery: this worker's.
        clock: seconds that only go forward.
        asked: called when :meth:`expire` is to be called at another time than was said.

    Attributes:
        woken: called when :meth:`work` is to be called soon.
    """

    def __init__(
        self,
        others: Mapping[int, Other],
        delivery: Delivery,
        clock: Callable[[], float],
        asked: Callable[[], None],
    ) -> None:
        super().__init__()
        self._others, self._delivery = others, delivery
        self._clock, self._told = clock, asked
        self._to_answer: deque[tuple[float, Other, bytes]] = deque()
        self._answering: Iterator[None] | None = None
        self.woken: Callable[[], None] = lambda: None
        self._asked: dict[int, Answers] = {}
        self._due = float("inf")  # when :meth:`expire` will be called at the latest
        self._serial = 0

    def ask(self, name: bytes, data: bytes, patience: float = PATIENCE) -> Steps[Answers]:
        """Return what all siblings answer, in steps; the speaker's input waits for them.

        Args:
            name: of the question.
            data: of it.
            patience: seconds that they have.
        """
        answers = self.send(name, data, patience)
        while answers.waiting:
            self._delivery.on_wait(answers)
            self._delivery.turn.end()
            yield
        return answers

    def ask_one(
        self, number: int, name: bytes, data: bytes, patience: float = PATIENCE
    ) -> Steps[bytes]:
        """Return what one sibling answers, in steps, as :meth:`ask`.

        Raises:
            ProtocolError: ``worker-silent``, it does not; or what the sibling has raised.
        """
        only = [one for one in self._others.values() if one.number == number]
        answers = self.send(name, data, patience, only)
        while answers.waiting:
            self._delivery.on_wait(answers)
            self._delivery.turn.end()
            yield
        if number not in answers.got:
            raise ProtocolError("worker-silent", f"worker {number} does not answer")
        text = answers.got[number]
        if text[:1] == b"-":
            code, _, why = text[1:].decode().partition(" ")
            raise ProtocolError(code, why)
        return text[1:]

    def send(
        self,
        name: bytes,
        data: bytes,
        patience: float = PATIENCE,
        only: Sequence[Other] | None = None,
    ) -> Answers:
        """Ask all siblings, or some, and return where their answers will be."""
        asked = list(self._others.values()) if only is None else only
        answers = Answers([one.number for one in asked], self._clock() + patience)
        if len(self._asked) >= MAX_ASKED:
            for number in list(answers.waiting):
                answers.settle(number, None)
            return answers
        self._serial += 1
        self._asked[self._serial] = answers
        if answers.deadline < self._due:
            self._due = answers.deadline
            self._told()
        for sibling in asked:
            sibling.say(frames.ASK, b"%d %b\n%b" % (self._serial, name, data))
        return answers

    def take_question(self, sibling: Other, data: bytes) -> None:
        """Take a question of a sibling; :meth:`work` answers it, so that messages need not wait."""
        self._to_answer.append((self._clock() + PATIENCE, sibling, data))
        self.woken()

    def work(self) -> bool:
        """Answer questions until the turn is over; return whether there are more.

        Those that nobody waits for any more are left out.
        """
        over, clock = self._delivery.turn.over, self._clock
        while True:
            if self._answering is None:
                if not self._to_answer:
                    return False
                until, sibling, data = self._to_answer.popleft()
                if clock() >= until or sibling.out or sibling.peer.ending is not None:
                    continue
                self._answering = self._answer(sibling, data)
            for _ in self._answering:
                if over():
                    return True
            self._answering = None
            if over():
                return True

    def _answer(self, sibling: Other, data: bytes) -> Iterator[None]:
        """Answer a question of a sibling, in steps."""
        head, _, body = data.partition(b"\n")
        serial, _, name = head.partition(b" ")
        try:
            found = self[name](body)
            if isinstance(found, Generator):
                found = yield from found
            if not isinstance(found, bytes):
                found.done = partial(self._answer_later, sibling, serial, found)
                return
            if len(found) > MAX_ANSWER:
                raise ProtocolError("answer-too-large", f"{len(found)} bytes")
        except ProtocolError:
            sibling.say(frames.ANSWER, b"%b -" % serial)
        except Exception as error:  # noqa: BLE001  (who has asked gets no answer)
            self._delivery.faults.note(error, sibling.label)
            sibling.say(frames.ANSWER, b"%b -" % serial)
        else:
            sibling.say(frames.ANSWER, b"%b +%b" % (serial, found))

    def _answer_later(self, sibling: Other, serial: bytes, found: Later) -> None:
        sibling.say(frames.ANSWER, b"%b ++%b" % (serial, found.answer))

    def take(self, sibling: Other, data: bytes) -> None:
        """Take an answer."""
        serial, _, answer = data.partition(b" ")
        answers = self._asked.get(int(serial))
        if answers is not None:
            answers.settle(sibling.number, answer[1:] if answer[:1] == b"+" else None)
            if not answers.waiting:
                self._asked.pop(int(serial), None)

    def forget(self, sibling: Other) -> None:
        """Wait for a sibling no longer: its link has ended."""
        for serial, answers in list(self._asked.items()):
            answers.settle(sibling.number, None)
            if not answers.waiting:
                self._asked.pop(serial, None)

    @property
    def due(self) -> float:
        """When :meth:`expire` is to be called."""
        self._due = min((one.deadline for one in self._asked.values()), default=float("inf"))
        return self._due

    def expire(self, now: float) -> None:
        """Wait no longer for answers that are late."""
        for serial, answers in list(self._asked.items()):
            if answers.deadline <= now:
                for number in list(answers.waiting):
                    answers.settle(number, None)
                self._asked.pop(serial, None)
