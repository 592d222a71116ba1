"""What all commands have in common: help, exit codes, one clear line for each failure."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib import import_module

import click
import pytest
import trio

from pubsubd import __version__, cli
from pubsubd.cli import options, values
from pubsubd.client import open_client
from tests import forks
from tests.running import command_line, environment, pubsubd, serving, start


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        command_line(*words),
        capture_output=True,
        text=True,
        check=False,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
    )


def test_what_kubernetes_sets_for_a_service_of_that_name_is_passed_over() -> None:
    address = "tcp://10.0.0.1:9014"
    names = ("PUBSUBD_PORT", "PUBSUBD_PORT_9014_TCP", "PUBSUBD_HUB_PORT")
    for command in ("stats", "serve"):
        words = ["serve", "--check"] if command == "serve" else ["stats", "--unix", "/none"]
        done = run(*words, **dict.fromkeys(names, address))
        told = [
            f"pubsubd: passing over {name}={address}: Kubernetes has set it for a Service"
            for name in ("PUBSUBD_PORT", "PUBSUBD_HUB_PORT")
        ]
        assert sorted(done.stderr.splitlines()[:2]) == sorted(told)
        assert done.returncode == (0 if command == "serve" else 1)
    done = run("stats", PUBSUBD_PORT="tcp://10.0.0.1")
    assert done.returncode == 2


def test_the_version_is_told() -> None:
    done = run("--version", PUBSUBD_SCANNER="python")
    assert (done.returncode, done.stdout) == (0, f"pubsubd {__version__}\n")


def test_the_help_names_every_command_and_exit_code_and_loads_click_alone() -> None:
    code = (
        "import sys; sys.argv = ['pubsubd', '--help']\n"
        "from pubsubd.__main__ import main; print(main())\n"
        "print(sorted({'trio', 'rich', 'pubsubd.client', 'pubsubd.daemon.run'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.endswith("0\n[]\n")
    assert all(f"\n  {name} " in done.stdout for name in cli.COMMANDS)
    assert all(f"\n    {code} " in done.stdout for code in (0, 1, 2, 130))


def test_no_garbage_is_looked_for_before_a_command_runs_nor_at_its_end() -> None:
    code = (
        "import gc, sys; from pubsubd.__main__ import main\n"
        "sys.argv = ['pubsubd', 'serve', '--check', '--port=0', '--hub-port=0']\n"
        "seen, serve = [], 'pubsubd.cli.serve'\n"
        "gc.callbacks.append(lambda *_: seen.append(hasattr(sys.modules.get(serve), 'command')))\n"
        "status = main()\n"
        "print(status, all(seen), gc.isenabled(), len(gc.get_objects()) < 100)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout.endswith("\n0 True True True\n")


def test_serve_loads_nothing_that_draws() -> None:
    code = (
        "import sys, pubsubd.cli.serve\n"
        "print(sorted({'rich', 'pubsubd.client', 'pubsubd.cli.bench'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment()
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_explains_itself_and_each_of_its_options(name: str) -> None:
    command = import_module(f"pubsubd.cli.{name.replace('-', '_')}").command
    assert command.help
    shown = command.get_help(click.Context(command, info_name=name))
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter
            assert parameter.opts[0] in shown


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["pub"],
        ["sub"],
        ["sub", "x", "--count", "0"],
        ["sub", "x", "--format", "yaml"],
        ["sub", "x", "--timeout", "nan"],
        ["pub", "n", "data", "--file", "setup.cfg"],
        ["pub", "n", "--file", "/nonexistent"],
        ["pub", "n", "--lines", "--chunk", "1KiB"],
        ["pub", "n", "--lines", "--count", "2"],
        ["pub", "n", "--chunk", "2MiB"],
        ["serve", "--max-payload", "1MB"],
        ["serve", "--port", "65536"],
        ["stats", "--port", "0"],
        ["bench", "--timeout", "0"],
        ["ping", "--interval", "0"],
        ["peers", "--graph", "dot", "--json"],
    ],
)
def test_wrong_usage_is_told_with_status_2(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pubsubd", *words])
    assert cli.main([]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.startswith("Usage: pubsubd")
    assert "Error: " in told.err


@pytest.mark.parametrize("words", [["pub", "n", "x"], ["sub", "n"], ["stats"], ["explain", "n"]])
def test_a_refused_connection_is_one_clear_line(words: list[str]) -> None:
    done = run(*words, "--port=1")
    assert done.stderr == (
        "pubsubd: cannot connect to 127.0.0.1:1: connection refused;"
        ' is the daemon running? ("pubsubd serve")\n'
    )
    assert (done.returncode, done.stdout) == (1, "")


def test_a_missing_socket_is_one_clear_line() -> None:
    done = run("pub", "n", "x", "--unix=/nonexistent/socket")
    assert done.stderr == (
        "pubsubd: cannot connect to /nonexistent/socket: no such file or directory;"
        ' is the daemon running? ("pubsubd serve")\n'
    )
    assert done.returncode == 1


def test_a_connection_that_cannot_be_tried_is_one_clear_line() -> None:
    done = run("stats", "--unix", "/" + "x" * 200)
    assert done.stderr == f"pubsubd: cannot connect to /{'x' * 200}: AF_UNIX path too long\n"
    assert done.returncode == 1


async def test_where_the_daemon_is_may_stand_in_the_environment() -> None:
    async with serving() as port:
        done = await pubsubd("pub", "n", "x", PUBSUBD_PORT=str(port))
        assert (done.returncode, done.stderr) == (0, b"")
        done = await pubsubd("pub", "n", "x", "--port", str(port), PUBSUBD_PORT="1")
        assert (done.returncode, done.stderr) == (0, b"")


def test_an_unexpected_failure_is_one_line_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of\nall things")

    monkeypatch.setattr(sys, "argv", ["pubsubd", "stats"])
    monkeypatch.setattr(options.Target, "connect", fail)
    monkeypatch.delenv("PUBSUBD_DEBUG", raising=False)
    assert cli.main([]) == 1
    assert capsys.readouterr().err == (
        "pubsubd: internal error: ZeroDivisionError: of all things\n"
    )
    monkeypatch.setenv("PUBSUBD_DEBUG", "1")
    assert cli.main([]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_interrupt_is_found_among_other_failures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BaseExceptionGroup("", [ValueError(), BaseExceptionGroup("", [KeyboardInterrupt()])])

    monkeypatch.setattr(sys, "argv", ["pubsubd", "stats"])
    monkeypatch.setattr(options.Target, "connect", fail)
    assert cli.main([]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("words", [["sub", "n"], ["pub", "n"]])
async def test_an_interrupt_ends_a_command_with_130_and_no_word(words: list[str]) -> None:
    async with serving() as port, trio.open_nursery() as nursery:
        # Its input is left open: pub waits for it.
        process = await start(nursery, *words, port=port, stderr=subprocess.PIPE)
        await wait_connected(port)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert b"".join([part async for part in process.stderr]) in (b"", b"\n")
        assert await process.wait() == 130


async def wait_connected(port: int) -> None:
    """Ask until somebody else is connected; who is has been through the imports."""
    async with open_client(port=port) as client:
        while b'"connections": 2,' not in await client.request("//pubsubd/stats"):  # noqa: ASYNC110
            await trio.sleep(0.01)  # requests have a rate


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1048576", 1048576), ("64KiB", 65536), ("8 mib", 8 << 20), ("1GiB", 1 << 30)],
)
def test_sizes_are_bytes_or_have_a_unit(text: str, size: int) -> None:
    assert values.size()(text) == size
    assert values.size()(values.show_size(size)) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5MiB", "1MB", "1_0", "0x10", "\u0661", "KiB"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        values.size()(text)
