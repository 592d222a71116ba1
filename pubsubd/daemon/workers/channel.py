"""Messages between the supervisor and a worker: JSON arrays, some with a descriptor.

Sending never waits. What the other end does not take at once waits here, in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections import deque
from typing import IO, Any

_LARGEST = 65_536  # bytes of a message
_DESCRIPTORS = 4


class Channel:
    """One end.

    Args:
        sock: a connected socket that keeps messages apart.

    Attributes:
        sock: it.
        lost: whether the other end is gone.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self.lost = False
        self._waiting: deque[tuple[bytes, int | None]] = deque()

    @property
    def waiting(self) -> int:
        """Messages that wait to be sent."""
        return len(self._waiting)

    def say(self, *words: object, file: socket.socket | IO[bytes] | None = None) -> None:
        """Send a message, now or when :meth:`send_more` is called.

        Args:
            words: what is sent, in terms of JSON; the first says what it is.
            file: is passed along. It is still the caller's to close.
        """
        data = json.dumps(words).encode()
        self._waiting.append((data, None if file is None else os.dup(file.fileno())))
        if len(self._waiting) == 1:
            self.send_more()

    def send_more(self) -> None:
        """Send what waits, as far as it is taken."""
        while self._waiting:
            data, descriptor = self._waiting[0]
            files = [] if descriptor is None else [descriptor]
            try:
                socket.send_fds(self.sock, [data], files)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self.lost = True
            self._waiting.popleft()
            if descriptor is not None:  # by no function of ours, which may fail
                with contextlib.suppress(OSError):
                    os.close(descriptor)

    def hear(self) -> tuple[list[Any], list[int]] | None:
        """Return the next message and its descriptors; None if there is none at present."""
        try:
            data, files, _, _ = socket.recv_fds(self.sock, _LARGEST, _DESCRIPTORS)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data, files = b"", []
        if not data:
            self.lost = True
            return None
        for file in files:
            os.set_inheritable(file, False)
        words: list[Any] = json.loads(data)
        return words, list(files)

    def close(self) -> None:
        """Close it, and the descriptors that wait to be passed."""
        for _, descriptor in self._waiting:
            _close([] if descriptor is None else [descriptor])
        self._waiting.clear()
        self.sock.close()


def _close(descriptors: list[int]) -> None:
    for one in descriptors:
        with contextlib.suppress(OSError):
            os.close(one)
