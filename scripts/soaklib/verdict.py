"""What was seen, and whether that is as it should be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: it is.
        seen: the figure.
        good: whether that is as it should be; None if there is nothing to be judged.
    """

    what: str
    seen: str
    good: bool | None


@dataclass
class Verdict:
    """All that was seen of one scenario.

    Attributes:
        name: of the scenario.
        timed: whether times are judged; a short run on a busy machine only tells them.
    """

    name: str
    timed: bool
    checks: list[Check] = field(default_factory=list)

    def note(self, what: str, seen: object) -> None:
        """Tell a figure."""
        self.checks.append(Check(what, _line(seen), None))

    def check(self, what: str, seen: object, good: object) -> None:
        """Tell a figure, and whether it is as it should be."""
        self.checks.append(Check(what, _line(seen), bool(good)))

    def none(self, what: str, count: int, detail: object = "") -> None:
        """Tell a count that has to be 0."""
        self.check(what, f"{count:,} {detail if count else ''}".rstrip(), count == 0)

    def limit(self, what: str, seen: float, most: float, unit: str) -> None:
        """Tell a time, and if times are judged whether it is within its bound."""
        text = f"{seen:.3g} {unit} (at most {most:g})"
        if self.timed:
            self.check(what, text, seen <= most)
        else:
            self.note(what, text)

    @property
    def good(self) -> bool:
        """Whether nothing was seen that should not be."""
        return bool(self.checks) and all(one.good is not False for one in self.checks)

    def text(self) -> str:
        """The checks, a line each."""
        width = max((len(one.what) for one in self.checks), default=0)
        words = {None: "", True: "ok", False: "FAILED"}
        lines = [
            f"    {one.what:<{width}}  {one.seen}  {words[one.good]}".rstrip()
            for one in self.checks
        ]
        lines.append(f"{self.name}: {'passed' if self.good else 'FAILED'}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same for machines."""
        checks = [asdict(one) for one in self.checks]
        return {"name": self.name, "good": self.good, "timed": self.timed, "checks": checks}


def _line(seen: object) -> str:
    return " | ".join(str(seen).split("\n"))


def mib(size: float) -> str:
    return f"{size / 1024 / 1024:.1f} MiB"


def percentile(values: list[float], share: float) -> float:
    """The value that ``share`` of all are not above; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0
