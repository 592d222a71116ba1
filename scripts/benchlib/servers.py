"""Starting the measured servers on loopback, and ending them whatever happens.

Each runs in the foreground as a child, on a free port, with a configuration that
is quiet and bounds nothing the generator does not bound by itself (its window).
The ``guarded`` variant keeps each server's own default bounds on slow consumers;
the case with a stalled subscriber needs them. The ``tls`` variant speaks TLS, the
``hub`` variant listens for WebSockets as well, and ``no-hub`` is pubsubd without a hub
port. Those of the ``mesh`` variant are linked with one another: pubsubd in a mesh, nats in
a cluster. The ``share`` variant is one of the relays in ``floors``. Of pubsubd, ``workers`` has
two of them, and several variants can be had at once: ``tls+workers``. Whether the compiled
scanner is used, its fleet says.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import floors
from .certificate import certificate
from .hubwires import MINIMAL
from .links import BenchError, Link, connect
from .protocols import WIRES, Wire

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 15.0
END_SECONDS = 5.0
PROGRAMS = {"nats": "nats-server", "redis": "redis-server", "mosquitto": "mosquitto"}
INSTALL = "apt-get install " + " ".join(PROGRAMS.values())
WEBSOCKETS = "websockets>=13"
SCANNER = "pubsubd+scanner"  # pubsubd with its compiled scanner
_MINIMAL = Path(__file__).with_name("minimal.py")
# Nothing that the generator's window does not bound, and nobody leaves for being silent.
_HUB_FLAGS = (
    "--hub-rate=0",
    "--hub-max-pending=2GiB",
    "--hub-heartbeat=3600",
    "--hub-ttl=3600",
    "--hub-max-actors=100000",
)

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def _die_with_parent() -> None:
    """In the child: end when the benchmark is gone, even if it was killed outright."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def find_program(name: str) -> str | None:
    """The path of the peer server `name`, or None; Debian keeps two of them in /usr/sbin."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin" + os.pathsep + "/usr/local/sbin"
    return shutil.which(PROGRAMS[name], path=path)


def why_missing(name: str, python: str) -> str | None:
    """How to get the server `name`, if it is not there; None if it is."""
    if name in floors.FLOORS:
        return floors.why_missing(name)
    if name == SCANNER:
        found = "scanner" in version(python, scanner=True)
        return None if found else f"{python} -m pip install ./scanner"
    if name == "websockets":
        command = [python, "-c", "import websockets.asyncio.server"]
        try:
            found = subprocess.run(command, check=False, timeout=START_SECONDS, capture_output=True)
        except (OSError, subprocess.TimeoutExpired):
            return f"{python} does not run"
        return None if found.returncode == 0 else f"{python} -m pip install '{WEBSOCKETS}'"
    return None if name == "pubsubd" or find_program(name) else INSTALL


def default_python() -> str:
    """The checkout's own interpreter if it has one, otherwise the one running this."""
    own = ROOT / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def _environment(tree: Path, scanner: bool) -> dict[str, str]:
    """That of a pubsubd of `tree`, with or without the compiled scanner."""
    return {
        **os.environ,
        "PYTHONPATH": str(tree.resolve()),
        "PUBSUBD_SCANNER": "" if scanner else "python",
        "PUBSUBD_HUB_PING": "0",  # which an older tree ignores, unlike a flag
    }


def version(python: str, scanner: bool = False) -> str:
    """What this checkout's pubsubd calls itself, and that it has its scanner, if it may."""
    command = [python, "-m", "pubsubd", "--version"]
    environment = _environment(ROOT, scanner)
    told = "pubsubd does not tell its version"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=60
        )
        told = done.stdout.strip() or told
    return told


def _wire(name: str, variant: str) -> Wire:
    if name in floors.FLOORS:
        return floors.SHARED if variant == "share" else floors.RELAYED
    return MINIMAL if name == "websockets" else WIRES[name]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Door:
    """Another port of a server, or another protocol on it."""

    name: str
    wire: Wire
    port: int
    tls: bool = False


class Server:
    """One running server.

    Attributes: `name`; `wire`, its protocol; `port` on 127.0.0.1; `tls`, whether TLS is
    spoken there; `hub_port`, where it listens for WebSockets, if it does; `route_port`, where
    nats listens for its like; `pid`; `companions`, further servers that are measured and
    ended with this one. With `peer`, the server makes a link to that one. `tree` is the
    checkout whose pubsubd it is, `scanner` tells whether that may use the compiled scanner.
    """

    def __init__(
        self,
        name: str,
        python: str,
        variant: str = "",
        peer: Server | None = None,
        tree: Path = ROOT,
        scanner: bool = False,
    ) -> None:
        """Start it and wait until it answers; raises BenchError with its log if it does not."""
        self.name = name
        self.wire: Wire = _wire(name, variant)
        self.port = 0
        self.hub_port = 0
        self.monitor_port = 0
        self.route_port = 0
        self.companions: list[Server] = []
        # Kept open, where connections go to the worker with the fewest: were it still counted
        # there for a moment or not, by chance, those of a case would be shared in two ways.
        self._kept: Link | None = None
        self._variant = variant
        self._traits = frozenset(variant.split("+"))
        wanted = (trait.removeprefix("workers-") for trait in self._traits if "workers-" in trait)
        self._workers_wanted = int(next(wanted, 0))
        self.tls = "tls" in self._traits
        self._peer = peer
        self._place: int = peer._place + 1 if peer else 1
        self._directory = Path(tempfile.mkdtemp(prefix=f"bench-{name}-"))
        self._log = self._directory / "log"
        environment = dict(os.environ)
        if name == "pubsubd":
            command = self._pubsubd(python)
            environment = _environment(tree, scanner)
        elif name == "websockets":
            self.port = self.hub_port = _free_port()
            command = [python, str(_MINIMAL), str(self.port)]
        elif name in floors.FLOORS:
            self.port = _free_port()
            command = floors.command(name, python, self.port, variant, peer.port if peer else 0)
        else:
            self.port = _free_port()
            program = find_program(name)
            if program is None:
                raise BenchError(f"{PROGRAMS[name]} is not installed")
            if variant == "hub":
                self.hub_port = _free_port()
            command = [program, *getattr(self, f"_{name}")(variant == "guarded")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self._directory,
                start_new_session=True,  # Ctrl-C is for the benchmark, which then ends it
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (there are no threads)
            )
        self.pid = self._process.pid
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def _write(self, text: str) -> str:
        path = self._directory / "conf"
        path.write_text(text)
        return str(path)

    def _pubsubd(self, python: str) -> list[str]:
        ports = str(self._directory / "ports.json")
        command = [python, "-m", "pubsubd", "serve", "--port=0", "--ports-file", ports]
        command.append("--no-hub" if "no-hub" in self._traits else "--hub-port=0")
        if self._workers_wanted:
            command.append(f"--workers={self._workers_wanted}")
        if self.tls:
            pair = certificate()
            command += ["--tls-certificate", pair.certificate, "--tls-key", pair.key]
        if self._variant == "mesh":
            command += ["--mesh=bench", f"--node=bench-{self._place}"]
            if self._peer:
                command.append(f"--peer=127.0.0.1:{self._peer.port}")
        return [*command, *_HUB_FLAGS] if self._traits & {"hub", "mesh"} else command

    def _nats(self, guarded: bool) -> list[str]:
        self.monitor_port = _free_port()
        bounds = "" if guarded else 'max_pending: 2GB\nwrite_deadline: "60s"\n'
        if self.tls:
            pair = certificate()
            bounds += f'tls {{ cert_file: "{pair.certificate}", key_file: "{pair.key}" }}\n'
        if self.hub_port:
            bounds += f'websocket {{ host: "127.0.0.1", port: {self.hub_port}, no_tls: true }}\n'
        if self._variant == "mesh":
            self.route_port = _free_port()
            routes = f'"nats://127.0.0.1:{self._peer.route_port}"' if self._peer else ""
            bounds += (
                f'cluster {{ name: "bench", host: "127.0.0.1", port: {self.route_port}, '
                f"no_advertise: true, routes: [{routes}] }}\n"
            )
        return [
            "-c",
            self._write(
                f'host: "127.0.0.1"\nport: {self.port}\nhttp: "127.0.0.1:{self.monitor_port}"\n'
                'max_payload: 8MB\nping_interval: "60m"\ndebug: false\ntrace: false\n'
                "max_control_line: 4096\n" + bounds
            ),
        ]

    def _redis(self, guarded: bool) -> list[str]:
        bounds = "" if guarded else "client-output-buffer-limit pubsub 0 0 0\n"
        port = f"port {self.port}\n"
        if self.tls:
            pair = certificate()
            port = f"port 0\ntls-port {self.port}\ntls-auth-clients no\n"
            port += f"tls-cert-file {pair.certificate}\ntls-key-file {pair.key}\n"
        return [
            self._write(
                f'bind 127.0.0.1\n{port}save ""\nappendonly no\nloglevel warning\n'
                f"daemonize no\ntimeout 0\ndir {self._directory}\n" + bounds
            )
        ]

    def _mosquitto(self, guarded: bool) -> list[str]:
        bounds = "" if guarded else "max_queued_messages 0\n"
        if self.tls:
            pair = certificate()
            bounds += f"certfile {pair.certificate}\nkeyfile {pair.key}\n"
        if self.hub_port:
            bounds += f"listener {self.hub_port} 127.0.0.1\nprotocol websockets\n"
        user = "user root\n" if os.geteuid() == 0 else ""  # or it cannot read its own files
        return [
            "-c",
            self._write(
                f"listener {self.port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n"
                "log_type none\npersistence false\nsys_interval 0\n" + user + bounds
            ),
        ]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        problem = "no answer"
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                problem = f"ended with status {self._process.returncode}"
                break
            try:
                if self.name == "pubsubd":
                    ports = json.loads((self._directory / "ports.json").read_text())
                    self.port = ports["line"]["port"]
                    if self._traits & {"hub", "mesh"}:
                        self.hub_port = ports["hub"]["port"]
                link = connect(self)
                if self._workers_wanted:
                    self._kept = link
                else:
                    link.close()
                if self.hub_port:
                    socket.create_connection(("127.0.0.1", self.hub_port), 5).close()
                return
            except (OSError, BenchError, ValueError, KeyError) as error:
                problem = str(error)
            time.sleep(0.02)
        raise BenchError(f"{self.name} did not start: {problem}\n{self.log_tail()}")

    def door(self, wire: Wire) -> Door:
        """Its WebSocket port, where `wire` is to be spoken."""
        return Door(self.name, wire, self.hub_port)

    @property
    def pids(self) -> tuple[int, ...]:
        """Its process id and those of its workers and companions."""
        return self.pid, *self._workers(), *(server.pid for server in self.companions)

    def _workers(self) -> list[int]:
        if not self._workers_wanted:
            return []
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in found.split()]

    def log_tail(self) -> str:
        """The last lines that it and its companions wrote, for error messages."""
        lines = []
        for server in (self, *self.companions):
            with contextlib.suppress(OSError):
                lines += server._log.read_text(errors="replace").splitlines()[-12:]
        return "\n".join(lines)

    def rss_bytes(self) -> int:
        """Its resident memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"{self.name} is gone")

    def subscriptions(self, control: Link) -> int | None:
        """How many subscriptions it holds, or None where it does not tell at once.

        `control` is a link to it without subscriptions.
        """
        if self.name == "pubsubd":
            return int(self.request(control, "stats")["subscriptions"])
        if self.name == "redis":
            control.send(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n")
            length = int(control.read_until(b"\r\n")[1:])
            for line in control.read(length + 2).splitlines():
                if line.startswith(b"pubsub_channels:"):
                    return int(line.partition(b":")[2])
            return None
        if self.name == "nats":
            return int(self.varz()["subscriptions"])
        return None

    @staticmethod
    def request(control: Link, what: str) -> dict[str, Any]:
        """What pubsubd answers to ``//pubsubd/<what>``."""
        control.send(b"pub //pubsubd/%b 0 \n" % what.encode())
        head = control.read_until(b" {")
        answer: dict[str, Any] = json.loads(b"{" + control.read(int(head.split(b" ")[2])))
        return answer

    def varz(self) -> dict[str, Any]:
        """What nats tells of itself."""
        url = f"http://127.0.0.1:{self.monitor_port}/varz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            told: dict[str, Any] = json.load(answer)
        return told

    def stop(self) -> None:
        """End the process and its companions, by their ids, and remove its directory.

        Never raises.
        """
        for server in self.companions:
            server.stop()
        if self._kept is not None:
            self._kept.close()
        process = self._process
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


class Fleet:
    """All servers of a run of the benchmark, started when first asked for.

    A context manager: leaving it ends every one of them.
    """

    def __init__(self, python: str, tree: Path = ROOT, scanner: bool = False) -> None:
        self._python = python
        self._tree = tree
        self._scanner = scanner
        self._servers: dict[tuple[str, str], Server] = {}

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for key in list(self._servers):
            self._servers.pop(key).stop()

    def get(self, name: str, variant: str = "") -> Server:
        """The running server `name`; a `variant` is a further instance of it."""
        key = (name, variant)
        if key not in self._servers:
            self._servers[key] = Server(
                name, self._python, variant, None, self._tree, self._scanner
            )
        return self._servers[key]

    def chain(self, name: str, count: int) -> list[Server]:
        """That many of the variant ``mesh``, each linked to the one before it.

        The others are companions of the first one.
        """
        first = self.get(name, "mesh")
        servers = [first, *first.companions]
        while len(servers) < count:
            linked = Server(name, self._python, "mesh", servers[-1], self._tree, self._scanner)
            servers.append(linked)
            first.companions.append(servers[-1])
        return servers[:count]

    def drop(self, server: Server) -> None:
        """End one server; the next `get` starts a new one."""
        for key, running in list(self._servers.items()):
            if running is server:
                del self._servers[key]
                server.stop()
