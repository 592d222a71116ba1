"""The programs in scripts/ as modules, for what needs no process of theirs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest

from tests.daemons import ROOT


@pytest.fixture(scope="session")
def script() -> Callable[[str], ModuleType]:
    """Import a program by its name."""

    @functools.cache
    def load(name: str) -> ModuleType:
        loader = SourceFileLoader(name, str(ROOT / "scripts" / name))
        spec = spec_from_loader(name, loader)
        assert spec is not None
        module = module_from_spec(spec)
        path = sys.path.copy()  # which programs change
        loader.exec_module(module)
        sys.path[:] = path
        return module

    return load


@pytest.fixture
def refuse(
    script: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """Check that a program refuses its arguments with status 2, and says how it is used."""

    def check(name: str, *arguments: str) -> None:
        with pytest.raises(SystemExit) as ended:
            script(name).main(list(arguments))
        assert ended.value.code == 2
        assert capsys.readouterr().err.startswith(f"usage: {name}")

    return check
