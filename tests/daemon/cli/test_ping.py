"""``pubsubd ping`` against the real daemon, and against one that is silent."""

from __future__ import annotations

import re
import signal
import subprocess

import trio

from tests.daemons import DEADLINE
from tests.running import pubsubd, serve_until_stopped, serving, start


async def test_it_ends_after_the_count_with_a_summary() -> None:
    async with serving() as port:
        done = await pubsubd("ping", "--count=2", "--interval=0.001", port=port)
    assert (done.returncode, done.stderr) == (0, b"")
    assert re.fullmatch(
        rf"answer 1 from 127.0.0.1:{port}: \d+\.\d{{3}} ms\n"
        rf"answer 2 from 127.0.0.1:{port}: \d+\.\d{{3}} ms\n"
        rf"--- 127.0.0.1:{port} ---\n"
        r"2 sent, 2 answered, 0% lost\n"
        r"round trip min/median/max = [\d.]+/[\d.]+/[\d.]+ ms\n",
        done.stdout.decode(),
    )


async def test_an_interrupt_ends_it_with_a_summary() -> None:
    async with serving() as port, trio.open_nursery() as nursery:
        process = await start(nursery, "ping", port=port, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with trio.fail_after(DEADLINE):
            assert (await process.stdout.receive_some()).startswith(b"answer 1 ")
            process.send_signal(signal.SIGINT)
            said = b"".join([part async for part in process.stdout])
            assert b" sent, " in said
            assert await process.wait() == 0


async def test_without_an_answer_the_status_is_1() -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def be_silent(_stream: trio.SocketStream) -> None:
            await trio.sleep_forever()

        nursery.start_soon(trio.serve_listeners, be_silent, [listener])
        port = listener.socket.getsockname()[1]
        done = await pubsubd("ping", "--count=1", "--timeout=0.01", port=port)
        nursery.cancel_scope.cancel()
    assert done.returncode == 1
    assert (
        done.stdout
        == (
            f"no answer 1 from 127.0.0.1:{port}: timed out after 0.01 s\n"
            f"--- 127.0.0.1:{port} ---\n1 sent, 0 answered, 100% lost\n"
        ).encode()
    )


async def test_pings_are_lost_until_the_connection_is_back() -> None:
    async with trio.open_nursery() as nursery:
        port, stop = await nursery.start(serve_until_stopped)
        words = ("ping", "--interval=0.01", "--timeout=0.1")
        process = await start(nursery, *words, port=port, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = b""
        with trio.fail_after(DEADLINE):
            while b"answer 1 " not in said:
                said += await process.stdout.receive_some()
            await stop()
            while b"no answer " not in said:
                said += await process.stdout.receive_some()
            await nursery.start(serve_until_stopped, port)
            lost = len(said)
            while b"\nanswer " not in said[lost:]:
                said += await process.stdout.receive_some()
        nursery.cancel_scope.cancel()


async def test_what_would_be_so_again_ends_it() -> None:
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def speak_tls(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.send_all(b"\x15\x03\x01\x00\x02\x02\x46")

        nursery.start_soon(trio.serve_listeners, speak_tls, [listener])
        port = listener.socket.getsockname()[1]
        done = await pubsubd("ping", "--count=2", "--interval=0.001", port=port)
        nursery.cancel_scope.cancel()
    assert done.returncode == 1
    where = f"127.0.0.1:{port}"
    said = f"pubsubd: cannot connect to {where}: it speaks TLS, and we do not; use --tls\n"
    assert done.stderr == said.encode()
