"""One setting: what it is called, how it is written, and what its pages say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pubsubd.settings.kinds import Kind

Where = Literal["", "line", "hub", "both"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: its key in the file; flag and variable are derived from it.
        kind: how its values are written and checked.
        default: the value if none is given; None if it depends on other settings.
        help: one line for ``--help``.
        doc: the text of the manual page, in mdoc(7).
        live: whether a reload can change it.
        listener: protocols whose ``[[listener]]`` tables may set it; empty for none.
    """

    name: str
    kind: Kind
    default: Any
    help: str
    doc: str
    live: bool = False
    listener: Where = ""

    @property
    def flag(self) -> str:
        """The flag of ``pubsubd serve``."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "PUBSUBD_" + self.name.upper()


Section = tuple[str, tuple[Setting, ...]]
"""The heading of some settings in the manual page, and the settings."""
