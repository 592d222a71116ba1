"""All settings of the daemon: the one source of flags, variables, file keys and manual page."""

from __future__ import annotations

from pubsubd.settings.sections.access import CLIENTS, ENCRYPTION, LISTENING
from pubsubd.settings.sections.hub import HUB
from pubsubd.settings.sections.limits import LIMITS
from pubsubd.settings.sections.log import LOG
from pubsubd.settings.sections.mesh import MESH
from pubsubd.settings.setting import Section, Setting

SECTIONS: tuple[Section, ...] = (LISTENING, CLIENTS, ENCRYPTION, LIMITS, HUB, MESH, LOG)
"""Titles of the manual page's sections, and the settings of each."""

SETTINGS: dict[str, Setting] = {one.name: one for _, section in SECTIONS for one in section}
"""Name -> setting."""
