"""Do the manual pages and the README say what the program does?

Options, defaults, limits, codes and keys are compared with those of the code. The examples of
the protocol page and of the README are carried out, and what comes is compared with what is
printed there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from pubsubd.access.users import hash_password
from pubsubd.broker import connections
from pubsubd.broker.broker import Broker
from pubsubd.broker.events import KEPT
from pubsubd.broker.live import names, observers
from pubsubd.broker.live import sections as sections_module
from pubsubd.broker.statistics import Statistics
from pubsubd.broker.traffic import INTERVAL
from pubsubd.broker.turn import finish
from pubsubd.cli import COMMANDS, group, profiles
from pubsubd.cli.formats import FIELDS
from pubsubd.cli.options import NAMES
from pubsubd.daemon import run as daemon_module
from pubsubd.daemon.lag import RECENT
from pubsubd.protocol import errors, limits
from pubsubd.protocol.limits import KIB, MIB, Limits
from pubsubd.settings.load import load
from pubsubd.settings.table import SETTINGS
from pubsubd.transport.accept import RESERVED
from pubsubd.transport.listen import KEEPALIVE
from tests.daemons import DEADLINE, ROOT, Daemon, Line, environment, program, tool, wait_until

DAEMON, COMMAND, PROTOCOL = "pubsubd.8", "pubsubd.1", "pubsubd-protocol.7"
CONF, OPERATIONS = "pubsubd.conf.5", "pubsubd-operations.7"
HUB, MESH, TOPOLOGY = "pubsubd-hub.7", "pubsubd-mesh.7", "pubsubd-topology.1"
PROXY = "pubsubd-proxy.7"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(path.name for path in (ROOT / "man").iterdir())

Start = Callable[..., Daemon]
Dial = Callable[..., Line]


def mandoc() -> str:
    """Return the program that checks and renders pages; without it nothing here means much."""
    path = shutil.which("mandoc")
    if path is None:
        pytest.fail("mandoc is not installed: run scripts/setup-test-tools")
    return path


# Reading pages


def source(page: str) -> str:
    return (ROOT / "man" / page).read_text(encoding="utf-8")


@functools.cache
def rendered(page: str) -> str:
    """Return what a reader sees, all white space being one space."""
    shown = subprocess.run(
        [mandoc(), "-T", "ascii", "-O", "width=1000", ROOT / "man" / page],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return " ".join(re.sub(".\b", "", shown).split())


def section(page: str, title: str) -> str:
    """Return the source of the section or subsection ``title``, without those below it."""
    parts = re.split(r"^\.S[hs] (.*)\n", source(page), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def displays(page: str) -> list[str]:
    """Return the examples of a page, as a reader sees them."""
    found = re.findall(r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed", source(page), re.MULTILINE)
    return [text.replace("\\e", "\\").replace("\\&", "") for text in found]


def items(text: str, kind: str) -> list[str]:
    """Return the tags of the list items whose macro is ``kind``, in order."""
    return re.findall(rf"^\.It {kind} (\S+)", text, flags=re.MULTILINE)


def documented_options(text: str) -> dict[str, str]:
    """Return the long options that ``text`` lists, with what it says about each."""
    parts = re.split(r"^\.It (?:Cm \S+ Pq )?(Fl .*)\n", text, flags=re.MULTILINE)
    return {
        f"-{name}": about
        for tag, about in zip(parts[1::2], parts[2::2], strict=True)
        for name in re.findall(r"Fl (-\S+)", tag)
    }


def option_section(command: str) -> str:
    if command == "serve":
        return source(DAEMON) + source(CONF)
    if command == "topology":
        return section(TOPOLOGY, "DESCRIPTION")
    return section(COMMAND, f"pubsubd {command}")


def synopsis(command: str) -> str:
    """Return the part of the synopsis that shows ``command``."""
    if command == "topology":
        return section(TOPOLOGY, "SYNOPSIS")
    page = DAEMON if command == "serve" else COMMAND
    shown = section(page, "SYNOPSIS").split(f".Cm {command}\n")[1]
    return shown.split(".Nm\n")[0]


# Reading the program


def command_of(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def options_of(command: str, *, common: bool | None = None) -> dict[str, click.Option]:
    """Return a command's options by their long names.

    For clients, ``common`` selects those that all of them have, or the others.
    """
    found = {}
    for param in command_of(command).params:
        if isinstance(param, click.Option) and common in (None, param.name in NAMES):
            for name in (*param.opts, *param.secondary_opts):
                if name.startswith("--"):
                    found[name] = param
    return found


def default_of(command: str, option: click.Option) -> str | None:
    """Return the default as a page would name it."""
    shown = option.get_default(click.Context(command_of(command)))
    if option.secondary_opts and option.default is not None:
        return (option.opts if shown else option.secondary_opts)[0].removeprefix("--")
    if isinstance(shown, tuple):
        return " ".join(shown) or None
    if option.is_flag or option.secondary_opts or not isinstance(shown, str | int | float):
        return None
    return str(shown)


OTHERS = ("serve", "passwd", "schema", "mesh-sim", "topology")
CLIENTS = [name for name in COMMANDS if name not in OTHERS]


# The pages themselves


@pytest.mark.parametrize("page", PAGES)
def test_mandoc_finds_nothing_to_complain_about(page: str) -> None:
    found = subprocess.run(
        [mandoc(), "-T", "lint", "-W", "warning", ROOT / "man" / page],
        capture_output=True,
        check=False,
        text=True,
    )
    assert (found.stdout, found.stderr) == ("", "")


def test_there_are_these_pages() -> None:
    assert (
        sorted([DAEMON, COMMAND, CONF, HUB, MESH, OPERATIONS, PROTOCOL, PROXY, TOPOLOGY]) == PAGES
    )


@pytest.mark.parametrize("page", PAGES)
def test_a_page_leads_to_the_others(page: str) -> None:
    listed = re.findall(r"^\.Xr (\S+) (\d)", section(page, "SEE ALSO"), flags=re.MULTILINE)
    others = {f"{name}.{number}" for name, number in listed}
    assert {*PAGES} - others == {page}


# Options


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_lists_the_options_of_a_command_and_no_others(command: str) -> None:
    common = None if command == "serve" else False
    assert set(documented_options(option_section(command))) == set(
        options_of(command, common=common)
    )


@pytest.mark.parametrize("command", CLIENTS)
def test_the_options_of_all_commands_are_those_of_every_client(command: str) -> None:
    listed = documented_options(section(COMMAND, "Options of all clients"))
    assert set(listed) == {*options_of(command, common=True), "--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_synopsis_shows_every_option_and_argument(command: str) -> None:
    shown = synopsis(command)
    common = None if command == "serve" else False
    named = {f"-{name}" for name in re.findall(r"(?:Fl|\|) (-\S+)", shown)}
    wanted = set(options_of(command, common=common))
    if command == "serve":  # one stands for all settings, which have a page of their own
        wanted = wanted - {setting.flag for setting in SETTINGS.values()} | {"--setting"}
    assert named == wanted
    arguments = [p for p in command_of(command).params if isinstance(p, click.Argument)]
    for argument in arguments:
        word = (argument.metavar or argument.name or "").lower().strip(".")
        assert re.search(rf"^\.(Op )?Ar {word}\b", shown, flags=re.MULTILINE), word


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_names_the_real_defaults(command: str) -> None:
    told = documented_options(option_section(command))
    if command != "serve":
        told |= documented_options(section(COMMAND, "Options of all clients"))
    for name, option in options_of(command).items():
        found = re.search(r"^Default: (\S+)\.$", told[name], flags=re.MULTILINE)
        assert (found and found[1]) == default_of(command, option), name


def test_the_daemon_s_page_tells_the_variables() -> None:
    assert "Its name is PUBSUBD_ and the flag in upper case, with `_' for `-'." in rendered(DAEMON)
    for name, option in options_of("serve").items():
        if name not in ("--check", "--as-user"):
            assert option.envvar == "PUBSUBD_" + name[2:].replace("-", "_").upper()


@pytest.mark.parametrize("command", CLIENTS)
def test_the_commands_page_tells_the_variables(command: str) -> None:
    listed = items(section(COMMAND, "ENVIRONMENT"), "Ev")
    variables = [option.envvar for option in options_of(command).values() if option.envvar]
    assert {*variables, "PUBSUBD_DEBUG", "XDG_CONFIG_HOME", "NO_COLOR", "FORCE_COLOR"} == set(
        listed
    )


def test_the_daemon_s_page_tells_every_choice() -> None:
    told = documented_options(source(CONF))
    for name, option in options_of("serve").items():
        if isinstance(option.type, click.Choice):
            for choice in option.type.choices:
                assert re.search(rf"^\.(It )?Cm {choice}\b", told[name], flags=re.MULTILINE)


def test_the_commands_page_tells_every_format_and_field() -> None:
    text = section(COMMAND, "pubsubd sub")
    assert items(text, "Cm") == ["pretty", "text", "raw", "json"]
    for field in FIELDS:
        assert f".Li {{{field}}}" in text


def test_the_pages_and_the_readme_know_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        assert f".Cm {command}\n" in section(COMMAND, "SYNOPSIS")
        assert f"pubsubd {command}" in readme or f"`{command}`" in readme


def shown_settings() -> Iterator[str]:
    """Yield the settings that the README and the pages show."""
    yield from re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    for page in (CONF, OPERATIONS):
        yield from (text for text in displays(page) if re.match(r"\w+ = |\[\[", text))


@pytest.mark.parametrize("text", list(shown_settings()), ids=lambda text: text.partition(" ")[0])
def test_settings_that_are_shown_are_good(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pubsubd.toml"
    path.write_text(text, encoding="utf-8")
    assert load({}, path).values.keys() == SETTINGS.keys()


def test_the_profile_that_is_shown_is_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    profiles.folder().mkdir(parents=True)
    (text,) = (text for text in displays(COMMAND) if text.startswith("host = "))
    (profiles.folder() / "shown.toml").write_text(text)
    found = profiles.fill({}, (), "shown")
    assert list(found) == re.findall(r"^\w+", text, re.MULTILINE)
    told = section(COMMAND, "Profiles")
    for key in profiles.KEYS:
        assert re.search(rf"^\.Li ([\w ,]+ )?{key}\b", told, re.MULTILINE), key


# Limits


def test_the_protocol_page_tells_the_real_limits() -> None:
    text = section(PROTOCOL, "LIMITS")
    told = dict(re.findall(r"^\.It (?:Em )?(.*)\n(.*)$", text, flags=re.MULTILINE))
    real = Limits()
    untold = {"slow_consumer", "stall_window", "linger", "stats_interval"}
    for field in dataclasses.fields(real):
        value = getattr(real, field.name)
        if field.name in untold:
            continue
        if isinstance(value, float):
            expected = f"{value:g}" if field.name.endswith("_rate") else f"{value:g} seconds"
        elif value % MIB == 0 and value > 65_536:
            expected = f"{value // MIB} MiB"
        else:
            expected = f"{value:,}"
        assert told.pop(field.name).startswith(expected), field.name
    assert told == {
        "name, substring": f"{limits.MAX_NAME} bytes",
        "line": f"{limits.MAX_LINE} bytes",
        "length": f"{limits.MAX_DIGITS} digits",
    }


def test_the_numbers_in_the_pages_are_the_real_ones() -> None:
    real = Limits()
    idle, interval, probes = KEEPALIVE
    room = limits.MAX_DRAIN_INPUT // MIB
    silence = f"silent for {limits.QUIET:g} seconds, or has sent {room} MiB"
    for sentence in (
        f"A name or a substring is 1 to {limits.MAX_NAME} bytes",
        f"at most {limits.MAX_LINE} bytes before its LF",
        f"The length is 1 to {limits.MAX_DIGITS} ASCII digits",
        f"A name of more than {limits.MAX_NAME - 4} bytes has no copy",
        f"A receiver whose object begins after {limits.MAX_EXPLAINED // KIB} KiB",
        f"at most {limits.MAX_REASONS} of its substrings",
        f"on //pubsubd/stats every {real.stats_interval:g} seconds",
        f"for at most {real.linger:g} seconds in total",
        f"{real.stall_budget:g} seconds in any {real.stall_window:g} seconds",
        f"in the last {real.stall_window:g} seconds",
        f"probes begin after {idle} seconds and come every {interval} seconds",
        f"after {probes} probes without an answer, {(idle + interval * probes) // 60} minutes",
        silence,
    ):
        assert sentence in rendered(PROTOCOL)
    for sentence in (
        f"at most {limits.MAX_NAME} bytes, command lines {limits.MAX_LINE}",
        f"has {real.linger:g} seconds to read it",
        f"published every {real.stats_interval:g} seconds",
        f"after {idle} seconds without traffic and come every {interval} seconds; after {probes}",
        f"one read of {limits.READ_SIZE // KIB} KiB, or of up to {limits.MAX_READ // MIB} MiB",
        f"at once, up to {limits.READ_SIZE // KIB} KiB",
        f"less than {limits.EAGER * 1e3:g} milliseconds between its inputs",
        f"more than {limits.LONG_TURN * 1e3:g} milliseconds of processor time",
        f"{limits.MAX_PAUSE:g} seconds at most",
        f"next input for {limits.LOOK_OUT * 1e6:g} microseconds",
        f"after {limits.ALONE * 1e3:g} milliseconds the other connections",
        f"then three, then {limits.LEFT_OUT} each time",
        f"connections send more than {limits.MUCH // KIB} KiB at a time",
        f"as many of them are read as take {limits.SOON * 1e3:g} milliseconds",
        f"it polls for {limits.MESH_LOOK_OUT * 1e6:g} microseconds",
        f"at most {limits.MAX_CACHED_NAMES:,} names and {limits.MAX_CACHED_HEADERS:,} headers",
        f"Connections then have {real.linger:g} seconds",
        f"--hub-max-message, {limits.HUB_READ_SIZE // KIB} KiB and --hub-max-pending.",
        silence,
    ):
        assert sentence in rendered(DAEMON)
    for sentence in (
        f"How long, in any {real.stall_window:g} seconds, publishers wait",
        f"descriptors it may have minus {RESERVED}.",
    ):
        assert sentence in rendered(CONF)


def test_half_a_command_is_looked_for_as_often_as_the_page_says() -> None:
    assert "The daemon looks once a second" in rendered(PROTOCOL)
    assert daemon_module.SWEEP == 1


def test_the_readme_tells_the_real_limits() -> None:
    real = Limits()
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"{real.max_payload // MIB} MiB per message, {real.max_subscriptions:,} subscriptions, and"
        f" {real.max_pending // MIB} MiB of output that waits to be read"
    ) in readme


# Codes, keys and names


def test_the_table_of_lasting_connections_has_their_errors() -> None:
    listed = items(section(PROTOCOL, "Errors that leave the connection open"), "Cm")
    assert listed == list(errors.STAYS)


def test_the_table_of_ended_connections_has_their_errors() -> None:
    listed = items(section(PROTOCOL, "Errors that close the connection"), "Cm")
    assert listed == list(errors.CLOSES)


def test_the_protocol_page_tells_every_key_of_the_statistics() -> None:
    keys = [field.name for field in dataclasses.fields(Statistics)]
    assert items(section(PROTOCOL, "Statistics"), "Li") == keys


def test_the_protocol_page_tells_every_column_of_the_connections() -> None:
    listed = items(section(PROTOCOL, "Connections"), "Li")
    assert listed == ["sort", "limit", "after", *connections.COLUMNS]
    for sentence in (
        f"a JSON object of at most {connections.MAX_REQUEST} bytes",
        f"1 to {connections.MAX_ROWS}; default {connections.ROWS}",
        f"averages of the last {INTERVAL:g} to {2 * INTERVAL:g} seconds",
        f"An answer ends after {connections.MAX_ANSWER // KIB} KiB",
    ):
        assert sentence in rendered(PROTOCOL)


def test_the_protocol_page_tells_what_is_shown_live() -> None:
    broker = Broker(Limits())
    text = section(PROTOCOL, "Live")
    sections = [*broker.live.sections, "interval"]
    assert [name for name in items(text, "Li") if name in sections][: len(sections)] == sections
    totals = finish(broker.live.sections["totals"].look([(None, None)]))[None, None]
    for key in totals.difference(None):
        assert re.search(rf"^\.(Li|It Li) ([\w ,]+ )?{key}\b", text, re.MULTILINE), key
    for sentence in (
        f"JSON object of at most {observers.MAX_REQUEST} bytes",
        f"limit, 1 to {sections_module.MAX_ROWS}, default {sections_module.ROWS}",
        f"limit, 1 to {names.MAX_NAMES}, default {names.NAMES}",
        f"has, up to {KEPT}, default 100",
        "seconds from one message to the next, {:g} to {:g}, default 1".format(
            *observers.INTERVALS
        ),
        f"more than {observers.ROOM // KIB} KiB waited",
        f"take {observers.SHARE:.0%} of a core at most".replace("%", " %"),
        f"an average of some {names.FADING:g} seconds",
        f"the most in the last {RECENT:g} seconds",
    ):
        assert sentence in rendered(PROTOCOL)
    assert observers.MAX_OBSERVERS == 100
    assert "A hundred connections have asked" in rendered(PROTOCOL)


def test_the_protocol_page_tells_every_request() -> None:
    listed = [t for t in items(section(PROTOCOL, "Requests"), "Li") if t.startswith("//")]
    assert {name.encode() for name in listed} == set(Broker(Limits()).requests)


def test_the_daemon_s_page_tells_every_event_of_the_log() -> None:
    logged = set()
    for module in (ROOT / "pubsubd").rglob("*.py"):
        code = module.read_text(encoding="utf-8")
        logged |= set(re.findall(r'"event=([\w-]+)', code)) | set(
            re.findall(r'_tell\("(\w+)', code)
        )
        logged |= set(re.findall(r'"event": "([\w-]+)"', code))
    assert set(items(section(DAEMON, "LOGGING"), "Li")) == logged


def test_the_operator_s_guide_says_what_to_do_about_every_event_and_every_reason() -> None:
    listed = re.findall(r"^\.It Li (.*)$", section(OPERATIONS, "LOG"), flags=re.MULTILINE)
    told = [word for words in listed for word in words.split(" , ")]
    assert len(told) == len(set(told))
    reasons = {*errors.CLOSES, *errors.HUB_CLOSES, *errors.MESH_CLOSES}
    reasons -= {"too-many-connections"}  # of "refused"
    assert set(told) == set(items(section(DAEMON, "LOGGING"), "Li")) | reasons


# The examples of the protocol page


def examples() -> Iterator[list[tuple[str, int, bytes]]]:
    """Yield each example: its lines, as who speaks (C or D), the client's number, and what.

    Before the first one may stand what kind of daemon there is, as a line of ``daemon``.
    """
    shown = r'^(?:\.\\" daemon: (.*)\n)?\.Bd -literal.*\n((?:(?!\.).*\n)+)\.Ed'
    for kind, block in re.findall(shown, source(PROTOCOL), flags=re.MULTILINE):
        lines = [re.fullmatch(r"([CD])(\d?): (.*)", line) for line in block.splitlines()]
        if all(lines):
            yield [("daemon", 0, kind.encode())] * bool(kind) + [
                (who, int(number or 1), bytes_of(text))
                for who, number, text in (line.groups() for line in lines if line)
            ]


def bytes_of(text: str) -> bytes:
    r"""Return the bytes that an example shows: roff's ``\e`` is the page's backslash."""
    plain = text.replace("\\e", "\0")
    assert "\\" not in plain, f"roff that this test does not know: {text}"
    assert plain.isascii(), text
    known = {"r": b"\r", "n": b"\n", "\0": b"\\"}

    def one(found: re.Match[str]) -> str:
        escape = found[1]
        byte = bytes.fromhex(escape[1:]) if escape[0] == "x" else known[escape]
        return byte.decode("latin-1")

    return re.sub("\0(x[0-9a-f]{2}|[rn\0])", one, plain).encode("latin-1")


def without_ports(stream: bytes) -> bytes:
    """Return ``stream`` without ports and times, which differ each time."""
    stream = re.sub(rb"127\.0\.0\.1:\d{5}", b"127.0.0.1:-----", stream)
    stream = re.sub(rb'"since": [0-9.]+', rb'"since": -', stream)
    stream = re.sub(rb'"at": [0-9.]+', b'"at": -', stream)
    stream = re.sub(rb'"took_ms":[0-9.]+', b'"took_ms":-', stream)
    return re.sub(rb"(//pubsubd/(?:connections|live|trace)) \d+", rb"\1 -", stream)


EXAMPLES = list(examples())


def test_the_protocol_page_has_its_examples() -> None:
    # An example with a slip in its form would otherwise be left out.
    spoken = re.findall(r"^[CD]\d?: ", source(PROTOCOL), flags=re.MULTILINE)
    assert len(spoken) == sum(e[0] != "daemon" for example in EXAMPLES for e in example) > 50


def with_ann(directory: Path) -> Path:
    """Return settings by which ann logs in, and may publish what she does in the example."""
    people = directory / "users"
    people.write_text(f"ann:{hash_password('correct horse')}\n")
    people.chmod(0o600)
    config = directory / "pubsubd.toml"
    rule = '[[acl]]\nwho = ["ann"]\npublish = ["chat/"]\nreceive = ["#"]\n'
    config.write_text(f'users_file = "{people}"\n{rule}')
    return config


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e[0][2][:24].decode("latin-1"))
def test_an_example_of_the_protocol_page_is_byte_exact(
    example: list[tuple[str, int, bytes]], start: Start, dial: Dial, tmp_path: Path
) -> None:
    if example[0] == ("daemon", 0, b"ann"):
        example = example[1:]
        daemon = start("--config", str(with_ann(tmp_path)))
    else:
        daemon = start()
    lines: dict[int, Line] = {}
    ended: set[int] = set()
    heard: dict[int, bytes] = defaultdict(bytes)
    if all(who == "D" for who, _, _ in example):  # what is heard when the daemon ends
        lines[1] = dial(daemon)
        lines[1].ping()
        daemon.signal()
        heard[1] = lines[1].hear_end()
        lines[1].close()
        assert daemon.wait() == 0
        ended.add(1)
    for at, (who, number, text) in enumerate(example):
        line = lines.get(number) or lines.setdefault(number, dial(daemon))
        if who == "C":
            line.say(text + b"\n")
            after = [entry for entry in example[at + 1 :] if entry[1] == number]
            answers = after[: next((i for i, e in enumerate(after) if e[0] == "C"), None)]
            if any(answer == b"(closed)" for _, _, answer in answers):
                heard[number] += line.hear_end()
                ended.add(number)
            else:
                heard[number] += line.ping()
        elif text == b"(closed)":
            assert number in ended
        else:
            if number not in ended:
                heard[number] += line.ping()
            expected = without_ports(text + b"\n")
            while len(got := without_ports(heard[number])) < len(expected) and number not in ended:
                heard[number] += line.ping()  # what is shown live comes behind the ping's answer
            heard[number] = got[len(expected) :]
            assert got[: len(expected)] == expected
    for number, line in lines.items():
        rest = heard[number] + (b"" if number in ended else line.ping())
        assert rest == b"", f"client {number} hears more than the page shows"


# The README


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


CONSOLES = fences("console")


Shell = Callable[[str], list[str]]


@pytest.fixture
def shell(daemon: Daemon, tmp_path: Path) -> Shell:
    """Return a function that makes the command for a line of the README."""
    return shell_of(daemon, tmp_path)


def shell_of(daemon: Daemon, directory: Path) -> Shell:
    """Return a function that makes the command for a line of a page.

    It finds ``pubsubd`` and the daemon, whose port is another one.
    """
    bin_ = directory / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "pubsubd").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pubsubd "$@"\n')
    (bin_ / "pubsubd").chmod(0o755)
    port, hub = str(daemon.address[1]), str(daemon.hub[1])

    def command(line: str) -> list[str]:
        settings = [f"PATH={bin_}{os.pathsep}{os.environ['PATH']}", f"PUBSUBD_PORT={port}"]
        return ["env", *settings, "bash", "-c", line.replace("9014", port).replace("9015", hub)]

    return command


def test_the_readme_opens_with_a_session_that_works_as_printed(
    daemon: Daemon, dial: Dial, tmp_path: Path, shell: Shell
) -> None:
    tool("nc")
    first, second = CONSOLES[:2]
    start, typed, *printed = first.splitlines()
    assert start == "$ nc 127.0.0.1 9014"
    assert (typed, printed) == ("sub chat", ["pub chat/main 5 hello"])
    watch = dial(daemon)
    screen = tmp_path / "screen"
    with (
        screen.open("wb") as output,
        program(*shell("exec " + start.removeprefix("$ ")), stdout=output) as nc,
    ):
        assert nc.stdin is not None
        nc.stdin.write(typed.encode() + b"\n")
        nc.stdin.flush()
        wait_until(lambda: watch.stats()["subscriptions"] == 1, "nc has subscribed")
        done = subprocess.run(
            shell(second.strip().removeprefix("$ ")),
            capture_output=True,
            timeout=DEADLINE,
            check=True,
            env=environment(),
        )
        assert done.stdout + done.stderr == b""
        expected = "".join(f"{line}\n" for line in printed)
        wait_until(lambda: screen.stat().st_size >= len(expected), "nc prints the message")
        assert screen.read_text() == expected


@pytest.mark.parametrize("console", CONSOLES[2:], ids=lambda c: c.splitlines()[0])
def test_an_example_of_the_readme_prints_what_it_says(
    console: str, daemon: Daemon, tmp_path: Path, shell: Shell
) -> None:
    """As it is printed, in one bash, which waits for nothing but what the example waits for."""
    for name in ("nc", "curl"):
        if f"{name} -" in console:
            tool(name)
    lines = console.splitlines()
    commands = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    printed = "".join(f"{line}\n" for line in lines if not line.startswith("$ "))
    here = tmp_path / "here"
    here.mkdir()
    shutil.copy(ROOT / "README.md", here)
    done = subprocess.run(
        shell("\n".join(["set -e", *commands, "wait"])),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=here,
        env=environment(),
        timeout=DEADLINE,
        check=True,
        text=True,
    )
    assert without_clients(done.stdout).rstrip("\n") == without_clients(printed).rstrip("\n")


SESSIONS = [text for text in displays(COMMAND) if text.startswith("$ ")]


@pytest.mark.parametrize("session", SESSIONS, ids=lambda text: text.splitlines()[0][2:])
def test_an_example_of_the_commands_page_prints_what_it_says(
    session: str, daemon: Daemon, start: Start, dial: Dial, tmp_path: Path, shell: Shell
) -> None:
    """As the README's, in a home of its own, while somebody is subscribed to ``chat``."""
    dial(daemon).say(b"sub chat\n")
    if "peers" in session or "trace" in session:
        first, last = linked(start, chain="--weak" in session or "trace" in session)
        if "trace" in session:
            subscribe_from_afar(dial(last), Line(first.address))
        shell = shell_of(first, tmp_path / "linked")
    commands = [line.removeprefix("$ ") for line in session.splitlines() if line.startswith("$ ")]
    printed = [line for line in session.splitlines() if not line.startswith("$ ")]
    done = subprocess.run(
        shell("\n".join(["set -e", *commands, "wait"])),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=tmp_path,
        env=environment() | {"HOME": str(tmp_path), "XDG_CONFIG_HOME": ""},
        timeout=DEADLINE,
        check=True,
        text=True,
    )
    assert [without_figures(line) for line in done.stdout.splitlines()] == [
        without_figures(line) for line in printed
    ]


def linked(start: Start, *, chain: bool) -> tuple[Daemon, Daemon]:
    """Return two linked daemons that know the round trip; in a ``chain``, one is between them."""
    a = start("--node", "a")
    last = a
    for node in "bc" if chain else "b":
        peer = f"127.0.0.1:{last.address[1]}"
        last = start("--node", node, "--peer", peer)

    def measured() -> bool:
        with contextlib.closing(Line(a.address)) as line:
            line.say(b"pub //pubsubd/edges 0 \n")
            rows = json.loads(line.hear_frame()[1])["edges"]
        up = [row for row in rows if row["state"] == "up"]
        own = [row["rtt_ms"] for row in up if row["observer"] == "a"]
        return len(up) == 2 + 2 * chain and None not in own

    wait_until(measured, "the first daemon has measured its link")
    return a, last


def subscribe_from_afar(far: Line, near: Line) -> None:
    """Subscribe to ``//fwd/chat``, and wait until the daemon at the other end knows."""
    far.say(b"sub //fwd/chat\n")

    def known() -> bool:
        near.say(b"pub //pubsubd/explain 10 //fwd/chat\n")
        return bool(json.loads(near.hear_frame()[1])["count"])

    with contextlib.closing(near):
        wait_until(known, "the other daemon knows of the subscription")


def without_figures(text: str) -> str:
    """Return ``text`` without numbers and identifiers, which differ each time."""
    return re.sub(r"\d[\d.,:]*", "N", re.sub(r"\b[0-9a-f]{32}\b", "ID", text))


def without_clients(text: str) -> str:
    """Return ``text`` without ports of clients and identifiers, which differ each time."""
    text = re.sub(r"tcp/127\.0\.0\.1:\d+", "tcp/127.0.0.1:", text)
    return re.sub(r"msg_[0-9a-f]{32}", "msg_", text)


SAID = re.findall(r"^It prints `(.*?)`\.", README, flags=re.MULTILINE)


@pytest.mark.parametrize(("code", "said"), list(zip(fences("python"), SAID, strict=True)), ids=SAID)
def test_a_program_of_the_readme_prints_what_it_says(code: str, said: str, daemon: Daemon) -> None:
    assert ("9014" in code) != ("9015" in code)
    port, hub = str(daemon.address[1]), str(daemon.hub[1])
    done = subprocess.run(
        [sys.executable, "-c", code.replace("9014", port).replace("9015", hub)],
        capture_output=True,
        timeout=DEADLINE,
        check=False,
        env=environment(),
    )
    assert (done.stdout.decode(), done.stderr.decode()) == (f"{said}\n", "")


INSTALL = ("python3 -m venv ~/pubsubd", "~/pubsubd/bin/pip install .")


def test_the_readme_s_scripts_are_there_and_can_be_run() -> None:
    commands = [line for block in fences("sh") for line in block.splitlines()]
    for command in commands:
        if command not in INSTALL:
            assert os.access(ROOT / command, os.X_OK), command
    assert {"scripts/serve", "scripts/test", "scripts/bench"} <= set(commands)


def test_the_readme_s_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)]*)\)", README) if "://" not in link]
    assert [link for link in links if not (ROOT / link).exists()] == []
    assert {f"man/{page}" for page in PAGES} <= set(links)
