"""The unit that runs the daemon, as systemctl shows it to ``serve --check``."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from pubsubd.protocol.wire import host_in

_SERVICE = "pubsubd.service"
_PATIENCE = 10.0  # seconds for an answer of systemctl


@dataclass(frozen=True, slots=True)
class PassedSocket:
    """An address that the service manager listens on.

    Attributes:
        address: ``HOST:PORT``, or the path of a Unix socket.
        unit: the unit that says so; empty if that is not known.
    """

    address: str
    unit: str = ""

    @property
    def host(self) -> str | None:
        """Its host; None for a Unix socket."""
        if self.address.startswith(("/", "@")):
            return None
        return host_in(self.address)


@dataclass(frozen=True, slots=True)
class Service:
    """The unit that runs the daemon.

    Attributes:
        unit: its name.
        user: who it runs as; empty for root.
        directories: those that the service manager makes when it starts.
        sockets: name of a listener -> addresses that are passed for it.
        hidden: directories that it does not see.
        writable: directories besides these that it may write to; None for all.
    """

    unit: str
    user: str
    directories: tuple[str, ...]
    sockets: dict[str, list[PassedSocket]]
    hidden: tuple[str, ...] = ()
    writable: tuple[str, ...] | None = None


def find_service(path: Path) -> Service | None:
    """Return the service that uses the settings file ``path``; None if systemd knows of none."""
    properties = (
        "ExecStart,User,RuntimeDirectory,StateDirectory,TriggeredBy,ProtectHome,PrivateTmp,"
        "ProtectSystem,ReadWritePaths"
    )
    for found in _show(_SERVICE, properties):
        command = " ".join(found.get("ExecStart", ())).split()
        if str(path) not in command and str(path.absolute()) not in command:
            continue
        sockets: dict[str, list[PassedSocket]] = {}
        units = [unit for unit in _words(found, "TriggeredBy") if unit.endswith(".socket")]
        for unit in _show(*units, "LoadState,FileDescriptorName,Listen,Id") if units else ():
            name = "".join(_words(unit, "FileDescriptorName"))
            if _words(unit, "LoadState") == ["loaded"]:
                sockets.setdefault(name, []).extend(
                    PassedSocket(line.rpartition(" (")[0], "".join(_words(unit, "Id")))
                    for line in unit.get("Listen", ())
                )
        return Service(
            _SERVICE,
            "".join(_words(found, "User")),
            tuple(
                f"{root}/{name}"
                for root, key in (("/run", "RuntimeDirectory"), ("/var/lib", "StateDirectory"))
                for name in _words(found, key)
            ),
            sockets,
            hidden=tuple(
                directory
                for key, shown, hidden in (
                    ("ProtectHome", ("no", "read-only"), ("/home", "/root", "/run/user")),
                    ("PrivateTmp", ("no",), ("/tmp", "/var/tmp")),
                )
                for directory in hidden
                if "".join(_words(found, key)) not in ("", *shown)
            ),
            writable=tuple(path.lstrip("-+") for path in _words(found, "ReadWritePaths"))
            if _words(found, "ProtectSystem") == ["strict"]
            else None,
        )
    return None


def _show(*words: str) -> list[dict[str, list[str]]]:
    """Return what ``systemctl show`` tells of some units: key -> lines.

    Args:
        words: the units, and the properties that are wanted.
    """
    *units, properties = words
    try:
        done = subprocess.run(
            ["systemctl", "show", f"--property={properties}", "--", *units],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return []  # systemd does not run here
    found = []
    for text in done.stdout.split("\n\n"):
        unit: dict[str, list[str]] = {}
        for line in text.splitlines():
            key, _, value = line.partition("=")
            unit.setdefault(key, []).append(value)
        found.append(unit)
    return found


def _words(unit: dict[str, list[str]], key: str) -> list[str]:
    return " ".join(unit.get(key, ())).split()
