"""Does ARCHITECTURE.md name only files, functions and packages that exist?"""

from __future__ import annotations

import ast
import configparser
import re
from pathlib import Path

import pytest

from pubsubd.settings.table import SETTINGS

ROOT = next(one for one in Path(__file__).parents if (one / "setup.cfg").exists())
PACKAGE = ROOT / "pubsubd"
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
MARKED = sorted(set(re.findall(r"`([^`\n]+)`", PROSE)))

NAMES = [one for one in MARKED if re.fullmatch(r"[\w/.]+:[\w.]+", one)]
PATHS = [
    one
    for one in MARKED
    if re.fullmatch(r"[\w./-]*(/|\.\w+)[\w./-]*", one) and not one.startswith("//")
]


def file_of(path: str) -> Path | None:
    """Return the file or directory that the page means."""
    return next((base / path for base in (PACKAGE, ROOT) if (base / path).exists()), None)


def members(node: ast.Module | ast.ClassDef) -> dict[str, ast.AST]:
    """Return what a module or a class defines, with the attributes that its methods set."""
    found: dict[str, ast.AST] = {}
    for one in node.body:
        if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[one.name] = one
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            found |= {target.id: one for target in targets if isinstance(target, ast.Name)}
    if isinstance(node, ast.ClassDef):
        for one in ast.walk(node):
            if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                found.setdefault(one.attr, one)
    return found


def test_there_is_something_to_check() -> None:
    assert len(NAMES) > 40
    assert len(PATHS) > 15


@pytest.mark.parametrize("path", PATHS)
def test_a_path_of_the_page_exists(path: str) -> None:
    assert file_of(path) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_page_is_defined_in_its_file(name: str) -> None:
    path, _, qualified = name.partition(":")
    file = file_of(path)
    assert file is not None
    if file.is_dir():
        file /= "__init__.py"
    node: ast.AST = ast.parse(file.read_text(encoding="utf-8"))
    for part in qualified.split("."):
        assert isinstance(node, ast.Module | ast.ClassDef), f"{part} of {name}"
        assert not part.startswith("_"), "the page names public things only"
        known = members(node)
        assert part in known, f"{part} of {name}"
        node = known[part]


def test_the_settings_that_the_page_names_exist() -> None:
    named = {one for one in MARKED if re.fullmatch(r"[a-z]+(_[a-z]+)+", one)}
    assert named
    assert named <= SETTINGS.keys()


def test_the_picture_has_the_packages_in_the_order_of_the_contract() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    contract = config["importlinter:contract:layers"]["layers"].split("\n")
    layers = [line.strip() for line in contract if line.strip() not in ("", "__main__")]
    (picture,) = re.findall(r"^```text\n(.*?)^```", TEXT, flags=re.MULTILINE | re.DOTALL)
    assert [re.split(r" {2,}", line)[0] for line in picture.splitlines()] == layers
    packages = {one.name for one in PACKAGE.iterdir() if (one / "__init__.py").exists()}
    assert packages == set(re.findall(r"\w+", " ".join(layers)))
