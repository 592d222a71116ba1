"""Do tests hold on to public names only, so that the inside of a module may change?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
FILES = sorted(TESTS.rglob("*.py"))
OTHERS = (
    "os._exit",
    "sys._current_frames",
    "sys._getframe",
    "self._close_pipe_fds",
    "spark._jsparkSession",
)
"""Names of Python and of Spark, which have no public ones for it."""


OF_TUPLES = ("_asdict", "_fields", "_make", "_replace")  # what a named tuple has for everybody


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in OF_TUPLES


def own_names(tree: ast.AST) -> set[str]:
    """Return what a file defines itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) in ("self", "cls"):
                found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return found


def private_names(text: str) -> Iterator[str]:
    """Yield the private names of others that a file uses."""
    tree = ast.parse(text)
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            yield ast.unparse(node)
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
            "delattr",
            "getattr",
            "hasattr",
            "setattr",
        ):
            for word in node.args:
                if isinstance(word, ast.Constant) and isinstance(word.value, str):
                    name = word.value.rpartition(".")[2]
                    if is_private(name) and name not in own:
                        yield name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from a import b\nb._c", ["b._c"]),
        ("from a import _b, c", ["_b"]),
        ("monkeypatch.setattr(a, '_b', 1)\nmonkeypatch.setattr('a.b._c', 1)", ["_b", "_c"]),
        ("class A:\n    def _b(self): self._b()\nA()._b()", []),
        ("a.__dict__, a['_b']", []),
        ("a._b = 1", ["a._b"]),
    ],
)
def test_a_private_name_is_found(text: str, found: list[str]) -> None:
    assert list(private_names(text)) == found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_a_test_holds_no_private_name(file: Path) -> None:
    found = [name for name in private_names(file.read_text("utf-8")) if name not in OTHERS]
    assert found == []
