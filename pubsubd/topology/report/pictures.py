"""The charts of a report; each one is an ``<svg>`` element, or None where there is nothing to see.

What has more than :data:`MARKS` marks is drawn as pixels inside the picture, so that a page stays
small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullFormatter, NullLocator

from pubsubd.topology.report.canvas import FONT, Ink, draw
from pubsubd.topology.report.data import MeshReport
from pubsubd.topology.report.mesh_picture import NARROW, WIDE, mesh_picture
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import number, percent, shorten, utc

MARKS = 2_000
COLUMNS = 240
"""Windows side by side, at most: more would be narrower than a pixel, and are put together."""
_ROWS = 40
_UP = LinearSegmentedColormap.from_list(
    "up", [(0, "#6d0f26"), (0.5, "#cf3f34"), (0.9, "#eda84c"), (0.99, "#c9c98a"), (1, "#6fae93")]
)
_Point = tuple[float, float]


def pictures_of(mesh: MeshReport, facts: SnapshotView, key: str) -> dict[str, str]:
    """Return the pictures of a mesh: name -> SVG.

    Args:
        mesh: what is known of it.
        facts: its snapshot.
        key: what the ids in the pictures begin with, unique in the page.
    """
    gone = mesh.incident.gone if mesh.incident else ()
    every: dict[str, Callable[[str], str | None]] = {
        "mesh": lambda name: mesh_picture(facts, name, gone, WIDE),
        "mesh-narrow": lambda name: mesh_picture(facts, name, gone, NARROW),
        "degrees": lambda name: degrees(facts, name),
        "hops": lambda name: hops(facts, name),
        "resilience": lambda name: resilience(facts, name),
        "availability": lambda name: availability(mesh, name),
        "churn": lambda name: churn(mesh, name),
        "trend": lambda name: trend(mesh, name),
    }
    drawn = {name: paint(f"{key}-{name}") for name, paint in every.items()}
    return {name: picture for name, picture in drawn.items() if picture is not None}


def degrees(facts: SnapshotView, key: str) -> str | None:
    """Draw how many daemons have how many links, both axes logarithmic."""
    points = [(x, y) for x, y in facts.histogram("degree") if x > 0 and y > 0]
    if not points:
        return None
    xs, ys = np.array(points).T
    at_least = ys[::-1].cumsum()[::-1]

    def paint(figure: Figure) -> None:
        axes = _axes(figure, "links of a daemon", "daemons")
        pixels = len(points) > MARKS
        axes.step(
            [0.85, *xs],
            [at_least[0], *at_least],
            where="pre",
            color=Ink.SOFT,
            linewidth=1.6,
            rasterized=pixels,
        )
        axes.plot(xs, ys, "o", color=Ink.BLUE, markersize=3.2, rasterized=pixels)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlim(0.85, max(xs[-1] * 1.25, 4))
        axes.set_ylim(0.7, at_least[0] * 1.8)
        _plain(axes.xaxis, xs[-1])
        _plain(axes.yaxis, at_least[0])
        _say(axes, 0.98, 0.95, "this many links or more", Ink.MUTED, "right")
        _say(axes, 0.98, 0.87, "exactly this many", Ink.BLUE, "right")

    return draw(key, f"Degree distribution of {number(ys.sum())} linked daemons", paint)


def hops(facts: SnapshotView, key: str) -> str | None:
    """Draw the share of pairs of daemons at each distance."""
    points = [(x, y) for x, y in facts.histogram("hops") if x > 0 and y > 0]
    if not points:
        return None
    xs, ys = np.array(points).T
    shares = ys / ys.sum()
    mean, most = facts.value("hops_mean"), facts.value("effective_diameter")

    def paint(figure: Figure) -> None:
        axes = _axes(figure, "hops", "pairs of daemons")
        if len(xs) > 60:
            axes.fill_between(xs, shares, step="mid", color=Ink.BLUE, linewidth=0)
        else:
            axes.bar(xs, shares, width=0.78, color=Ink.BLUE, linewidth=0)
        axes.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
        axes.set_xlim(0.4, max(xs[-1], 3) + 0.6)
        axes.set_ylim(0, shares.max() * 1.28)
        middle = 0.4 * max(xs[-1], 3)
        for value, word, side in (
            (mean, "mean", "right" if (mean or 0) > middle else "left"),
            (most, "90 % within", "left" if (most or 0) < 1.6 * middle else "right"),
        ):
            if value is not None:
                height = 0.95 if word == "mean" else 0.87
                axes.axvline(value, color=Ink.ORANGE, linewidth=1, dashes=(3, 2))
                axes.text(
                    value + (0.012 if side == "left" else -0.012) * xs[-1],
                    shares.max() * 1.28 * height,
                    f"{word} {number(value, 3)}",
                    color=Ink.ORANGE,
                    ha=side,
                    va="center",
                )

    return draw(
        key, f"Hops between daemons: mean {number(mean)}, 90 % within {number(most)}", paint
    )


def resilience(facts: SnapshotView, key: str) -> str | None:
    """Draw what is left of the mesh and of its twin while daemons are removed."""
    curves = (
        ("random", "this mesh, at random", Ink.BLUE, "-"),
        ("targeted", "this mesh, hubs first", Ink.RED, "-"),
        ("twin_random", "twin, at random", Ink.BLUE, (0, (2, 2))),
        ("twin_targeted", "twin, hubs first", Ink.RED, (0, (2, 2))),
    )
    points = {name: facts.curve(name) for name, *_ in curves}
    if not points["random"] and not points["targeted"]:
        return None

    def paint(figure: Figure) -> None:
        axes = _axes(figure, "daemons removed", "daemons still connected")
        for name, label, colour, dashes in curves:
            if points[name]:
                xs, ys = zip(*points[name], strict=True)
                axes.plot(xs, ys, color=colour, linestyle=dashes, linewidth=1.5, label=label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
            axis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1.02)
        axes.legend(
            loc="upper right",
            frameon=False,
            labelcolor=Ink.TEXT,
            fontsize=FONT - 0.7,
            handlelength=1.7,
            borderaxespad=0,
        )

    lost = percent(facts.value("half_lost_targeted"))
    return draw(key, f"Resilience: half is lost after {lost} of the daemons, hubs first", paint)


def churn(mesh: MeshReport, key: str) -> str | None:
    """Draw how many daemons there were, came and went in each window."""
    rows = mesh.churn.sort_by("window").to_pylist()
    if len(rows) < 2:
        return None
    every = [row["window"] for row in rows]
    there, came, went = (
        fold(np.array([row[name] or 0 for row in rows]), every, how)
        for name, how in (("daemons", np.minimum), ("joined", np.add), ("left", np.add))
    )
    windows = fold_times(every)
    xs = np.arange(len(windows))

    def paint(figure: Figure) -> None:
        upper = figure.add_axes((0.13, 0.57, 0.83, 0.35))
        lower = figure.add_axes((0.13, 0.15, 0.83, 0.32), sharex=upper)
        upper.step(xs, there, where="mid", color=Ink.BLUE, linewidth=1.4)
        room = max(there.max() - there.min(), 1) * 0.25
        upper.set_ylim(max(there.min() - room, 0), there.max() + room)
        _say(upper, 0.0, 1.06, "daemons", Ink.BLUE, "left")
        for values, colour in ((came, Ink.GREEN), (-went, Ink.RED)):
            if len(windows) > 60:
                lower.fill_between(xs, values, step="mid", color=colour, linewidth=0)
            else:
                lower.bar(xs, values, width=0.8, color=colour, linewidth=0)
        lower.axhline(0, color=Ink.MUTED, linewidth=0.6)
        top = max(came.max(), went.max(), 1) * 1.15
        lower.set_ylim(-top if went.any() else -0.3, top if came.any() else 0.3)
        lower.yaxis.set_major_formatter(FuncFormatter(lambda y, _: number(abs(y))))
        _say(lower, 0.0, 1.07, "joined", Ink.GREEN, "left")
        _say(lower, 0.14, 1.07, "left", Ink.RED, "left")
        for axes in (upper, lower):
            axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
            axes.set_xlim(-0.6, len(windows) - 0.4)
            axes.grid(axis="y", color=Ink.RULE, linewidth=0.6)
            axes.set_axisbelow(True)
        upper.tick_params(labelbottom=False)
        _times(lower, windows)

    title = f"Churn: {number(came.sum())} joined and {number(went.sum())} left"
    return draw(key, f"{title} in {len(rows):,} windows", paint)


def trend(mesh: MeshReport, key: str) -> str | None:
    """Draw the single points of failure of each window, and the parts of the mesh."""
    lines = (
        ("articulation_daemons", "articulation daemons", Ink.RED),
        ("bridges", "bridges", Ink.ORANGE),
        ("components", "components", Ink.BLUE),
    )
    found: dict[str, dict[datetime, float]] = {name: {} for name, *_ in lines}
    for row in mesh.series.to_pylist():
        if row["name"] in found and row["value"] is not None:
            found[row["name"]][row["window"]] = row["value"]
    every = sorted({window for values in found.values() for window in values})
    if len(every) < 2:
        return None
    windows = fold_times(every)

    def paint(figure: Figure) -> None:
        axes = _axes(figure, "", "", bottom=0.15)
        for index, (name, label, colour) in enumerate(lines):
            values = np.array([found[name].get(window, np.nan) for window in every])
            most = fold(values, every, np.fmax)
            axes.step(np.arange(len(windows)), most, where="mid", color=colour, linewidth=1.4)
            _say(axes, (0, 0.42, 0.63)[index], 1.05, label, colour, "left")
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set_xlim(-0.6, len(windows) - 0.4)
        axes.set_ylim(0, max(axes.get_ylim()[1] * 1.08, 1.2))
        _times(axes, windows)

    return draw(key, f"Single points of failure in {len(every):,} windows", paint)


def availability(mesh: MeshReport, key: str) -> str | None:
    """Draw how much of each window each of the worst daemons was up."""
    rows = [row for row in mesh.availability.to_pylist() if row["availability"] is not None]
    windows = sorted({row["window"] for row in rows})
    if not rows:
        return None
    # Windows of the others as well: a daemon may be missing in some.
    windows = sorted({*windows, *mesh.churn["window"].to_pylist()})
    column = {window: index for index, window in enumerate(windows)}
    names = sorted({row["id"] for row in rows})
    line = {name: index for index, name in enumerate(names)}
    cells = np.full((len(names), len(windows)), np.nan)
    for row in rows:
        cells[line[row["id"]], column[row["window"]]] = row["availability"]
    known = np.isfinite(cells)
    means = np.where(known, cells, 0).sum(axis=1) / known.sum(axis=1)
    order = sorted(range(len(names)), key=lambda index: (means[index], names[index]))[:_ROWS]
    cells, names = cells[order], [names[index] for index in order]
    cells, windows = fold(cells, windows, np.fmin), fold_times(windows)

    height = 0.75 + 0.19 * len(names)
    labels = [shorten(name, 18) for name in names]
    left = 0.015 + min(0.0105 * max(map(len, labels)), 0.19)

    def paint(figure: Figure) -> None:
        bottom, top = 0.27 / height, 0.42 / height
        axes = figure.add_axes((left, bottom, 0.985 - left, 1 - bottom - top))
        image = axes.imshow(cells, cmap=_UP, vmin=0, vmax=1, aspect="auto", interpolation="none")
        axes.set_yticks(range(len(names)), labels)
        axes.tick_params(axis="y", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xticks(np.arange(0.5, len(windows) - 1), minor=True)
        axes.set_yticks(np.arange(0.5, len(names) - 1), minor=True)
        axes.grid(which="minor", axis="y", color=Ink.PAPER, linewidth=1.2)
        if len(windows) <= 60:
            axes.grid(which="minor", axis="x", color=Ink.PAPER, linewidth=0.8)
        axes.tick_params(which="minor", length=0)
        _times(axes, windows, columns=8)
        scale = figure.add_axes((0.96 - 0.2, 1 - 0.2 / height, 0.2, 0.1 / height))
        bar = figure.colorbar(image, cax=scale, orientation="horizontal", ticks=[0, 0.5, 1])
        bar.ax.set_xticklabels(["0 %", "50 %", "100 % up"])
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, pad=1)

    title = f"Availability of the {len(names)} worst daemons in {len(windows):,} columns of time"
    return draw(key, title, paint, width=8.4, height=height)


def fold(values: np.ndarray, windows: Sequence[datetime], how: np.ufunc) -> np.ndarray:
    """Put windows together until at most :data:`COLUMNS` are left.

    Args:
        values: the last axis is of the windows.
        windows: when they began; see :func:`fold_times`.
        how: what becomes of the values of several: the worst of them is to be seen.
    """
    starts = np.arange(0, len(windows), _width(windows))
    return np.asarray(how.reduceat(values, starts, axis=-1))


def fold_times(windows: Sequence[datetime]) -> list[datetime]:
    """Return the start of each column of :func:`fold`."""
    return list(windows[:: _width(windows)])


def _width(windows: Sequence[datetime]) -> int:
    return max(math.ceil(len(windows) / COLUMNS), 1)


def _axes(figure: Figure, x: str, y: str, *, bottom: float = 0.19) -> Axes:
    """Return the axes of a chart, with a quiet grid; ``y`` stands above the axis, unturned."""
    axes = figure.add_axes((0.13, bottom, 0.83, 0.895 - bottom))
    axes.grid(color=Ink.RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(x)
    _say(axes, -0.12, 1.06, y, Ink.TEXT, "left")
    return axes


def _say(axes: Axes, x: float, y: float, text: str, colour: str, side: str) -> None:
    axes.text(x, y, text, color=colour, ha=side, va="center", transform=axes.transAxes)


def _plain(axis: object, most: float) -> None:
    """Label a logarithmic axis with plain numbers: powers of ten, and 2 and 5 if it is short."""
    factors = range(1, 10) if most <= 9 else (1, 2, 5) if most < 300 else (1,)
    ticks = [f * 10.0**e for e in range(13) for f in factors if f * 10**e <= most * 1.3]
    axis.set_major_locator(FixedLocator(ticks))  # type: ignore[attr-defined]
    axis.set_major_formatter(FuncFormatter(lambda x, _: number(x)))  # type: ignore[attr-defined]
    axis.set_minor_locator(NullLocator())  # type: ignore[attr-defined]
    axis.set_minor_formatter(NullFormatter())  # type: ignore[attr-defined]


def _times(axes: Axes, windows: Sequence[datetime], columns: int = 4) -> None:
    """Label columns of time: days where they are many, else hours."""
    moments = [utc(window) for window in windows]
    step = max(math.ceil(len(moments) / columns), 1)
    # The last label needs room on its right.
    ticks = [tick for tick in range(0, len(moments), step) if tick <= 0.82 * len(moments)]
    days = (moments[-1] - moments[0]).total_seconds() > 5 * 86_400
    axes.set_xticks(ticks)
    form = "%d %b" if days else "%d %b %H:%M"
    axes.set_xticklabels([f"{moments[tick]:{form}}" for tick in ticks])
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("left" if len(ticks) > 1 else "center")
