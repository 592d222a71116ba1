"""Pictures as SVG that is part of a page: drawn by matplotlib, coloured by the page.

Invariants:

- The same picture is the same bytes: no date, no random ids, no settings or fonts of the machine.
- Colours are the page's: each one of :class:`Ink` becomes a CSS variable, so that a picture is
  dark on a dark page. Marks that are drawn as pixels keep the colour, which is fit for both.
- Text stays text, drawn with the page's font.
- Ids are unique in a page, however many pictures it has.
"""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

# It tells of its caches on the terminal, at the import as well.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

import matplotlib as mpl  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.backends.backend_svg import FigureCanvasSVG  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

FONT = 8.5  # points; a picture is 317 points wide and shown on 360 pixels at least
_SETTINGS: dict[Any, Any] = {
    "svg.hashsalt": "pubsubd",
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so it measures alike everywhere
    "font.size": FONT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify": False,
    "text.parse_math": False,  # a daemon's name may have dollars
    "axes.formatter.use_mathtext": False,
}


class Ink:
    """Colours of pictures, as they are on a light page."""

    TEXT = "#1c2430"
    MUTED = "#5b6675"
    RULE = "#d3d8df"
    PAPER = "#fefefe"
    BLUE = "#2f6fb5"
    ORANGE = "#c9731f"
    RED = "#c8323c"
    GREEN = "#2f8f5b"
    SOFT = "#9fb4cc"
    SLATE = "#7389a3"


VARIABLES = {
    value: f"--{name.lower()}" for name, value in vars(Ink).items() if not name.startswith("_")
}
"""Colour -> name of the CSS variable that stands for it."""

_COLOUR = re.compile("|".join(VARIABLES))
_ID = re.compile(r'(?<=\bid=")(?=[^"])|(?<=href="#)|(?<=url\(#)')
_FAMILY = re.compile(r"font-family: [^;\"]*;? ?")
# The date, the version, and rules that would be those of the whole page.
_DROPPED = re.compile(r"<metadata>.*?</metadata>|<style.*?</style>", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_HEAD = re.compile(r'^.*?<svg [^>]*?viewBox="([^"]*)"[^>]*>', re.DOTALL)


def draw(
    key: str,
    title: str,
    paint: Callable[[Figure], None],
    *,
    width: float = 4.4,
    height: float = 2.9,
) -> str:
    """Return a picture as an ``<svg>`` element.

    Args:
        key: unique in the page: letters, digits and hyphens.
        title: what is to be seen, for those who do not see it.
        paint: draws on the empty figure.
        width: inches.
        height: inches.
    """
    with _defaults():
        figure = Figure(figsize=(width, height), facecolor="none")
        paint(figure)
        for axes in figure.axes:
            _tint(axes)
        file = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(file)
    return _into_page(file.getvalue(), key, title)


@contextmanager
def _defaults() -> Iterator[None]:
    """Have matplotlib's own settings and ours, whatever the user has set."""
    with mpl.rc_context(), warnings.catch_warnings():
        # Names in other scripts: the browser has the glyphs, though our font has not.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        warnings.filterwarnings("ignore", "Matplotlib currently does not support .* natively")
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def _tint(axes: Axes) -> None:
    axes.set_facecolor("none")
    axes.tick_params(which="both", colors=Ink.MUTED, labelcolor=Ink.TEXT)
    for spine in axes.spines.values():
        spine.set_color(Ink.MUTED)
    axes.xaxis.label.set_color(Ink.TEXT)
    axes.yaxis.label.set_color(Ink.TEXT)


def _into_page(svg: str, key: str, title: str) -> str:
    body = svg[svg.index("<svg ") :]
    head = _HEAD.match(body)
    assert head, "matplotlib has written no viewBox"
    body = _DROPPED.sub("", body[head.end() :])

    def adopt(tag: re.Match[str]) -> str:
        text = _FAMILY.sub("", _ID.sub(f"{key}-", tag[0]))
        text = _COLOUR.sub(lambda found: f"var({VARIABLES[found[0]]})", text)
        return " ".join(text.split())

    body = _TAG.sub(adopt, body)  # text between tags stays as it is, even if it looks like one
    body = re.sub(r"\n\s*", "\n", body)
    return (
        f'<svg viewBox="{head[1]}" role="img" aria-label="{escape(title)}"'
        f' xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
        f"<title>{escape(title)}</title>{body.strip()}"
    )
