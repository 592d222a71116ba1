"""Do the configurations of pubsubd-proxy(7) work? They are run, with other ports and files."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame
from websockets.protocol import Event
from websockets.typing import Origin
from websockets.uri import parse_uri

from tests.certificates import Certificates
from tests.daemons import (
    DEADLINE,
    KIB,
    ROOT,
    Daemon,
    Line,
    environment,
    frame,
    program,
    tool,
    wait_until,
)
from tests.meshes import free_address

PAGE = (ROOT / "man" / "pubsubd-proxy.7").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r'^\.\\" file: (\S+)\n\.Bd [^\n]*\n(.*?)^\.Ed$', PAGE, re.MULTILINE | re.DOTALL)
)
CLIENT = "127.0.0.2"
"""From where the clients come; proxies come from 127.0.0.1."""

NGINX = """\
daemon off;
master_process off;
pid {directory}/pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {server}
}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with the settings that the page gives it."""
    directory = tmp_path_factory.mktemp("served")
    settings = directory / "pubsubd.toml"
    settings.write_text(FILES["pubsubd.toml"])
    daemon = Daemon(directory, f"--config={settings}")
    yield daemon
    daemon.stop()


def replaced(text: str, **changes: str) -> str:
    """Return ``text`` with each change made once."""
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


class WebSocket:
    """A WebSocket over TLS that one thread both reads and writes: OpenSSL allows it no second one.

    A write while another thread reads what follows a handshake can be lost, and then both wait.
    """

    def __init__(self, sock: ssl.SSLSocket, origin: str, headers: dict[str, str]) -> None:
        uri = parse_uri("wss://hub.example/ws")
        self._sock, self._protocol = sock, ClientProtocol(uri, origin=Origin(origin))
        request = self._protocol.connect()
        request.headers.update(headers)
        self._protocol.send_request(request)
        self._events: deque[Event] = deque()
        self._next()
        if self._protocol.handshake_exc is not None:
            raise self._protocol.handshake_exc

    def ask(self, message: object) -> Any:
        """Say one message, and return what comes next."""
        self._protocol.send_text(json.dumps(message).encode())
        return self.hear()

    def hear(self) -> Any:
        """Return the next message."""
        event = self._next()
        assert isinstance(event, Frame), event
        return json.loads(event.data)

    def _next(self) -> Event:
        self._sock.sendall(b"".join(self._protocol.data_to_send()))
        while not self._events:
            data = self._sock.recv(64 * KIB)
            assert data, "the proxy has closed the connection"
            self._protocol.receive_data(data)
            self._events += self._protocol.events_received()
        return self._events.popleft()


class Proxy:
    """A proxy that runs: its ports, and clients of it.

    Args:
        command: runs it in the foreground.
        context: trusts its certificate.
        host, hub, line: its address and ports.
    """

    def __init__(
        self,
        stack: ExitStack,
        command: list[str],
        context: ssl.SSLContext,
        host: str,
        hub: int,
        line: int = 0,
    ) -> None:
        self.hub, self.line = hub, line
        self._host, self._context, self._stack = host, context, stack
        process = stack.enter_context(program(*command))

        def up() -> bool:
            assert process.poll() is None, "the proxy has ended"
            with socket.socket() as sock:
                return sock.connect_ex((host, hub)) == 0

        wait_until(up, "the proxy accepts connections")

    def dial(self, port: int) -> ssl.SSLSocket:
        sock = socket.create_connection((self._host, port), DEADLINE, (CLIENT, 0))
        return self._stack.enter_context(
            self._context.wrap_socket(sock, server_hostname="hub.example")
        )

    def get(self, path: str, host: str = "hub.example") -> int:
        web = http.client.HTTPConnection("hub.example")
        web.sock = self.dial(self.hub)
        web.request("GET", path, headers={"Host": host})
        status = web.getresponse().status
        web.close()
        return status

    def open(self, origin: str = "https://hub.example", **headers: str) -> WebSocket:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return WebSocket(self.dial(self.hub), origin, named)


@pytest.fixture
def context(certificates: Certificates) -> ssl.SSLContext:
    return certificates.client_context()


@pytest.fixture
def nginx(
    served: Daemon, certificates: Certificates, context: ssl.SSLContext, tmp_path: Path
) -> Iterator[Proxy]:
    program_ = tool("nginx")
    pair = certificates.server("hub.example")
    host, ports = free_address()
    port = next(ports)
    server = replaced(
        FILES["nginx.conf"],
        **{
            "listen 443 ssl": f"listen {host}:{port} ssl",
            "/etc/ssl/hub.example.pem": str(pair.certificate),
            "/etc/ssl/hub.example.key": str(pair.key),
            "127.0.0.1:9015": f"127.0.0.1:{served.hub[1]}",
        },
    )
    file = tmp_path / "nginx.conf"
    file.write_text(NGINX.format(directory=tmp_path, server=server))
    with ExitStack() as stack:
        command = [program_, "-p", str(tmp_path), "-e", "stderr", "-c", str(file)]
        yield Proxy(stack, command, context, host, port)


@pytest.fixture
def haproxy(
    served: Daemon, certificates: Certificates, context: ssl.SSLContext, tmp_path: Path
) -> Iterator[Proxy]:
    program_ = tool("haproxy")
    pair = certificates.server("hub.example")
    host, ports = free_address()
    line, hub = next(ports), next(ports)
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pair.certificate).read_bytes() + Path(pair.key).read_bytes())
    text = FILES["haproxy.cfg"].replace("/etc/haproxy/hub.example.pem", str(both))
    file = tmp_path / "haproxy.cfg"
    file.write_text(
        replaced(
            text,
            **{
                "bind :6014": f"bind {host}:{line}",
                "bind :443": f"bind {host}:{hub}",
                "127.0.0.1:9014": f"127.0.0.1:{served.address[1]}",
                "127.0.0.1:9015": f"127.0.0.1:{served.hub[1]}",
            },
        )
    )
    with ExitStack() as stack:
        yield Proxy(stack, [program_, "-db", "-f", str(file)], context, host, hub, line)


def check_hub(daemon: Daemon, proxy: Proxy, topic: str) -> None:
    """Look at what a browser does, and at what somebody does who forges addresses."""
    assert proxy.get("/readyz") == 200
    assert proxy.get("/readyz", "other.example") == 421
    with pytest.raises(InvalidStatus, match="403"):
        proxy.open("https://other.example")
    for number, forged in enumerate(
        ({}, {"X_Forwarded_For": "9.9.9.9"}, {"Forwarded": "for=9.9.9.9"})
    ):
        name = f"{topic}/{number}"
        web = proxy.open(**forged)
        subscribed = web.ask({"type": "hub:subscribe", "payload": {"topic": name}})
        assert subscribed["type"] == "hub:subscribed"
        assert daemon.label_of(name) == f"{CLIENT}:0"
        line = Line(daemon.address)
        line.say(frame(name, b"hello"))
        line.close()
        assert web.hear()["payload"]["data"] == "hello"


def test_nginx_carries_the_hub_port(served: Daemon, nginx: Proxy) -> None:
    check_hub(served, nginx, "nginx")


def test_haproxy_carries_both_ports(served: Daemon, haproxy: Proxy) -> None:
    check_hub(served, haproxy, "haproxy")
    with haproxy.dial(haproxy.line) as sock:
        sock.sendall(b"sub haproxy-line\npub //pubsubd/ping 1 x\n")
        assert sock.makefile("rb").readline() == b"pub //pubsubd/ping 1 x\n"
        host, port = sock.getsockname()
        assert served.label_of("haproxy-line") == f"{host}:{port}"


def test_the_settings_for_kubernetes_are_good(tmp_path: Path) -> None:
    block = FILES["kubernetes.yaml"].split("pubsubd.toml: |\n")[1].split("\n---")[0]
    file = tmp_path / "pubsubd.toml"
    file.write_text(textwrap.dedent(block))
    command: list[str] = [sys.executable, "-m", "pubsubd", "serve", "--check", f"--config={file}"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE, check=False, env=environment()
    )
    assert (done.returncode, done.stderr) == (0, "")
