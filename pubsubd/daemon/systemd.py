"""Communication with systemd: states, the watchdog, and sockets that it passes.

The protocols are those of sd_notify(3) and sd_listen_fds(3). Without a service manager, or with
one that does not listen, nothing changes: what it is told is a courtesy, never a condition.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections.abc import MutableMapping

from pubsubd.protocol.errors import ConfigError

log = logging.getLogger("pubsubd")

_FIRST = 3  # descriptor of the first socket (sd_listen_fds(3))
_MICRO = 1e-6


class Notifier:
    """Tells the service manager what the daemon is doing.

    Args:
        environment: where ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` stand; they are removed, so that
            no child process speaks for this one.

    Attributes:
        watchdog: seconds in which :meth:`alive` has to be called; None for never.
    """

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        self._status = ""
        if self._address[:1] not in ("/", "@"):
            self._address = ""
        microseconds = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", str(os.getpid()))
        self.watchdog: float | None = None
        if self._address and microseconds.isdigit() and process == str(os.getpid()):
            self.watchdog = int(microseconds) * _MICRO or None

    @property
    def listening(self) -> bool:
        """Whether there is somebody to tell."""
        return bool(self._address)

    def ready(self) -> None:
        """Tell that the daemon serves, or does so again after a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Tell that the settings are read again; :meth:`ready` tells the end of that."""
        # The time lets the manager tell this reload from the one before (sd_notify(3)).
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={microseconds}")

    def stopping(self) -> None:
        """Tell that the daemon is ending."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Tell that the loop that does the work goes round."""
        if self.watchdog is not None:
            self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Tell in one line what the daemon is doing, if that has changed."""
        if text != self._status:
            self._status = text
            self._send(f"STATUS={text}")

    def close(self) -> None:
        """Say nothing any more."""
        if self._socket is not None:
            self._socket.close()
        self._address = ""

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # Never waits: a manager that does not read misses what it did not want to know.
        with contextlib.suppress(OSError):
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.setblocking(False)
            address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
            self._socket.sendto(text.encode(), address)


def take_sockets(
    environment: MutableMapping[str, str] = os.environ,
) -> dict[str, list[socket.socket]]:
    """Return the listening sockets that the service manager has handed over, by their names.

    Raises:
        ConfigError: one of them is no listening stream socket.
    """
    process = environment.pop("LISTEN_PID", "")
    count = environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    environment.pop("LISTEN_PIDFDID", None)
    found: dict[str, list[socket.socket]] = {}
    if process != str(os.getpid()) or not count.isdigit():
        return found
    for number in range(int(count)):
        descriptor = _FIRST + number
        name = names[number] if number < len(names) else ""
        try:
            os.set_inheritable(descriptor, False)
            sock = socket.socket(fileno=descriptor)
            listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise ConfigError(
                f"descriptor {descriptor}, which the service manager names {name!r}, is no socket:"
                f" {error.strerror}"
            ) from None
        if sock.type != socket.SOCK_STREAM or not listens:
            raise ConfigError(f"the socket that the service manager names {name!r} takes no calls")
        found.setdefault(name, []).append(sock)
    return found
