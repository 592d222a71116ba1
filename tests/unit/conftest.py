"""Unit tests start no process and open no socket; one that tries to fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any, NoReturn

import pytest

from pubsubd.access import users

plain = socket.socket
socketpair = socket.socketpair
_LOOPS = ("trio", "asyncio")  # they wake themselves up through a pair of sockets


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test reach nothing outside of its process."""
    monkeypatch.setattr(socket, "socket", Refused)
    monkeypatch.setattr(socket, "socketpair", pair)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for name in ("fork", "forkpty", "posix_spawn", "system"):
        monkeypatch.setattr(os, name, refuse)


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretch the passwords that a test makes as little as can be."""
    monkeypatch.setattr(users, "LOG2_N", 4)


class Refused(socket.socket):
    """A socket that nothing may make but :func:`pair`."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        """Make the socket for ``socketpair``, which finds its class here."""
        if sys._getframe(1).f_code is not socketpair.__code__:
            refuse()
        return plain(*arguments, **named)


def pair(*arguments: Any, **named: Any) -> tuple[socket.socket, socket.socket]:
    """Make a pair of sockets if an event loop asks for it, else fail the test."""
    if sys._getframe(1).f_globals.get("__name__", "").partition(".")[0] not in _LOOPS:
        refuse()
    return socketpair(*arguments, **named)


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Fail the test."""
    pytest.fail("a unit test starts no process and opens no socket: this one is for tests/daemon")
