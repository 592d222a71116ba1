"""The tables of README's "How fast", made from what was measured: ``--markdown``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .cases import PEERS, Target
from .floors import C_RELAY, PYTHON_RELAY
from .hubcases import WEB_PEERS
from .report import Result, judge
from .servers import SCANNER

_NAMES = {"nats": "nats-server"}
Cell = Callable[[Result], str]


@dataclass(frozen=True)
class Row:
    """A line of a table: what it says first, the case it is of, and how its cells are made.

    It is about `server`.
    """

    label: str
    case: str
    cells: tuple[Cell, ...]
    server: str = "pubsubd"


@dataclass(frozen=True)
class Table:
    """A table of README: the titles of its columns, and its lines."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """The line that the table begins with."""
        return _line_of(self.head)

    def lines(self, results: Sequence[Result]) -> dict[str, str]:
        """By their labels, the lines whose cases are in `results` and have a figure."""
        by_case = {result.case.name: result for result in results}
        return {
            row.label: _line_of([row.label, *(cell(by_case[row.case]) for cell in row.cells)])
            for row in self.rows
            if row.case in by_case and by_case[row.case].readings.get(row.server)
        }


def _line_of(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def markdown(results: Sequence[Result]) -> str:
    """All tables with the lines that `results` have something for, an empty line between them."""
    texts = []
    for table in TABLES:
        if lines := table.lines(results):
            rule = "|---" * len(table.head) + "|"
            texts.append("\n".join([table.title, rule, *lines.values(), ""]))
    return "\n".join(texts)


def check(page: str, cases: Sequence[str]) -> None:
    """Raise ValueError if `page` lacks a line for one of these cases."""
    for table in TABLES:
        for row in table.rows:
            if row.case in cases:
                _place(page, table, row.label)


def fill(page: str, results: Sequence[Result]) -> str:
    """`page` with the lines that `results` have something for, instead of the old ones."""
    for table in TABLES:
        for label, line in table.lines(results).items():
            start, end = _place(page, table, label)
            page = page[:start] + line + page[end:]
    return page


def _place(page: str, table: Table, label: str) -> tuple[int, int]:
    """Where the line with that label begins and ends."""
    start = page.find(table.title + "\n")
    if start < 0:
        raise ValueError(f"no table that begins with {table.title!r}")
    at = page.find(f"\n| {label} |", start, page.find("\n\n", start))
    if at < 0:
        raise ValueError(f"no line {label!r} in the table that begins with {table.title!r}")
    return at + 1, page.index("\n", at + 1)


def _ratio(
    metric: str,
    peers: tuple[str, ...] = (),
    base: str = "",
    lower: bool = False,
    spread: bool = True,
    server: str = "pubsubd",
) -> Cell:
    """``2.1 (2 to 2.2)``: a ratio with its quartiles."""

    def cell(result: Result) -> str:
        verdict = judge(result, Target(metric, None, peers, base, lower, server=server))
        if verdict.measured is None:
            return "-"
        low, high = _short(verdict.low), _short(verdict.high)
        return _short(verdict.measured) + (f" ({low} to {high})" if spread and low != high else "")

    return cell


def _short(value: float) -> str:
    """Two significant digits."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _values(metric: str, unit: str, peers: tuple[str, ...] = ()) -> Cell:
    """``6.2 KiB; nats-server 20``: what was measured, and what of the peers."""

    def cell(result: Result) -> str:
        own = result.middle("pubsubd", metric)
        others = [(_NAMES.get(peer, peer), result.middle(peer, metric)) for peer in peers]
        told = [f"{name} {_short(value)}" for name, value in others if value is not None]
        return "; ".join([f"{'-' if own is None else _short(own)} {unit}", *told])

    return cell


def _floors(metric: str, server: str = "pubsubd", lower: bool = False) -> Cell:
    """``0.75; 0.6``: beside the relays in Python and in C; empty where neither was measured."""

    def cell(result: Result) -> str:
        relays = PYTHON_RELAY, C_RELAY
        if not any(result.values(relay, metric) for relay in relays):
            return ""
        ratio = partial(_ratio, metric, lower=lower, spread=False, server=server)
        return "; ".join(ratio((relay,))(result) for relay in relays)

    return cell


def _line(label: str, case: str, metric: str = "rate", server: str = "pubsubd") -> Row:
    cells = (
        _ratio(metric, PEERS, server=server),
        _ratio("cpu_s", PEERS, lower=True, spread=False, server=server),
        _floors(metric, server),
    )
    return Row(label, case, cells, server)


def _hub(
    label: str, case: str, metric: str = "deliveries", peers: tuple[str, ...] = WEB_PEERS
) -> Row:
    cells = (
        _ratio(metric, peers),
        _ratio("cpu_s", peers, lower=True, spread=False),
        _floors(metric),
    )
    return Row(label, case, cells)


def _time(label: str, case: str, metric: str) -> Row:
    return Row(label, case, (_ratio(metric, PEERS, lower=True), _floors(metric, lower=True)))


def _link(label: str, case: str) -> Row:
    return Row(label, case, (_ratio("rate", ("nats",)), _floors("rate")))


def _one(label: str, case: str, *cells: Cell) -> Row:
    return Row(label, case, cells)


_FLOORS = "beside a bare relay in Python; in C"
_PER_SECOND = "messages a second"
_PROCESSOR = "processor time for a message"
TABLES = (
    Table(
        ("case", _PER_SECOND, _PROCESSOR, _FLOORS),
        (
            _line("1 publisher, 1 subscriber", "one-16"),
            _line("the same, 1 KiB", "one-1k"),
            _line("1 to 10", "fan-10"),
            _line("10 to 10", "all-to-all"),
            _line("1 to 100, 128 bytes", "fan-100"),
            _line("1,000 names in turn, one subscriber for all", "names-one"),
            _line("1,000 names in turn, with the compiled scanner", "names-one", server=SCANNER),
            _line("the same, 100 subscribers with 10 names each", "names-own"),
            _line("each name new", "new-names"),
            _line("each name new, with the compiled scanner", "new-names", server=SCANNER),
            _line("64 names with 100 lengths mixed", "mixed"),
            _line("64 names with 100 lengths mixed, with it", "mixed", server=SCANNER),
            _line("64 KiB", "big-64k"),
            _line("1 MiB", "big-1m"),
            _line("1 to 1 over TLS", "tls-16"),
            _line("1 to 10 over TLS, 1 KiB", "tls-fan-10"),
            _line("TLS handshakes", "tls-handshakes", "handshakes"),
        ),
    ),
    Table(
        ("case", "beside the better of nats-server and redis", _FLOORS),
        (
            _time("one message at a time, median", "latency", "median_us"),
            _time("the same, 99th percentile", "latency", "p99_us"),
            _time("the same, processor time", "latency", "cpu_s"),
            _time("99th percentile beside 10 publishers flat out", "latency-busy", "p99_us"),
            Row(
                "an idle connection",
                "idle-connections",
                (_values("kib_each", "KiB", PEERS), lambda _: ""),
            ),
        ),
    ),
    Table(
        ("case", _PER_SECOND, _PROCESSOR, "beside a relay of as many bytes in Python; in C"),
        (
            _hub("1 to 100, envelopes", "hub-fan-100-envelope"),
            _hub("1 to 100, Synap", "hub-fan-100-synap"),
            _hub("1 to 100, `hub:*`, whose frames are three times as long", "hub-fan-100"),
            _hub("from the line port to 100 WebSockets, envelopes", "line-to-ws-100-envelope"),
            _hub("from the line port to 100 WebSockets, `hub:*`", "line-to-ws-100"),
            _hub(
                "1 to 1, each message acknowledged, beside `websockets`",
                "ws-one-acked",
                "rate",
                ("websockets",),
            ),
        ),
    ),
    Table(
        ("case", "beside nats-server"),
        (
            _one(
                "one message and its acknowledgement, beside a request and its reply",
                "ws-publish-ack",
                _ratio("median_us", ("nats",), lower=True),
            ),
            _one("an idle registered actor", "idle-actors", _values("kib_each", "KiB", ("nats",))),
            _one("a regular expression over 50,000 actors", "discover", _values("answer_ms", "ms")),
            _one(
                "the longest wait of another client meanwhile",
                "discover",
                _values("line_wait_ms", "ms"),
            ),
        ),
    ),
    Table(
        ("case", "measured", "beside two bare relays in Python; in C"),
        (
            _link("from one daemon to another, beside nats-server", "mesh-two-16"),
            _link("the same, 1 KiB", "mesh-two-1k"),
            _one(
                "what a link adds to the time of one message, beside nats-server",
                "mesh-hop-latency",
                _ratio("hop_us", ("nats",), lower=True),
                lambda _: "",
            ),
            _one(
                "over 3 links in a row, beside one",
                "mesh-chain-16",
                _ratio("rate", base="two"),
                lambda _: "",
            ),
            _one(
                "what nobody wants elsewhere, beside the same without a mesh",
                "mesh-local",
                _ratio("with", base="without"),
                lambda _: "",
            ),
        ),
    ),
)
