"""``pubsubd reply``: answers to requests, with a fixed text or with what a command prints.

A few commands run at a time. Requests that come meanwhile wait, up to a number of bytes; further
ones are answered with an error at once, so memory is bounded, and whoever asks knows.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import click
import trio

from pubsubd.cli import names
from pubsubd.cli.options import Target, connects
from pubsubd.cli.output import telling
from pubsubd.cli.streams import echo
from pubsubd.cli.values import show_size, size, some_seconds
from pubsubd.client import Client, DaemonError
from pubsubd.client.faults import ends_client
from pubsubd.protocol.limits import MIB, READ_SIZE
from pubsubd.protocol.wire import check_name

_WAITING = 8 * MIB
"""Bytes of requests that may wait for a command."""

_OVERHEAD = 160  # bytes that a request counts beside its data


class _Request(NamedTuple):
    identifier: str
    data: bytes

    @property
    def size(self) -> int:
        return len(self.data) + _OVERHEAD


class _FailedError(Exception):
    """A request that cannot be answered.

    Args:
        code: a word for programs.
        text: one line for people.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")


_Answer = Callable[[bytes], Awaitable[bytes]]


@click.command()
@click.argument("name")
@click.argument("text", required=False)
@click.option(
    "--exec",
    "shell_command",
    metavar="COMMAND",
    help="Answer with what this shell command prints, given the data on standard input.",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="End after this many requests."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=4,
    show_default=True,
    help="Commands that may run at the same time.",
)
@click.option(
    "--timeout",
    type=some_seconds,
    metavar="SECONDS",
    default="10",
    show_default=True,
    help="Longest time that a command may take.",
)
@click.option(
    "--max-payload",
    type=size(least=1),
    metavar="SIZE",
    default=show_size(MIB),
    show_default=True,
    help="Largest request, and largest answer; the daemon has its own limit.",
)
@connects
def command(
    target: Target,
    name: str,
    text: str | None,
    shell_command: str | None,
    count: int | None,
    jobs: int,
    timeout: float,
    max_payload: int,
) -> None:
    """Answer requests to NAME with TEXT, or with what a command prints.

    The command runs in /bin/sh. Everybody who may publish requests to NAME can run it, with
    data of their own on its standard input. If it fails, or takes too long, the answer is an
    error. Across a mesh, NAME begins with two slashes.

    \b
    Examples:
      pubsubd reply time --exec date
      pubsubd reply //sum --exec "awk '{ sum += \\$1 } END { print sum }'"
      pubsubd reply version 1.4.2
    """  # noqa: D301  (click wants the character)
    check_name(os.fsencode(name), "name")
    if (text is None) == (shell_command is None):
        raise click.UsageError("Give either TEXT or --exec COMMAND.")

    async def answer(data: bytes) -> bytes:
        if len(data) > max_payload:
            raise _FailedError("too-large", f"the request has more than {max_payload} bytes")
        if shell_command is None:
            return os.fsencode(text or "")
        return await _run(shell_command, data, timeout, max_payload)

    caught = trio.run(_serve_until_told, target, names.plain(name), answer, count, jobs)
    if caught is not None:
        signal.signal(caught, signal.SIG_DFL)
        signal.raise_signal(caught)
        sys.exit(128 + caught)  # only process 1 comes to this


async def _serve_until_told(
    target: Target, name: str, answer: _Answer, count: int | None, jobs: int
) -> int | None:
    """Answer requests; return the signal that ended it, when no command runs any more."""
    caught: int | None = None

    async def wait_told(scope: trio.CancelScope) -> None:
        nonlocal caught
        async for number in signals:
            caught = number
            scope.cancel()

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_told, nursery.cancel_scope)
            await _serve(target, name, answer, count, jobs)
            nursery.cancel_scope.cancel()
    return caught


async def _serve(target: Target, name: str, answer: _Answer, count: int | None, jobs: int) -> None:
    requests = names.copy(names.request(name, ""))
    async with target.connect(reconnect=True, **telling("requests")) as client:
        await client.subscribe(requests)
        if sys.stderr.isatty():
            echo("pubsubd: subscribed", err=True)
        queue = _Queue(client, answer)
        async with trio.open_nursery() as nursery:
            for _ in range(jobs):
                nursery.start_soon(queue.work)
            while count is None or count > 0:
                try:
                    messages = await client.receive()
                except DaemonError as exc:  # such as "not-allowed", of an answer
                    if ends_client(exc):
                        raise
                    echo(f"pubsubd: {exc}", err=True)
                    continue
                for message in messages:
                    identifier = names.identifier_of(message.name, requests)
                    if identifier is not None and count != 0:
                        await queue.put(_Request(identifier, message.data))
                        count = None if count is None else count - 1
            queue.close()


class _Queue:
    """Requests that wait, bounded by their bytes, and the tasks that answer them."""

    def __init__(self, client: Client, answer: _Answer) -> None:
        self._client = client
        self._answer = answer
        self._put, self._take = trio.open_memory_channel[_Request](math.inf)
        self._size = 0

    async def put(self, request: _Request) -> None:
        """Let a request wait; refuse it if too much does already."""
        if self._size and self._size + request.size > _WAITING:
            text = "busy too many requests are waiting"
            await self._client.publish(names.error(request.identifier), text)
            return
        self._size += request.size
        self._put.send_nowait(request)

    def close(self) -> None:
        """Let the tasks end when nothing waits any more."""
        self._put.close()

    async def work(self) -> None:
        """Answer one request after the other."""
        async for request in self._take:
            self._size -= request.size
            try:
                data = await self._answer(request.data)
            except _FailedError as exc:
                await self._client.publish(names.error(request.identifier), str(exc))
            else:
                await self._client.publish(names.answer(request.identifier), data)


async def _run(shell_command: str, data: bytes, seconds: float, most: int) -> bytes:
    """Return what a command prints.

    Raises:
        _FailedError: it cannot be run, fails, prints more than ``most`` bytes or takes longer.
    """
    try:
        process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", shell_command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a group of its own, with all that it starts
        )
    except OSError as exc:
        raise _FailedError("failed", f"the command cannot be run: {exc.strerror}") from None
    assert process.stdin is not None
    assert process.stdout is not None
    output, status = b"", None
    try:
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_feed, process.stdin, data)
                output = await _read(process.stdout, most)
                nursery.cancel_scope.cancel()  # it need not take all of its input
            if len(output) <= most:
                status = await process.wait()
    finally:
        if status is None:
            # It has not been waited for, so this is still the number of its group.
            os.killpg(process.pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()
        await trio.aclose_forcefully(process.stdin)
        await trio.aclose_forcefully(process.stdout)
    if len(output) > most:
        raise _FailedError("too-large", f"the answer has more than {most} bytes")
    if status is None:
        raise _FailedError("timeout", f"the command took more than {seconds:g} s")
    if status < 0:
        raise _FailedError("failed", f"the command was ended by signal {-status}")
    if status:
        raise _FailedError("failed", f"the command ended with status {status}")
    return output


async def _feed(stdin: trio.abc.SendStream, data: bytes) -> None:
    with contextlib.suppress(trio.BrokenResourceError):  # it does not read, as date does not
        await stdin.send_all(data)
        await stdin.aclose()


async def _read(stdout: trio.abc.ReceiveStream, most: int) -> bytes:
    """Return what comes up to the end, or a little more than ``most`` bytes of it."""
    parts: list[bytes] = []
    room = most
    while room >= 0 and (part := await stdout.receive_some(READ_SIZE)):
        parts.append(bytes(part))
        room -= len(part)
    return b"".join(parts)
