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
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.certificates import Certificates
from tests.daemons import (
    DEADLINE,
    ROOT,
    Daemon,
    Line,
    environment,
    frame,
    program,
    tool,
    wait_until,
)
from tests.hubs import UPGRADE

PAGE = (ROOT / "man" / "pubsubd-proxy.7").read_text(encoding="utf-8")
FILES = dict(
    re.findall(r'^\.\\" file: (\S+)\n\.Bd [^\n]*\n(.*?)^\.Ed$', PAGE, re.MULTILINE | re.DOTALL)
)
CLIENT = "127.0.0.2"
"""From where the clients come; proxies are on 127.0.0.1."""

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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def replaced(text: str, **changes: str) -> str:
    """Return ``text`` with each change made once."""
    for before, after in changes.items():
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return text


class Proxy:
    """A proxy that runs: its ports, and clients of it.

    Args:
        command: runs it in the foreground.
        hub, line: its ports.
        context: trusts its certificate.
    """

    def __init__(
        self, stack: ExitStack, command: list[str], context: ssl.SSLContext, hub: int, line: int = 0
    ) -> None:
        self.hub, self.line, self._context, self._stack = hub, line, context, stack
        process = stack.enter_context(program(*command))

        def up() -> bool:
            assert process.poll() is None, "the proxy has ended"
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", hub)) == 0

        wait_until(up, "the proxy accepts connections")

    def dial(self, port: int) -> ssl.SSLSocket:
        sock = socket.create_connection(("127.0.0.1", port), DEADLINE, (CLIENT, 0))
        self._stack.callback(sock.close)
        return self._context.wrap_socket(sock, server_hostname="hub.example")

    def get(self, path: str, host: str = "hub.example", **headers: str) -> int:
        web = http.client.HTTPConnection("hub.example")
        web.sock = self.dial(self.hub)
        web.request("GET", path, headers={**headers, "Host": host})
        status = web.getresponse().status
        web.close()
        return status

    def open(self, **headers: str) -> ClientConnection:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sock = socket.create_connection(("127.0.0.1", self.hub), DEADLINE, (CLIENT, 0))
        self._stack.callback(sock.close)
        return connect(
            "wss://hub.example/ws",
            sock=sock,
            ssl=self._context,
            origin=Origin("https://hub.example"),
            additional_headers=named,
            proxy=None,
        )


@pytest.fixture
def context(certificates: Certificates) -> ssl.SSLContext:
    return certificates.client_context()


@pytest.fixture
def nginx(
    served: Daemon, certificates: Certificates, context: ssl.SSLContext, tmp_path: Path
) -> Iterator[Proxy]:
    program_ = tool("nginx")
    pair, port = certificates.server("hub.example"), free_port()
    server = replaced(
        FILES["nginx.conf"],
        **{
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "/etc/ssl/hub.example.pem": str(pair.certificate),
            "/etc/ssl/hub.example.key": str(pair.key),
            "127.0.0.1:9015": f"127.0.0.1:{served.hub[1]}",
        },
    )
    file = tmp_path / "nginx.conf"
    file.write_text(NGINX.format(directory=tmp_path, server=server))
    with ExitStack() as stack:
        command = [program_, "-p", str(tmp_path), "-e", "stderr", "-c", str(file)]
        yield Proxy(stack, command, context, port)


@pytest.fixture
def haproxy(
    served: Daemon, certificates: Certificates, context: ssl.SSLContext, tmp_path: Path
) -> Iterator[Proxy]:
    program_ = tool("haproxy")
    pair, line, hub = certificates.server("hub.example"), free_port(), free_port()
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pair.certificate).read_bytes() + Path(pair.key).read_bytes())
    text = FILES["haproxy.cfg"].replace("/etc/haproxy/hub.example.pem", str(both))
    file = tmp_path / "haproxy.cfg"
    file.write_text(
        replaced(
            text,
            **{
                "bind :6014": f"bind 127.0.0.1:{line}",
                "bind :443": f"bind 127.0.0.1:{hub}",
                "127.0.0.1:9014": f"127.0.0.1:{served.address[1]}",
                "127.0.0.1:9015": f"127.0.0.1:{served.hub[1]}",
            },
        )
    )
    with ExitStack() as stack:
        yield Proxy(stack, [program_, "-db", "-f", str(file)], context, hub, line)


def check_hub(daemon: Daemon, proxy: Proxy, topic: str) -> None:
    """Look at what a browser does, and at what somebody does who forges addresses."""
    assert proxy.get("/readyz") == 200
    assert proxy.get("/readyz", "other.example") == 421
    # Not by websockets' client: refused over TLS, it can wait for ever (it reads a socket that
    # is readable, but has only a session ticket, until the proxy ends the connection).
    upgrade = dict(re.findall(r"(\S+): (.*)\r\n", UPGRADE.decode()))
    assert proxy.get("/ws", Origin="https://hub.example", **upgrade) == 101
    assert proxy.get("/ws", Origin="https://other.example", **upgrade) == 403
    for number, forged in enumerate(
        ({}, {"X_Forwarded_For": "9.9.9.9"}, {"Forwarded": "for=9.9.9.9"})
    ):
        name = f"{topic}/{number}"
        with proxy.open(**forged) as web:
            web.send(json.dumps({"type": "hub:subscribe", "payload": {"topic": name}}))
            assert json.loads(web.recv(DEADLINE))["type"] == "hub:subscribed"
            assert daemon.label_of(name) == f"{CLIENT}:0"
            line = Line(daemon.address)
            line.say(frame(name, b"hello"))
            line.close()
            assert json.loads(web.recv(DEADLINE))["payload"]["data"] == "hello"


def test_nginx_carries_the_hub_port(served: Daemon, nginx: Proxy) -> None:
    check_hub(served, nginx, "nginx")


def test_haproxy_carries_both_ports(served: Daemon, haproxy: Proxy) -> None:
    check_hub(served, haproxy, "haproxy")
    with haproxy.dial(haproxy.line) as sock:
        sock.sendall(b"sub haproxy-line\npub //pubsubd/ping 1 x\n")
        assert sock.recv(100) == b"pub //pubsubd/ping 1 x\n"
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
