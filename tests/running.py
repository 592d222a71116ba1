"""The real daemon inside a test, and the real commands beside it."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import trio

from pubsubd.client import Client, open_client
from pubsubd.daemon import run as daemon
from pubsubd.protocol.limits import Limits
from tests import forks
from tests.daemons import DEADLINE, OTHERS, free_port

Ports: TypeAlias = dict[str, int]
Stop: TypeAlias = Callable[[], Awaitable[None]]


@asynccontextmanager
async def running(config: daemon.Config) -> AsyncIterator[Ports]:
    """Run a daemon, yield its ports by listener, and end it without a drain.

    Its ports are such that another daemon can take them when it has ended.
    """
    ports = {name: free_port() for name in ("port", "hub_port") if getattr(config, name) == 0}
    config = dataclasses.replace(config, **ports)
    async with trio.open_nursery() as nursery:
        found = await nursery.start(daemon.run, config)
        yield {name: one["port"] for name, one in found.items() if name in ("line", "hub")}
        nursery.cancel_scope.cancel()


async def run_until_stopped(
    config: daemon.Config, *, task_status: trio.TaskStatus[tuple[Ports, Stop]]
) -> None:
    """Run one as a task, for what outlives a daemon: starts with its ports and how to stop it."""
    stopped = trio.Event()
    with trio.CancelScope() as scope:

        async def stop() -> None:
            scope.cancel()
            await stopped.wait()

        async with running(config) as ports:
            task_status.started((ports, stop))
            await trio.sleep_forever()
    stopped.set()


@asynccontextmanager
async def serving(port: int = 0, unix: str | None = None, **limits: Any) -> AsyncIterator[int]:
    """As :func:`running`, with the line port alone."""
    config = daemon.Config(port=port, hub_port=None, unix=unix, limits=Limits(**limits))
    async with running(config) as ports:
        yield ports["line"]


async def serve_until_stopped(
    port: int = 0, *, task_status: trio.TaskStatus[tuple[int, Stop]]
) -> None:
    """As :func:`run_until_stopped`, with the line port alone."""
    async with trio.open_nursery() as nursery:
        config = daemon.Config(port=port, hub_port=None)
        ports, stop = await nursery.start(run_until_stopped, config)
        task_status.started((ports["line"], stop))


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[int, int]]:
    """Run two daemons, ``b`` linked to ``a``, and yield their ports."""
    async with trio.open_nursery() as nursery:

        async def run(node: str, *peers: str) -> int:
            config = daemon.Config(
                port=0,
                hub_port=None,
                mesh=daemon.MeshOptions(name="m", node=node, peers=peers, heartbeat=1.0),
            )
            ports = await nursery.start(daemon.run, config)
            return int(ports["line"]["port"])

        first = await run("a")
        second = await run("b", f"127.0.0.1:{first}")
        with trio.fail_after(DEADLINE):
            for port in (first, second):
                await wait_settled(port)
        yield first, second
        nursery.cancel_scope.cancel()


async def wait_settled(port: int) -> None:
    """Wait until the daemon knows both daemons, and how far it is from one to the other."""
    async with open_client(port=port) as client:
        while True:
            known = json.loads(await client.request("//pubsubd/peers"))
            edges = json.loads(await client.request("//pubsubd/edges"))["edges"]
            if sorted(one["links"] for one in known["daemons"]) == [1, 1] and len(edges) == 2:
                return
            await trio.sleep(0.01)


async def wait_subscribed(port: int, name: str, count: int = 1) -> None:
    """Ask the daemon until ``count`` connections would receive ``name``."""
    async with open_client(port=port) as client:
        while await count_receivers(client, name) < count:
            pass


async def count_receivers(client: Client, name: str) -> int:
    await trio.sleep(0.01)  # requests have a rate
    answer = await client.request("//pubsubd/explain", name)
    return int(answer.partition(b'"count": ')[2].split(b",")[0].rstrip(b"}"))


def environment(**more: str) -> dict[str, str]:
    """Return the environment without settings of whoever runs the tests."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("PUBSUBD_") and key not in OTHERS
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more}


def command_line(*words: str | bytes, port: int | None = None) -> list[str | bytes]:
    where = [] if port is None else [f"--port={port}"]
    # Before the first word that ends the options.
    return [sys.executable, "-m", "pubsubd", words[0], *where, *words[1:]]


async def start(
    nursery: trio.Nursery, *words: str | bytes, port: int, **streams: int
) -> trio.Process:
    """Run a command beside the test; it is killed with the nursery."""
    process: trio.Process = await nursery.start(
        partial(
            trio.run_process,
            command_line(*words, port=port),
            stdin=subprocess.PIPE,
            check=False,
            env=environment(),
            **streams,
        )
    )
    return process


async def pubsubd(
    *words: str | bytes, port: int | None = None, stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command to its end."""
    # Where packages are looked for is read when Python starts.
    run = subprocess.run if "PYTHONPATH" in env else forks.run
    command = command_line(*words, port=port)
    pipes = {"input": stdin, "capture_output": True}
    call = partial(run, command, env=environment(**env), **pipes)
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)
