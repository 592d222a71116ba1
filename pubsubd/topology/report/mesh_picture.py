"""The picture of a mesh with its single points of failure.

Articulation daemons have the number that they have in the listing of the worst ones. In a small
mesh every daemon has its name; in a large one regions are discs, with the number of daemons.
Daemons that are gone are rings beside the neighbours that they had.

There are two frames: one for a wide page, and one for a narrow one, in which the mesh is turned.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pubsubd.topology.report.canvas import FONT, Ink, draw
from pubsubd.topology.report.data import Gone
from pubsubd.topology.report.snapshot_view import Row, SnapshotView
from pubsubd.topology.report.texts import count, number, shorten

_NAMED = 40  # daemons up to which each one has its name
_NUMBERED = 20  # articulation daemons with a number
_MARKS = 2_000  # more are drawn as pixels
_ASIDE = 0.1  # units between a mark and the line that it would lie on
_GONE = 20  # daemons that are gone and drawn, the latest ones

_BELOW, _ABOVE = 0.13, 0.06  # units around the marks, which are from 0 to 1
_SPAN_X, _SPAN_Y = 1.12, 1 + _BELOW + _ABOVE  # units of the whole picture


@dataclass(frozen=True)
class Frame:
    """Size of a picture.

    Attributes:
        width: inches.
        height: inches, of a mesh that needs all of it.
        turned: the layout is drawn upright; it is wider than high.
        columns: entries of the legend side by side.
    """

    width: float
    height: float
    turned: bool
    columns: int

    @property
    def unit(self) -> tuple[float, float]:
        """Points of one unit, across and up."""
        return 72 * self.width / _SPAN_X, 72 * self.height / _SPAN_Y


WIDE = Frame(8.4, 5.2, False, 6)
NARROW = Frame(4.4, 6.4, True, 2)

_SPREAD = 500  # marks up to which they are kept apart
_ROUNDS = 80
_Place = tuple[float, float]

_DISCS = {"region", "cut-off"}
_WITH_NAMES = ("daemon", "articulation", "gone")  # roles of marks that have names
_COLOURS = {
    "gone": Ink.PAPER,
    "daemon": Ink.BLUE,
    "region": Ink.SLATE,
    "cut-off": Ink.ORANGE,
    "articulation": Ink.RED,
}


def mesh_picture(
    facts: SnapshotView, key: str, gone: Sequence[Gone] = (), frame: Frame = WIDE
) -> str | None:
    """Draw the mesh; None if there are no daemons, or none that could be drawn."""
    nodes, links = facts.map_nodes, facts.map_links
    if not nodes:
        return None

    lost, losses = _gone_marks(facts, nodes, gone[:_GONE])
    nodes, links = nodes + lost, links + losses
    ranks = _ranks(facts)
    at = place(nodes, ranks, frame)
    low, high = min(y for _, y in at.values()), max(y for _, y in at.values())

    def paint(figure: Figure) -> None:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(-0.06, _SPAN_X - 0.06)
        axes.set_ylim(low - _BELOW, high + _ABOVE)
        pixels = len(nodes) + len(links) > _MARKS
        _paint_links(axes, links, at, pixels)
        _paint_nodes(axes, nodes, at, radii(nodes, ranks, frame), pixels)
        _paint_labels(axes, nodes, at, ranks, frame)
        _paint_legend(axes, {row["name"] for row in nodes}, links, frame)

    title = (
        f"The mesh: {count(facts.whole('daemons'), 'daemon')},"
        f" {count(facts.whole('links'), 'link')},"
        f" {count(len(facts.articulation), 'articulation daemon')},"
        f" {count(len(facts.bridges), 'bridge')}"
    )
    title += f", {count(len(gone), 'daemon')} gone" if gone else ""
    # As high as what is in it.
    height = (high - low + _BELOW + _ABOVE) * frame.unit[1] / 72
    return draw(key, title, paint, width=frame.width, height=height)


def _gone_marks(
    facts: SnapshotView, nodes: list[Row], gone: Sequence[Gone]
) -> tuple[list[Row], list[Row]]:
    """Return marks of daemons that are gone, between their former neighbours, and the links."""
    at = {row["id"]: (row["x"], row["y"]) for row in nodes}
    regions = facts.regions_of({name for one in gone for name in one.neighbours})
    marks: list[Row] = []
    links: list[Row] = []
    for index, one in enumerate(gone):
        around = {
            next((key for key in keys if key in at), "")
            for keys in (
                (f"daemon:{name}", name, f"region:{regions.get(name)}", "region:others")
                for name in one.neighbours
            )
        } - {""}
        x, y = _beside([at[end] for end in sorted(around)]) or (1.0, (index % 12) / 12)
        mark = {"id": f"gone:{one.id}", "text": one.id, "name": "gone", "size": 1, "value": 0.0}
        marks.append(mark | {"x": x, "y": y})
        links += [
            {"id": f"gone:{one.id}", "other": end, "name": "lost", "size": 1}
            for end in sorted(around)
        ]
    return marks, links


def _beside(ends: list[_Place]) -> _Place | None:
    """Return the place of a mark between others, but not on a line between two."""
    if not ends:
        return None
    x, y = (sum(side) / len(ends) for side in zip(*ends, strict=True))
    if len(ends) > 2:
        return x, y
    # Away from a single one, or from the line, on the side that is nearer to the middle.
    across = (ends[0][1] - ends[-1][1], ends[-1][0] - ends[0][0]) if len(ends) == 2 else (0.0, 1.0)
    length = math.hypot(*across) or 1.0
    dx, dy = (_ASIDE * part / length for part in across)
    if dx * (0.5 - x) + dy * (0.5 - y) < 0:
        dx, dy = -dx, -dy
    return x + dx, y + dy


def place(
    nodes: list[Row], numbered: Container[str] = (), frame: Frame = WIDE
) -> dict[str, _Place]:
    """Return the place of each mark, in the units of the axes, so that none hides another.

    The layout knows of no sizes: marks that overlap push each other away, half as far each, again
    and again (a projection method, as in position based dynamics; Mueller et al. 2007).
    """
    points = np.array(frame.unit)
    axes = ("y", "x") if frame.turned else ("x", "y")
    places = np.array([[row[axis] for axis in axes] for row in nodes]) * points
    sizes = radii(nodes, numbered, frame)
    if len(nodes) <= _SPREAD:
        needed = sizes[:, None] + sizes[None, :] + 2
        np.fill_diagonal(needed, 0)
        # What lies on the same spot goes apart in directions that depend on the order alone.
        angles = np.arange(len(nodes)) * 2.399963
        places = places + 1e-3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for _ in range(_ROUNDS):
            away = places[:, None, :] - places[None, :, :]
            distance = np.sqrt((away**2).sum(axis=2))
            overlap = np.maximum(needed - distance, 0)
            if not overlap.any():
                break
            step = 0.5 * overlap / np.maximum(distance, 1e-9)
            places = places + 0.7 * (step[:, :, None] * away).sum(axis=1)
            places = np.clip(places, 0, points)
    return {
        row["id"]: (float(x), float(y)) for row, (x, y) in zip(nodes, places / points, strict=True)
    }


def _ranks(facts: SnapshotView) -> dict[str, int]:
    worst = facts.articulation.slice(0, _NUMBERED)["id"].to_pylist()
    return {name: rank for rank, name in enumerate(worst, 1)}


def _paint_links(axes: Axes, links: list[Row], at: dict[str, _Place], pixels: bool) -> None:
    for role, colour, width, order in (
        ("lost", Ink.MUTED, 0.9, 0),
        ("link", Ink.SOFT, 0.9, 1),
        ("bridge", Ink.RED, 1.5, 2),
    ):
        chosen = [row for row in links if row["name"] == role]
        if chosen:
            faint = 0.75 if len(links) < 300 else 0.45
            axes.add_collection(
                LineCollection(
                    [(at[row["id"]], at[row["other"]]) for row in chosen],
                    colors=colour,
                    linewidths=[width * _thick(row["size"]) for row in chosen],
                    linestyles="dashed" if role == "lost" else "solid",
                    alpha=faint if role == "link" else 0.9,
                    zorder=order,
                    rasterized=pixels,
                )
            )


def _thick(size: int | None) -> float:
    return 1 + 0.35 * math.log10(max(size or 1, 1))


def radii(nodes: list[Row], numbered: Container[str] = (), frame: Frame = WIDE) -> np.ndarray:
    """Return the radius of each mark, points: the area of a disc stands for its number of daemons.

    Articulation daemons need room for a number if they are among ``numbered`` or are few.
    """
    discs = [row["size"] or 1 for row in nodes if row["name"] in _DISCS]
    most = max(discs, default=1)
    # All discs together cover a fifth of the picture at most.
    room = 0.2 * frame.width * frame.height * 72**2 / math.pi
    scale = min(26.0, math.sqrt(room / sum(size / most for size in discs))) if discs else 0.0
    single = 5.4 if len(nodes) <= _NAMED else 3.2 if len(nodes) <= 150 else 2.4

    def radius(row: Row) -> float:
        if row["name"] in _DISCS:
            return max(scale * math.sqrt((row["size"] or 1) / most), 3.4)
        if row["name"] == "gone":
            return 5.4
        if row["name"] != "articulation":
            return single
        small = len(nodes) > 100 and (row["text"] or row["id"]) not in numbered
        return 1.4 * single if small else 6.8

    return np.array([radius(row) for row in nodes])


def _paint_nodes(
    axes: Axes, nodes: list[Row], at: dict[str, _Place], sizes: np.ndarray, pixels: bool
) -> None:
    for order, role in enumerate(("region", "cut-off", "daemon", "gone", "articulation"), 3):
        chosen = [index for index, row in enumerate(nodes) if row["name"] == role]
        if chosen:
            xs, ys = zip(*(at[nodes[index]["id"]] for index in chosen), strict=True)
            axes.scatter(
                xs,
                ys,
                s=(2 * sizes[chosen]) ** 2,
                c=_COLOURS[role],
                edgecolors=Ink.RED if role == "gone" else Ink.PAPER,
                linewidths=1.3 if role == "gone" else 0.7,
                zorder=order,
                rasterized=pixels and role == "daemon",
            )


def _paint_labels(
    axes: Axes, nodes: list[Row], at: dict[str, _Place], ranks: dict[str, int], frame: Frame
) -> None:
    for row, radius in zip(nodes, radii(nodes, ranks, frame), strict=True):
        x, y = at[row["id"]]
        role, name = row["name"], row["text"] or row["id"]
        if role == "articulation" and name in ranks:
            _write(axes, x, y, str(ranks[name]), Ink.PAPER, 7.2, bold=True)
        elif role in _DISCS and radius >= 8:
            _write(axes, x, y, _short(row["size"]), Ink.PAPER, min(radius * 0.75, 9), bold=True)
        elif role == "gone":
            _write(axes, x, y, "\N{MULTIPLICATION SIGN}", Ink.RED, 9, bold=True)
        if role == "gone" or (len(nodes) <= _NAMED and role in _WITH_NAMES):
            below = (radius + 6) / frame.unit[1]
            _write(axes, x, y - below, shorten(name, 16), Ink.TEXT, FONT, bold=False)


def _write(
    axes: Axes, x: float, y: float, text: str, colour: str, size: float, *, bold: bool
) -> None:
    axes.text(
        x,
        y,
        text,
        color=colour,
        ha="center",
        va="center",
        fontsize=size,
        fontweight="bold" if bold else "normal",
        zorder=9,
    )


def _short(size: int | None) -> str:
    """Return a number of daemons in few characters: ``950``, ``6.1k``."""
    size = size or 0
    return number(size) if size < 1_000 else f"{number(size / 1_000, 2)}k"


def _paint_legend(axes: Axes, roles: set[str], links: list[Row], frame: Frame) -> None:
    words = (
        ("daemon", "daemon"),
        ("articulation", "articulation daemon"),
        ("region", "region, with its daemons"),
        ("cut-off", "what is cut off"),
    )
    handles = [
        Line2D([], [], marker="o", linestyle="", color=_COLOURS[role], markersize=6, label=word)
        for role, word in words
        if role in roles
    ]
    if any(row["name"] == "bridge" for row in links):
        handles.append(Line2D([], [], color=Ink.RED, linewidth=1.8, label="bridge"))
    if "gone" in roles:
        ring = Line2D([], [], marker="o", linestyle="", color=Ink.PAPER, markersize=6, label="gone")
        ring.set_markeredgecolor(Ink.RED)
        handles.append(ring)
    axes.legend(
        handles=handles,
        loc="lower center",
        ncols=frame.columns,
        frameon=False,
        labelcolor=Ink.TEXT,
        fontsize=FONT - 1,
        handletextpad=0.3,
        columnspacing=1.3,
        borderaxespad=0.2,
    )
