"""What a worker does with what its supervisor says, without the supervisor."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from pubsubd.daemon.workers.channel import Channel
from pubsubd.daemon.workers.worker import Worker
from pubsubd.protocol.limits import Limits
from pubsubd.siblings.progress import Progress
from pubsubd.transport.server import Server
from tests.daemons import DEADLINE


def broken(*_: object) -> None:
    raise RuntimeError("on purpose")


async def hear(channel: Channel, first: str) -> list[Any]:
    """Return the next message that begins so."""
    with trio.fail_after(DEADLINE):
        while True:
            found = channel.hear()
            if found is None:
                await trio.lowlevel.wait_readable(channel.sock)
            elif found[0][0] == first:
                return found[0]


async def test_settings_that_a_worker_cannot_take_leave_nothing_open_and_it_takes_others(
    tmp_path: Path,
) -> None:
    ours, theirs = map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    worker = Worker([], theirs, 1, None, Progress(2))
    async with trio.open_nursery() as nursery:
        server = Server(Limits(), nursery)
        reloader = cast("Any", SimpleNamespace(server=server, hub=None, mesher=None))
        worker.join(reloader, None)
        nursery.start_soon(worker.reload, reloader, cast("Any", None))
        before = None
        for _ in range(3):
            with (tmp_path / "settings").open("w+b") as file:
                file.write(b"no settings")
                file.seek(0)
                ours.say("settings", file=file)
            (_, text) = await hear(ours, "failed")
            assert "a fault of the daemon's own" in text
            open_ = os.listdir("/proc/self/fd")
            before = before or open_
            assert open_ == before
        assert sum(server.broker.faults.counts.values()) == 3
        nursery.cancel_scope.cancel()
    for one in (ours, theirs):
        one.sock.close()


def test_a_descriptor_is_passed_once_whatever_fails_and_nothing_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = map(Channel, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    before = set(os.listdir("/proc/self/fd"))
    left, right = socket.socketpair()
    with right:
        with left:
            with pytest.raises(TypeError):
                ours.say("connection", object(), file=left)
            assert ours.waiting == 0
            with monkeypatch.context() as patch:
                patch.setattr(Channel, "send_more", broken)
                with pytest.raises(RuntimeError):
                    ours.say("connection", file=left)
            assert ours.waiting == 1
        ours.send_more()
        (words, files) = theirs.hear() or ([], [])
        assert words == ["connection"]
        with socket.socket(fileno=files[0]) as other:
            right.sendall(b"x")
            assert other.recv(1) == b"x"
    assert set(os.listdir("/proc/self/fd")) == before
    for one in (ours, theirs):
        one.sock.close()
