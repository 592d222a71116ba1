"""Certificates that the settings name, and reminders to renew them.

A reminder is logged from 30 days before the end on, or in the last third of a shorter life: at the
start, at each reload, and then once a day.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from pubsubd.settings.config import Config
    from pubsubd.transport.certificates import Certificate

log = logging.getLogger("pubsubd")

DAY = 86_400.0

DIALLED = "dialled"
"""Name in the place of a listener's, for files of links that this daemon dials."""

_NOTICE = 30 * DAY  # before the end
_SHARE = 1 / 3  # of a life that is shorter
_BUNDLE = 20  # certificates in a file that somebody here looks after, at most
_INTERVAL = 3_600.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """A file with certificates, and what it is for.

    Attributes:
        listener: name of the listener, or :data:`DIALLED`.
        setting: which names it.
        path: of the file.
        certificates: those in it, without those that another one of the same subject renews.
    """

    listener: str
    setting: str
    path: str
    certificates: tuple[Certificate, ...]

    @property
    def not_after(self) -> float:
        """When the first of them expires, in seconds since the epoch."""
        return min(one.not_after for one in self.certificates)


@dataclass(frozen=True, slots=True)
class Reminder:
    """A certificate that has to be renewed.

    Attributes:
        invalid: whether it has expired, or is not valid yet.
        days: whole days until its end, or until its beginning.
        text: says which, and until when.
    """

    invalid: bool
    days: int
    text: str


def read_files(config: Config) -> tuple[CertificateFile, ...]:
    """Return the files with certificates that settings name.

    A file of many authorities is left out: whoever publishes such a bundle renews it.

    Raises:
        ConfigError: one of them cannot be read.
    """
    named = [
        (one.name, setting, path)
        for one in config.all_listeners()
        if one.tls is not None
        for setting, path in (
            ("tls_certificate", one.tls.certificate),
            ("tls_client_ca", one.tls.client_ca),
        )
    ]
    if config.mesh is not None:
        named.append((DIALLED, "mesh_tls_certificate", config.mesh.tls_certificate))
        named.append((DIALLED, "mesh_tls_ca", config.mesh.tls_ca))
    paths = {path for _, _, path in named if path is not None}
    if not paths:
        return ()
    from pubsubd.transport.certificates import (  # noqa: PLC0415  (8 MiB, of use with TLS only)
        latest_of_each,
        read_certificates,
    )

    held = {path: latest_of_each(read_certificates(path)) for path in paths}
    return tuple(
        CertificateFile(listener, setting, path, held[path])
        for listener, setting, path in named
        if path is not None and 0 < len(held[path]) <= _BUNDLE
    )


def remind(files: Iterable[CertificateFile], now: float) -> dict[tuple[str, str], Reminder]:
    """Return what has to be renewed: file and subject -> reminder.

    Args:
        files: to look at.
        now: in seconds since the epoch.
    """
    found = {}
    for file in files:
        for one in file.certificates:
            notice = min(_NOTICE, _SHARE * (one.not_after - one.not_before))
            what = f"{file.setting} {file.path}: the certificate of {one.subject}"
            days, invalid = int((one.not_after - now) // DAY), True
            if now < one.not_before:
                text = f"is not valid before {show(one.not_before)}"
                days = int((one.not_before - now) // DAY)
            elif now >= one.not_after:
                text = f"expired on {show(one.not_after)}"
            elif one.not_after - now < notice:
                left = f"in {days} day{'s' * (days > 1)}" if days else "in less than a day"
                text, invalid = f"expires {left}, on {show(one.not_after)}", False
            else:
                continue
            found[file.path, one.subject] = Reminder(invalid, days, f"{what} {text}")
    return found


def show(seconds: float) -> str:
    """Return a time since the epoch as a date and a time in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Reminders:
    """Logs reminders, each once a day.

    Args:
        clock: seconds since the epoch.

    Attributes:
        files: those in force.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.files: tuple[CertificateFile, ...] = ()
        self._told: dict[tuple[str, str], int] = {}

    def replace(self, files: tuple[CertificateFile, ...]) -> None:
        """Look at other files from now on."""
        self.files = files
        self._told.clear()
        self.look()

    def look(self) -> None:
        """Log a reminder of each certificate that needs one, if it has not been logged today."""
        for key, reminder in remind(self.files, self._clock()).items():
            if self._told.get(key) != reminder.days:
                self._told[key] = reminder.days
                text = json.dumps(reminder.text)
                if reminder.invalid:
                    log.error("event=certificate-invalid detail=%s", text)
                else:
                    log.warning("event=certificate-expires detail=%s", text)

    async def run(self) -> None:
        """Look once an hour."""
        while True:
            await trio.sleep(_INTERVAL)
            self.look()
