"""SECURITY.md: every requirement is there once, and every test that it names."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import ROOT

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")

REQUIREMENTS = {
    1: (2, 10, 12, 3, 3),
    2: (3, 3, 5, 2),
    3: (1, 3, 5, 8, 8, 1, 5),
    4: (5, 5, 2, 4),
    5: (1, 6, 3, 3),
    6: (3, 12, 8, 6, 8, 4, 2, 4),
    7: (3, 4, 2, 5, 3, 2),
    8: (4, 4, 3, 2),
    9: (3, 4),
    10: (2, 3, 5, 16, 5, 2, 3),
    11: (4, 5, 5, 4, 2, 2, 2),
    12: (5, 2, 5),
    13: (4, 6, 4, 7),
    14: (2, 8, 3),
    15: (5, 5, 7, 4),
    16: (1, 5, 4, 3, 4),
    17: (2, 8, 2),
}
"""Chapter of ASVS 5.0.0 -> how many requirements each of its sections has."""

_EXCUSES = ("does not apply", "not met", "in part")
_find_tests = re.compile(r"`(tests/[a-z_0-9/]+\.py)::(test_[a-z_0-9]+|Test[A-Za-z]+)`").findall
_find_files = re.compile(r"`((?:man|contrib)/[^`]+|SECURITY\.md)`").findall
_is_number = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+").fullmatch


def tables() -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the title of each table's section, and its rows without their head."""
    title, rows = "", []
    for line in [*PAGE.splitlines(), "# end"]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif line.startswith("#"):
            if rows:
                yield title, rows[2:]
            title, rows = line.lstrip("# "), []


TABLES = dict(tables())
ROWS = [row for title, rows in TABLES.items() if re.match(r"V[0-9]+ ", title) for row in rows]


@functools.cache
def named_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file, without importing it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    found |= {  # state machines of Hypothesis
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return frozenset(name for name in found if name.startswith(("test_", "Test")))


@pytest.mark.parametrize(("file", "name"), sorted(set(_find_tests(PAGE))))
def test_a_test_that_is_named_is_there(file: str, name: str) -> None:
    assert (ROOT / file).exists()
    assert name in named_in(ROOT / file)


def test_nothing_that_looks_like_a_test_has_another_form() -> None:
    assert len(re.findall(r"tests/\S+::", PAGE)) == len(_find_tests(PAGE))


@pytest.mark.parametrize("file", sorted(set(_find_files(PAGE))))
def test_a_file_that_is_named_is_there(file: str) -> None:
    assert (ROOT / file).is_file()


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)]+)\)", PAGE))))
def test_a_link_leads_somewhere(link: str) -> None:
    assert (ROOT / link).is_file()


def test_every_requirement_has_its_row_and_no_other() -> None:
    wanted = [
        f"{chapter}.{section}.{number}"
        for chapter, sections in REQUIREMENTS.items()
        for section, count in enumerate(sections, 1)
        for number in range(1, count + 1)
    ]
    assert len(wanted) == 345
    found = [number for row in ROWS for number in row[0].split(", ")]
    assert [number for number in found if not _is_number(number)] == []
    assert Counter(found) == Counter(wanted)


def test_a_requirement_stands_in_its_chapter() -> None:
    for title, rows in TABLES.items():
        if chapter := re.match(r"V([0-9]+) ", title):
            for row in rows:
                assert row[0].startswith(f"{chapter[1]}."), row


@pytest.mark.parametrize("row", ROWS, ids=[row[0].split(",")[0] for row in ROWS])
def test_a_row_has_what_holds_it_or_says_why_not(row: list[str]) -> None:
    number, asked, done, held = row
    assert number
    assert asked
    excuse = next((one for one in _EXCUSES if held.startswith(one)), None)
    proved = bool(_find_tests(held) or _find_files(held))
    if excuse is None:
        assert proved, "neither a test, nor a page, nor a reason"
    else:
        reason = held.removeprefix(excuse).lstrip(",: ")
        assert len(reason.split("`tests/")[0].strip()) > 5, "no reason"
    if excuse == "in part":
        assert done or proved


def test_every_input_is_held_by_tests() -> None:
    rows = TABLES["Inputs"]
    assert len(rows) >= 15
    for name, bound, *cells in rows:
        assert bound, name
        for cell in cells:
            assert _find_tests(cell) or cell.startswith("as the "), (name, cell)


def test_the_page_says_how_to_report_a_vulnerability() -> None:
    titles = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert titles[:3] == ["Report a vulnerability", "Versions", "Attackers"]
    assert "private security advisory" in PAGE
    assert "@" not in PAGE  # nobody's address is made up


def test_the_modules_that_the_page_names_exist() -> None:
    modules = re.findall(r"`(pubsubd/[a-z_/]+\.py)`", PAGE)
    assert len(modules) > 5
    assert [one for one in modules if not (ROOT / one).exists()] == []
