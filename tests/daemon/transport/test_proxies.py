"""Clients behind proxies: whose address the daemon takes, and from whom it does."""

from __future__ import annotations

import http.client
import socket
from base64 import b64encode
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from pubsubd.access.users import hash_password
from tests.certificates import Certificates
from tests.daemons import DEADLINE, Daemon, Line, error_codes, frame, wait_until
from tests.hubs import UPGRADE, Lines, Socket

V1 = b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 9014\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24" + bytes.fromhex(
    "20010db8000000000000000000000007" + "0" * 31 + "1" + "1267" + "2336"
)
TRUST = "--trusted-proxies=127.0.0.1"

Start = Callable[..., Daemon]
Dial = Callable[..., Line]


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that trusts proxies on 127.0.0.1, but none on 127.0.0.2."""
    daemon = Daemon(tmp_path_factory.mktemp("proxied"), TRUST, "--hub-ping=0.01")
    yield daemon
    daemon.stop()


numbers = count()


def seen(daemon: Daemon, line: Line) -> str:
    """Return what the daemon calls a connection."""
    name = f"room/{next(numbers)}/"
    line.say(b"sub %b\n" % name.encode())
    assert line.ping() == b""
    return daemon.label_of(name)


@pytest.mark.parametrize(
    ("header", "label"), [(V1, "203.0.113.7:4711"), (V2, "[2001:db8::7]:4711")], ids=["v1", "v2"]
)
@pytest.mark.parametrize("size", [1, 1_000])
def test_a_header_of_the_proxy_protocol_tells_the_address(
    proxied: Daemon, dial: Dial, header: bytes, label: str, size: int
) -> None:
    line = dial(proxied)
    said = header + b"sub other\n"
    line.say_in_pieces(said, iter(lambda: size, None))
    assert seen(proxied, line) == label


@pytest.mark.parametrize("said", [b"", b"PUB a 1 x\n", b"\r\n", b"\r\n\r\nsub other\n", b"P"])
def test_without_a_header_a_connection_has_its_own(
    proxied: Daemon, dial: Dial, said: bytes
) -> None:
    line = dial(proxied)
    line.say(said)
    if said == b"P":
        line.say(b"UB a 1 x\n")
    assert seen(proxied, line) == line.label


def test_nobody_else_is_believed(proxied: Daemon, dial: Dial) -> None:
    line = dial(proxied, source="127.0.0.2")
    line.say(V1)
    assert error_codes(frame(*line.hear_frame())) == ["unknown-command"]
    assert seen(proxied, line) == line.label
    for headers in (
        b"X-Forwarded-For: 203.0.113.7\r\n",
        b"X-Forwarded-For: junk\r\n",
        b"Forwarded: for=203.0.113.7\r\n",
    ):
        with socket.create_connection(proxied.hub, DEADLINE, ("127.0.0.2", 0)) as sock:
            sock.sendall(UPGRADE.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n"))
            assert sock.recv(100).startswith(b"HTTP/1.1 101 ")


@pytest.mark.parametrize(
    "said", [b"PROXY TCP4 x\r\n", V2[:13] + b"\xff" + V2[14:], b"PROXY " + b"x" * 200, V1[:-3]]
)
def test_a_header_that_cannot_be_read_ends_the_connection(
    proxied: Daemon, dial: Dial, said: bytes
) -> None:
    line = dial(proxied)
    line.say(said)
    if said == V1[:-3]:
        line.shut()
    assert error_codes(line.hear_end()) == ["bad-proxy-header"]
    assert proxied.wait_log(f'peer={line.label} listener="line" reason=bad-proxy-header')


def test_a_header_that_does_not_come_is_not_waited_for(start: Start, dial: Dial) -> None:
    daemon = start(TRUST, "--handshake-timeout=0.1")
    silent, typist = dial(daemon), dial(daemon)
    with daemon.standing_still():  # or the beginning could come too late for one
        slow = dial(daemon)
        slow.say(V1[:20])
    typist.say(b"\r\n")
    assert error_codes(slow.hear_end()) == ["bad-proxy-header"]
    for line in (silent, typist):
        assert line.ping() == b""
    waiting = dial(daemon)
    waiting.say(b"PROXY")
    daemon.signal()
    for line in (silent, typist):
        assert error_codes(line.hear_end()) == ["shutting-down"]
    assert error_codes(waiting.hear_end())[0] in ("shutting-down", "bad-proxy-header")
    assert daemon.wait() == 0


def test_the_header_comes_before_tls(start: Start, certificates: Certificates) -> None:
    daemon = start(
        TRUST,
        f"--tls-certificate={certificates.server_certificate}",
        f"--tls-key={certificates.server_key}",
    )
    line = Line(daemon.address)
    line.say(V1)
    context = certificates.client_context()
    line.sock = context.wrap_socket(line.sock, server_hostname="127.0.0.1")
    line.say(b"pub x 1 ab\n")
    assert error_codes(line.hear_end()) == ["wrong-length"]
    line.close()
    assert daemon.wait_log('peer=203.0.113.7:4711 listener="line" reason=wrong-length')


def login(connection: http.client.HTTPConnection, password: str, **headers: str) -> int:
    """Ask for the topics with a password, and return the status."""
    basic = b64encode(f"ann:{password}".encode()).decode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(
        "GET", "/pubsub/topics", headers={"Authorization": f"Basic {basic}", **named}
    )
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_failed_logins_are_counted_for_each_client_behind_a_proxy(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pubsubd.access.users.LOG2_N", 4)  # in the hash, so for the daemon as well
    users = tmp_path / "users"
    users.write_text(f"ann:{hash_password('right')}\n")
    users.chmod(0o600)
    daemon = start(TRUST, f"--users-file={users}")
    connection = http.client.HTTPConnection(*daemon.hub, timeout=DEADLINE)
    wrong, tries = {"X_Forwarded_For": "203.0.113.7"}, 0

    def throttled() -> bool:
        """Whether the right password is refused too; a failure is forgotten every six seconds."""
        nonlocal tries
        while login(connection, "wrong", **wrong) == 401:
            tries += 1
        return login(connection, "right", Forwarded='for="203.0.113.7:1"') == 429

    wait_until(throttled, "the client's address is throttled")
    assert tries >= 10
    assert login(connection, "right", X_Forwarded_For="203.0.113.8") == 200
    assert login(connection, "right") == 200
    assert login(connection, "right", X_Forwarded_For="203.0.113.8", Forwarded="for=1.1.1.1") == 400
    assert login(connection, "right", X_Forwarded_For="junk") == 400
    connection.close()
    assert daemon.wait_log('event=login address="203.0.113.7" reason=login-throttled')


def test_a_proxy_behind_a_proxy_speaks_for_its_clients(proxied: Daemon) -> None:
    first = b"PROXY TCP4 127.0.0.1 127.0.0.1 4711 9015\r\n"
    web = Lines(proxied)
    header = b"\r\nX-Forwarded-For: 203.0.113.9:5\r\n\r\n"
    web.say_raw(first + UPGRADE.replace(b"\r\n\r\n", header) + b"junk that is no frame")
    assert web.hear_raw(13) == b"HTTP/1.1 101 "
    web.hear_rest()
    web.close()
    assert proxied.wait_log('peer=203.0.113.9:5 listener="hub" reason=bad-websocket')


# WebSockets


def test_an_idle_websocket_is_sent_pings(proxied: Daemon) -> None:
    web = Lines(proxied)
    web.say_raw(UPGRADE)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += web.hear_raw(1)
    assert web.hear_raw(4) == b"\x89\0" * 2
    web.close()


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (["synap"], "synap"),
        (["chat", "signal-hub", "pubsubd"], "signal-hub"),
        (["chat"], None),
        (["SYNAP"], None),
    ],
)
def test_the_first_subprotocol_that_is_known_is_chosen(
    proxied: Daemon, asked: list[str], chosen: str | None
) -> None:
    web = Socket(proxied, subprotocols=asked)
    assert web.connection.subprotocol == chosen
    web.close()
