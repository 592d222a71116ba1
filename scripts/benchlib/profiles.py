"""What perf and py-spy have seen, as shares of the time: see ``scripts/profile``."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

# Where trio's loop and its threads wait. (That a system call waits, py-spy cannot tell.)
_WAITING = re.compile(r"\b(get_events|wait|_work) \((trio/_core|.*threading\.py)")


@dataclass
class Profile:
    """Shares of the time, 1.0 is all: of `parts`, and of functions, as `(self, all)`.

    `all` is 0 where only `self` is known.
    """

    parts: dict[str, float] = field(default_factory=dict)
    functions: dict[str, tuple[float, float]] = field(default_factory=dict)

    def text(self, lines: int) -> str:
        """The largest `lines` parts and functions, a line each."""
        if not self.parts:
            return "        it was not at work meanwhile; look for longer (--seconds)"
        out = []
        for part, share in sorted(self.parts.items(), key=lambda p: -p[1])[:lines]:
            out.append(f"        {share:6.1%}  {part}")
        out.append(
            "        self   all" if any(a for _, a in self.functions.values()) else "        self"
        )
        for name, (own, total) in sorted(self.functions.items(), key=lambda f: -f[1][0])[:lines]:
            whole = f"{total:6.1%}  " if total else ""
            out.append(f"        {own:6.1%}  {whole}{name}")
        return "\n".join(out)


def parse_perf(report: str) -> Profile:
    """`perf report` with the fields overhead, dso and symbol, separated by bars."""
    profile = Profile()
    for line in report.splitlines():
        fields = [part.strip() for part in line.split("|")]
        if line.startswith("#") or len(fields) != 3 or not fields[0].endswith("%"):
            continue
        share = float(fields[0][:-1]) / 100
        part = _part(fields[1], fields[2])
        profile.parts[part] = profile.parts.get(part, 0.0) + share
        name = f"{fields[2].removeprefix('[k] ').removeprefix('[.] ')} ({part})"
        own, _ = profile.functions.get(name, (0.0, 0.0))
        profile.functions[name] = own + share, 0.0
    return profile


def _part(dso: str, symbol: str) -> str:
    if symbol.startswith("[k]") or dso.startswith("[kernel"):
        return "kernel"
    if re.match(r"(lib)?python\d", dso):
        return "interpreter"
    return dso


def parse_spy(raw: str, by_line: bool = False) -> Profile:
    """Stacks of py-spy, outermost first, each with its number of samples.

    The parts are modules, each with what its functions take themselves. With `by_line`,
    functions are told apart by the line they are at. What only waits is left out.
    """
    profile = Profile()
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    parts: Counter[str] = Counter()
    samples = 0
    for line in raw.splitlines():
        stack, _, number = line.rpartition(" ")
        if not number.isdigit():
            continue
        frames = stack.split(";")
        if _WAITING.search(frames[-1]):
            continue
        count = int(number)
        frames = [_function(frame, by_line) for frame in frames]
        samples += count
        own[frames[-1]] += count
        parts[frames[-1].partition(":")[0]] += count
        for name in set(frames):
            total[name] += count
    if samples:
        profile.parts = {part: count / samples for part, count in parts.items()}
        profile.functions = {
            name: (own[name] / samples, count / samples) for name, count in total.items()
        }
    return profile


def _function(frame: str, by_line: bool) -> str:
    """``broker/broker.py:receive`` for ``receive (/x/pubsubd/broker/broker.py:120)``."""
    match = re.fullmatch(r"(.*) \((.*?)(:\d+)?\)", frame)
    if match is None:
        return frame
    name, path, line = match[1], match[2], match[3] or ""
    for root in ("pubsubd/", "site-packages/"):
        path = path.rpartition(root)[2]
    return f"{path}:{name}{line if by_line else ''}"
