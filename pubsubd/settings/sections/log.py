"""Settings of the log."""

from __future__ import annotations

from pubsubd.settings.kinds import choices
from pubsubd.settings.setting import Section, Setting

LOG: Section = (
    "Log",
    (
        Setting(
            "log_level",
            choices("debug", "info", "warning", "error"),
            "info",
            "Lowest level that is logged.",
            """\
Lowest level that is logged:
.Cm debug ,
.Cm info ,
.Cm warning
or
.Cm error .
""",
            live=True,
        ),
        Setting(
            "log_format",
            choices("text", "json"),
            "text",
            "One line an event: key=value pairs, or a JSON object.",
            """\
Form of an event, one per line:
.Cm text
for
.Ar key Ns = Ns Ar value
pairs, or
.Cm json
for a JSON object with the same keys.
""",
        ),
    ),
)
