"""The guard of the unit tests: sockets and processes are refused, event loops are not."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
import trio


@pytest.mark.parametrize(
    "reach_out",
    [
        lambda: socket.socket(socket.AF_UNIX),
        lambda: socket.socketpair(socket.AF_UNIX),
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: subprocess.run([sys.executable, "-V"], check=True),
        lambda: os.system("true"),
        lambda: trio.run(trio.run_process, ["true"]),
    ],
)
def test_a_unit_test_reaches_nothing_outside(reach_out: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match="no process and opens no socket"):
        reach_out()


def test_event_loops_run() -> None:
    asyncio.run(asyncio.sleep(0))
    trio.run(trio.lowlevel.checkpoint)
