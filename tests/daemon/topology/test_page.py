"""Is the page of a report whole, safe and the same each time, whatever the names are?"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest

from pubsubd.topology.report import encode, mesh_picture, pictures, render, terminal_summary
from pubsubd.topology.report.canvas import VARIABLES
from pubsubd.topology.report.parts import FULL
from pubsubd.topology.report.snapshot_view import SnapshotView
from pubsubd.topology.report.texts import shorten, visible
from tests.daemons import ROOT
from tests.reports import (
    NASTY,
    SAMPLES,
    START,
    bare,
    empty,
    mesh_of,
    metric,
    report_of,
    sample,
    shuffled,
    snapshot,
)


@cache
def page_of(name: str) -> str:
    """Return the page of one of the samples."""
    return render(SAMPLES[name]())


class Page(HTMLParser):
    """A page as a browser sees it: tags, attributes, and text outside of tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._style = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def svgs(page: str) -> list[str]:
    return re.findall(r"<svg .*?</svg>", page, flags=re.DOTALL)


# What is on it


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_needs_nothing_from_elsewhere(name: str) -> None:
    page = Page(page_of(name))
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(page.tags)
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    for key, value in page.attributes:
        assert not key.startswith("on")
        if key in {"src", "href", "xlink:href"}:
            assert value
            assert value.startswith(("#", "data:image/png;base64,"))
        elif key.startswith("xmlns"):
            assert value in namespaces


@pytest.mark.parametrize("name", SAMPLES)
def test_ids_are_unique_and_what_is_referred_to_is_there(name: str) -> None:
    page = Page(page_of(name))
    ids = Counter(value for key, value in page.attributes if key == "id")
    assert not [one for one, times in ids.items() if times > 1]
    wanted = {value[1:] for key, value in page.attributes if value and key.endswith("href")}
    values = " ".join(value or "" for _, value in page.attributes)
    wanted |= set(re.findall(r"url\(#([^)]*)\)", values))
    assert {one for one in wanted if not one.startswith("ata:")} <= set(ids)


@pytest.mark.parametrize("name", SAMPLES)
def test_pictures_are_well_formed_and_have_the_colours_of_the_page(name: str) -> None:
    for svg in svgs(page_of(name)):
        root = ElementTree.fromstring(svg)
        assert root.get("aria-label")
        for one in root.iter():
            assert not re.search(r"#[0-9a-f]{6}", one.get("style") or "")


def test_each_colour_is_defined_for_light_dark_and_paper() -> None:
    style = page_of("no mesh")
    themes = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)
    assert len(themes) == 3
    for theme in themes:
        assert set(VARIABLES.values()) <= set(re.findall(r"(--\w+):", theme))


def test_names_are_shown_and_are_nothing_but_text() -> None:
    page = Page(page_of("nasty"))
    assert set(page.tags) <= set(Page(page_of("history")).tags) | {"h2", "pre"}
    for name in NASTY:
        shown = visible(name)
        assert (shown if len(shown) < 72 else shorten(name, 72)) in page.text
    assert "\u202e" not in page.text


def test_pictures_of_a_small_mesh_name_its_daemons_and_number_what_splits_it() -> None:
    wide, narrow = svgs(page_of("history"))[:2]
    for svg in (wide, narrow):
        root = ElementTree.fromstring(svg)
        words = {one.text for one in root.iter() if one.tag.endswith("}text")}
        assert {"a", "b", "c", "d", "e", "f", "1", "2"} <= words
        assert {"g", "\N{MULTIPLICATION SIGN}", "gone"} <= words, "the daemon that is gone"
    sizes = [[float(one) for one in re.findall(r"[\d.]+", svg[:200])[:4]] for svg in (wide, narrow)]
    assert sizes[0][2] > sizes[0][3]
    assert sizes[1][2] < sizes[1][3], "on a narrow page the mesh is turned"


def test_marks_of_the_mesh_do_not_hide_each_other() -> None:
    rows = [
        {
            "kind": "map_node",
            "id": f"r{i:02}",
            "name": "region",
            "x": 0.5,
            "y": 0.5,
            "size": 100 - i,
        }
        for i in range(30)
    ]
    nodes = SnapshotView(snapshot(rows)).map_nodes
    places = np.array(list(mesh_picture.place(nodes).values()))
    places *= np.array(mesh_picture.WIDE.unit)
    gaps = np.hypot(*(places[:, None] - places[None, :]).T)
    radii = mesh_picture.radii(nodes)
    touching = gaps < 0.9 * (radii[:, None] + radii[None, :])
    assert (touching == np.eye(30, dtype=bool)).all()


def test_a_page_has_a_picture_of_everything_there_is() -> None:
    mesh = sample().meshes[0]
    every = pictures.pictures_of(mesh, SnapshotView(mesh.snapshot), "m0")
    names = ["mesh", "mesh-narrow", "degrees", "hops", "resilience"]
    names += ["availability", "churn", "trend"]
    assert list(every) == names
    plain = bare().meshes[0]
    assert list(pictures.pictures_of(plain, SnapshotView(plain.snapshot), "m0")) == names[:5]
    nothing = empty().meshes[0]
    assert pictures.pictures_of(nothing, SnapshotView(nothing.snapshot), "m0") == {}


def test_many_marks_are_pixels_so_that_a_page_stays_small() -> None:
    rows = [
        {"kind": "histogram", "name": "degree", "x": x, "value": 1.0}
        for x in range(1, pictures.MARKS + 2)
    ]
    many, few = (svgs(render(report_of(mesh_of(one))))[0] for one in (rows, rows[:-1]))
    assert "data:image/png" in many
    assert "data:image/png" not in few
    assert len(many) < 100_000


def test_a_long_history_keeps_its_worst_moments_in_the_picture() -> None:
    cells = np.ones((1, 1000))
    cells[0, 777] = 0.0
    windows = [START + timedelta(hours=hour) for hour in range(1000)]
    folded, starts = pictures.fold(cells, windows, np.fmin), pictures.fold_times(windows)
    assert folded.shape == (1, len(starts)) == (1, 200)
    assert folded.min() == 0.0
    assert starts[int(folded.argmin())] <= windows[777] < starts[int(folded.argmin()) + 1]


def test_a_short_history_has_a_column_for_each_window() -> None:
    windows = [START + timedelta(hours=hour) for hour in range(pictures.COLUMNS)]
    values = np.arange(pictures.COLUMNS)
    assert (pictures.fold(values, windows, np.add) == values).all()
    assert pictures.fold_times(windows) == windows


def test_of_many_meshes_the_largest_have_sections_and_all_have_a_row() -> None:
    meshes = [mesh_of([metric("daemons", i)], f"mesh{i:02}") for i in range(1, FULL + 3)]
    page = render(report_of(*meshes))
    assert re.findall(r'<article id="m\d+">\s*<h2><bdi>(\w+)', page) == [
        f"mesh{i:02}" for i in range(FULL + 2, 2, -1)
    ]
    assert all(mesh.mesh in page for mesh in meshes)


# The same bytes


@pytest.mark.parametrize("name", SAMPLES)
def test_the_order_of_rows_and_meshes_does_not_matter(name: str) -> None:
    assert page_of(name) == render(shuffled(SAMPLES[name]()))
    assert encode(SAMPLES[name]()) == encode(shuffled(SAMPLES[name]()))
    assert terminal_summary(SAMPLES[name]()) == terminal_summary(shuffled(SAMPLES[name]()))


def test_pictures_do_not_tell_when_and_by_what_they_were_made() -> None:
    assert "matplotlib.org" not in page_of("history")
    assert "<dc:date>" not in page_of("history")


def test_another_process_makes_the_same_bytes() -> None:
    code = (
        "import hashlib; from pubsubd.topology.report import encode, render;"
        "from tests.reports import sample;"
        "print(hashlib.sha256(render(sample()).encode() + encode(sample())).hexdigest())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    mine = hashlib.sha256(page_of("history").encode() + encode(sample())).hexdigest()
    assert found.stdout.strip() == mine


def test_settings_of_matplotlib_change_nothing_and_are_left_as_they_were() -> None:
    expected = page_of("history")
    with mpl.rc_context({"xtick.major.size": 30.0, "font.size": 30.0, "svg.fonttype": "path"}):
        assert render(sample()) == expected
        assert mpl.rcParams["xtick.major.size"] == 30.0
