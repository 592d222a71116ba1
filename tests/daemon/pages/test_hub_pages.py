"""Does pubsubd-hub(7) say what the hub port does? Its examples are carried out, and more.

The notation is told on the page. Each example is carried out twice, over lines and over WebSocket;
each message of the daemon also has to satisfy one of the schemas, and so has each of a client that
is not refused.
"""

from __future__ import annotations

import dataclasses
import http.client
import json
import re
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import click
import jwt
import pytest
from websockets.exceptions import ConnectionClosed

from pubsubd.access import tokens
from pubsubd.cli import group
from pubsubd.hub import (
    actors,
    asking,
    catalogue,
    connection,
    federation,
    protocol,
    replies,
    search,
    strict,
    topic_table,
)
from pubsubd.hub import http as hub_http
from pubsubd.hub.schema import signal, synap
from pubsubd.hub.signal import REQUESTS
from pubsubd.hub.synap import commands, subscribers
from pubsubd.mesh import outgoing
from pubsubd.protocol import errors, limits
from pubsubd.protocol.limits import HubLimits
from pubsubd.routing.wildcards import MAX_LEVELS
from tests.daemon.pages.test_pages import HUB, bytes_of, rendered, section, source
from tests.daemons import DEADLINE, Daemon, Line, wait_until
from tests.hubs import Lines, Socket
from tests.schemas import SCHEMA, kinds_of, validator

SECRET = "0123456789abcdef0123456789abcdef"
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PLACES = {
    "<uuid>": UUID,
    "<hex>": "[0-9a-f]{32}",
    "<port>": "[0-9]+",
    "<token>": r"[\w-]+\.[\w-]+\.[\w-]+",
    "<time>": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "<version>": r"\d+\.\d+\.\d+",
}
PONG = {"type": "pong"}


# The examples


@dataclasses.dataclass
class Example:
    """One example: the flags of its daemon, None if any will do; a token; who says what."""

    flags: list[str] | None
    claims: dict[str, Any]
    lines: list[tuple[str, str]]


def examples() -> Iterator[Example]:
    """Yield the examples of the page."""
    displays = r'((?:^\.\\" [^\n]*\n)*)^\.Bd -literal\n(.*?)^\.Ed'
    for notes, text in re.findall(displays, source(HUB), flags=re.MULTILINE | re.DOTALL):
        told = dict(re.findall(r'^\.\\" (\w+): ?(.*)$', notes, flags=re.MULTILINE))
        lines: list[tuple[str, str]] = []
        for line in text.splitlines():
            if line.startswith("   "):
                who, said = lines.pop()
                lines.append((who, said + line.strip()))
            else:
                who, _, said = line.partition(" ")
                lines.append((who, said))
        flags = told["daemon"].split() if "daemon" in told else None
        yield Example(flags, json.loads(told.get("token", "{}")), lines)


EXAMPLES = list(examples())


def shown(text: str) -> Any:
    """Return what an example shows as a value, with its placeholders as texts."""
    text = re.sub(r":<(ms|s|n)>", r':"<\1>"', text)
    text = text.replace(",...}", ',"...":0}').replace("[...]", '["..."]')
    return json.loads(text)


def same(wanted: Any, real: Any) -> bool:
    """Return whether a real value is what is shown."""
    if wanted in ("<ms>", "<s>"):
        unit = 1000 if wanted == "<ms>" else 1
        return isinstance(real, int) and abs(real / unit - time.time()) < 100_000
    if wanted == "<n>":
        return isinstance(real, int | float)
    if isinstance(wanted, str) and isinstance(real, str):
        pattern = re.escape(wanted)
        for place, meaning in PLACES.items():
            pattern = pattern.replace(re.escape(place), meaning)
        return re.fullmatch(pattern, real) is not None
    if isinstance(wanted, dict) and isinstance(real, dict):
        keys = set(wanted) - {"..."}
        whole = "..." in wanted or keys == set(real)
        return whole and keys <= set(real) and all(same(wanted[key], real[key]) for key in keys)
    if isinstance(wanted, list) and isinstance(real, list):
        if wanted == ["..."]:
            return True
        return len(wanted) == len(real) and all(map(same, wanted, real))
    return bool(wanted == real) and type(wanted) is type(real)


class Client:
    """A JSON client of the examples, over lines or over WebSocket."""

    def __init__(self, daemon: Daemon, carrier: str) -> None:
        self.link: Any = Lines(daemon) if carrier == "lines" else Socket(daemon)
        self.closed: tuple[int, str] | None = None
        self.renewal = ""
        self._inbox: deque[Any] = deque()

    def say(self, text: str) -> None:
        """Send a message as it is written."""
        if isinstance(self.link, Lines):
            self.link.say_raw(text.encode() + b"\n")
        else:
            self.link.connection.send(text)

    def sync(self) -> None:
        """Wait until all that was sent has been carried out, or the connection is closed."""
        if self.closed is None:
            with suppress(ConnectionClosed, ConnectionError):  # it may be closed already
                self.say('{"type":"ping"}')
            while (message := self._read()) not in (PONG, None):
                self._inbox.append(message)

    def hear(self) -> Any:
        """Return the next message; None if the connection is closed."""
        return self._inbox.popleft() if self._inbox else self._read()

    def drained(self) -> bool:
        """Return whether nothing was heard that is not told."""
        self.sync()
        return not self._inbox

    def close(self) -> None:
        """Close, in a way that is not taken for the end of what it sends."""
        if isinstance(self.link, Lines):
            linger = struct.pack("ii", 1, 0)
            self.link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.link.close()

    def _read(self) -> Any:
        if self.closed is not None:
            return None
        if isinstance(self.link, Lines):
            line = self.link.hear_raw(1)
            while line and not line.endswith(b"\n"):
                line += self.link.hear_raw(1)
            if not line:
                self.closed = (0, "")
                return None
            message = json.loads(line)
        else:
            try:
                message = self.link.hear()
            except ConnectionClosed as error:
                self.closed = (error.rcvd.code, error.rcvd.reason) if error.rcvd else (1006, "")
                return None
        if message.get("type") in ("hub:registered", "hub:renewed"):
            self.renewal = message["payload"]["renewalToken"]
        return message


def request(daemon: Daemon, said: str) -> tuple[int, bytes]:
    """Carry out an HTTP request of an example and return status and body."""
    method, path, header, value, body = re.fullmatch(
        r"([A-Z]+) (\S+)(?: \[([\w-]+): (.*?)\])?(?: (\{.*))?", said
    ).groups()  # type: ignore[union-attr]
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    try:
        connection.request(method, path, body, {header: value} if header else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


BODIES = [name for name in SCHEMA["$defs"] if name.startswith(("http_", "Synap", "daemon_pubsub"))]


@pytest.fixture(scope="module")
def watch(shared: Daemon) -> Iterator[Line]:
    line = Line(shared.address)
    yield line
    line.close()


@pytest.mark.parametrize("carrier", ["lines", "websocket"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.lines[0][1][:48])
def test_an_example_of_the_hub_page_is_what_happens(
    shared: Daemon,
    watch: Line,
    start: Callable[..., Daemon],
    tmp_path: Path,
    example: Example,
    carrier: str,
) -> None:
    daemon, token, ending = shared, "", False
    if example.flags is not None:
        flags = example.flags
        if "--hub-auth" in flags:
            key = tmp_path / "key"
            key.write_text(SECRET)
            flags = [*flags, str(key)]
            claims = {"iss": "signal-hub", "exp": time.time() + 3600} | example.claims
            token = jwt.encode(claims, SECRET, algorithm="HS256")
        daemon = start(*flags)
    clients: dict[str, Client] = {}
    with ExitStack() as stack:

        def client(number: str) -> Client:
            if number not in clients:
                clients[number] = Client(daemon, carrier)
                stack.callback(clients[number].close)
            return clients[number]

        line = Line(daemon.address)
        stack.callback(line.vanish)
        answered: tuple[int, bytes] | None = None
        accepted: list[str] = []
        for who, said in example.lines:
            if who == "nc>":
                line.say(bytes_of(said) + b"\n")
                if said.startswith("sub"):
                    assert line.ping() == b""
            elif who == "nc<":
                name, data = line.hear_frame()
                # The length depends on how many digits the port has.
                frame = f"pub {name} <n> {data.decode()}"
                wanted = re.sub(r"^(pub \S+) \d+ ", r"\1 <n> ", said)
                assert same(wanted, frame), frame
            elif who == "C:" and not said.startswith("{"):
                answered = request(daemon, said.replace("<token>", token))
            elif answered is not None:
                status, _, body = said.partition(" ")
                assert int(status) == answered[0], answered
                if body:
                    real = json.loads(answered[1])
                    assert same(shown(body), real), f"{said}\n{answered[1]!r}"
                    assert any(validator(name).is_valid(real) for name in BODIES), real
                else:
                    assert answered[1] == b""
                answered = None
            elif who.startswith("C"):
                one = client(who[1:-1])
                text = said.replace("<token>", token).replace("<renewal>", one.renewal)
                one.say(text)
                accepted.append(text)
                one.sync()
            else:
                one = client(who[1:-1])
                if "the daemon is ending" in said and not ending:
                    daemon.signal()
                    ending = True
                if said.startswith("(closed "):
                    code, reason = said.removeprefix("(closed ").removesuffix(")").split(" ", 1)
                    assert one.hear() is None
                    told = (0, "") if carrier == "lines" else (int(code), reason)
                    assert one.closed == told
                    continue
                real = one.hear()
                assert real is not None, f"closed, not {said}"
                assert same(shown(said), real), f"{said}\n{json.dumps(real)}"
                assert kinds_of(real, "daemon"), real
                refused = real.get("type") == "hub:error" or real.get("success") is False
                if refused and accepted:
                    accepted.pop()
        for said in accepted:
            assert kinds_of(json.loads(said), "client"), said
        for number, one in clients.items():
            assert one.drained(), f"client {number} hears more than the page shows"
        if not ending:
            assert line.ping() == b"", "nc hears more than the page shows"
    if ending:
        assert daemon.wait() == 0
    elif daemon is shared:
        wait_until(lambda: watch.stats()["connections"] == 1, "the example's clients have left")


def test_every_example_is_carried_out() -> None:
    said = re.findall(r"^(?:[CD]\d?:|nc[<>]) ", source(HUB), flags=re.MULTILINE)
    assert len(said) == sum(len(example.lines) for example in EXAMPLES) > 200


# What has to stand there


def test_the_page_shows_every_message() -> None:
    lines = [said for example in EXAMPLES for who, said in example.lines]
    texts = "\n".join(lines)
    for name in {*REQUESTS, *signal.REPLIES} - {"hub:registration_lost"}:
        assert f'"type":"{name}"' in texts, name  # one daemon alone never sends that one
    assert "hub:registration_lost" in section(HUB, "Actors in a mesh of daemons")
    for name in synap.COMMANDS:
        assert f'"command":"{name}"' in texts, name
    assert list(synap.COMMANDS) == list(commands.COMMANDS)


def test_the_page_explains_every_request() -> None:
    hub = source(HUB).split(".Sh SIGNAL HUB\n")[1].split(".Sh SYNAP\n")[0]
    assert re.findall(r"^\.It Li (hub:\w+)$", hub, flags=re.MULTILINE) == [
        *sorted(REQUESTS, key=lambda kind: _order(hub, kind))
    ]
    told = re.findall(r"^\.It Li (pubsub\.\w+)$", section(HUB, "SYNAP"), flags=re.MULTILINE)
    assert told == list(synap.COMMANDS)


def _order(text: str, kind: str) -> int:
    return text.index(f".It Li {kind}\n")


def test_the_page_tells_every_reason_for_an_end_with_its_close_code() -> None:
    parts = re.split(r"^\.It Li (\S+)\n", section(HUB, "HOW CONNECTIONS END"), flags=re.MULTILINE)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    of_line_only = {"wrong-length", "payload-too-large", "line-too-long", "http-request", "no-tls"}
    of_line_only |= {
        "bad-proxy-header",
        "too-many-failures",
        "tls-required",
        "tls-failed",
        "tls-timeout",
    }
    assert set(told) == {*errors.CLOSES, *errors.HUB_CLOSES} - of_line_only - {
        "too-many-connections"
    }
    for reason, text in told.items():
        if reason not in ("bad-websocket", "bad-http"):
            code = connection.CLOSE_CODES.get(reason, 1000)
            assert re.search(rf"^{code}\.$", text, flags=re.MULTILINE), reason


def test_the_page_tells_every_error_code() -> None:
    told = re.findall(r"^\.It Li (\S+)$", section(HUB, "Errors"), flags=re.MULTILINE)
    assert tuple(told) == replies.CODES


def test_the_page_names_every_limit_with_its_default() -> None:
    parts = re.split(r"^\.It Fl -hub-(\S+)\n", section(HUB, "LIMITS"), flags=re.MULTILINE)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    defaults = HubLimits()
    for field in dataclasses.fields(HubLimits):
        text = told.pop(field.name.replace("_", "-"))
        value = getattr(defaults, field.name)
        expected = "Off:" if value is False else f"{value:,g}" if value < 1e5 else f"{value:,.0f}"
        assert text.startswith(expected), field.name
    assert told == {}


def test_the_page_names_real_flags() -> None:
    command = group.get_command(click.Context(group), "serve")
    assert command is not None
    real = {name for param in command.params for name in param.opts}
    for flag in re.findall(r"(?:Fl|,) (-[a-z][a-z-]+)", source(HUB)):
        assert f"-{flag}" in real, flag


def test_the_numbers_in_the_hub_page_are_the_real_ones() -> None:
    real, header = HubLimits(), hub_http.MAX_HEADER // limits.KIB
    for sentence in (
        f"every {real.heartbeat:g} seconds (--hub-heartbeat)",
        f"holds {real.ttl:g} seconds (--hub-ttl)",
        f"longer than {real.max_ttl:g} (--hub-max-ttl)",
        f"at most {real.max_actors:,} actors (--hub-max-actors)",
        f"within {federation.PATIENCE:g} seconds",
        f"while {asking.MAX_WAITING:,} wait",
        f"answer comes within {outgoing.PATIENCE:g} seconds",
        f"{outgoing.MAX_EACH // limits.MIB} MiB of messages to one daemon are under way, or",
        f"or {outgoing.MAX_UNCONFIRMED // limits.MIB} MiB to all",
        f"An address has at most {actors.MAX_ADDRESS} characters",
        f"{real.page} actors (--hub-page)",
        f"patterns over {search.MAX_PATTERN} characters",
        f"at most {real.topic_length} characters (--hub-topic-length)",
        f"for {real.topic_idle:,g} seconds (--hub-topic-idle)",
        f"Up to {real.max_topics:,} topics (--hub-max-topics)",
        f"Over {real.burst} messages at once (--hub-burst) and {real.rate:g} a minute",
        f"Over {real.max_message // limits.MIB} MiB (--hub-max-message)",
        f"Over {limits.Limits().request_rate:g} requests a second (--request-rate)",
        f"at most {MAX_LEVELS} levels and {MAX_LEVELS} stars",
        f"more than {strict.MAX_DEPTH} levels of arrays and objects",
        f"a header of at most {header} KiB (431)",
        f"kept for {protocol.HTTP_IDLE:g} seconds",
        f"address, message type, capability, subscriber name {actors.MAX_ADDRESS} characters",
        f"of one actor {catalogue.MAX_DETAILS // limits.KIB} KiB; each capability counts as",
        f"as its length plus {catalogue.PER_CAPABILITY} bytes",
        f"of all actors {catalogue.ALL_DETAILS // limits.MIB} MiB",
        f"pattern {search.MAX_PATTERN:,} characters",
        f"take over {catalogue.MATCH_TIME * 1000:g} milliseconds of processor time to match",
        f"token {tokens.MAX_TOKEN:,} characters",
        f"topics in one Synap command {commands.MAX_TOPICS_AT_ONCE:,}",
        f"topics of one Synap subscriber {subscribers.MAX_TOPICS:,}, or",
        f"or {subscribers.MAX_DETACHED_TOPICS:,} if it has no connection",
        f"answer that lists something {limits.ANSWER // limits.KIB} KiB",
        f"take {topic_table.NAME} bytes each on average at most",
        f"add up to more than {strict.MAX_WEIGHT:,}",
        f"wildcard {MAX_LEVELS} levels",
        f"JSON {strict.MAX_DEPTH} levels",
        f"HTTP header {header} KiB and {hub_http.MAX_LINES} lines",
        f"the same lifetime as the old one, {tokens.LONGEST:,} seconds at most",
        f"for {real.detached_idle:,g} seconds (--hub-detached-idle)",
    ):
        assert sentence in rendered(HUB), sentence
    assert subscribers.MAX_ID == actors.MAX_ADDRESS
