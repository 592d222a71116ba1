"""The compiled scanner, where it is installed: it cuts a read into runs, as the hot loop does.

It is the distribution ``pubsubd-scanner``, in ``scanner/``, which needs a C compiler to be made.
Without it, or with ``PUBSUBD_SCANNER=python`` in the environment, everything is as it is with it,
but slower.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any

from pubsubd.routing.targets import Targets

VARIABLE = "PUBSUBD_SCANNER"
"""The environment variable that chooses: ``python`` for the hot loop alone."""

SCAN_FROM = 256
"""Bytes of a read from which on it is quicker than the loop."""

_FORM = 2  # of the arguments and results that are known here

Run = tuple[Targets, bytes, int, int]
"""Receivers, the frames for them, how many these are, and the offset of the LF that ends them."""

Scan = Callable[..., tuple[list[Run], int]]
"""Returns runs, and how many names were matched; see ``scanner/pubsubd_scanner.pyx``."""


def find_scanner() -> Scan | None:
    """Return the compiled scanner; None if it is not installed, does not fit, or is not wanted."""
    if os.environ.get(VARIABLE) == "python":
        return None
    try:
        module: Any = importlib.import_module("pubsubd_scanner")
    except ImportError:
        return None
    scan: Scan | None = getattr(module, "scan", None)
    return scan if getattr(module, "FORM", None) == _FORM else None


def describe_scanner() -> str:
    """Return whether it is used, or is installed in vain, for people; empty if neither is so."""
    if find_scanner() is not None:
        return "compiled scanner"
    if os.environ.get(VARIABLE) == "python" or importlib.util.find_spec("pubsubd_scanner") is None:
        return ""
    return "the installed scanner does not fit, and is not used"
