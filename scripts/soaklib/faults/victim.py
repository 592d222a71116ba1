"""The daemon under test, its mesh, and what can be seen of them from outside."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import random
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pubsubd.access.users import hash_password
from soaklib.daemons import ROOT, Daemon, family, free_ports, listener
from soaklib.faults.doors import Doors
from soaklib.faults.reloads import Reloads
from soaklib.wires import PATIENCE, Address, Line, compact, wait_until
from tests import certificates

_PASSWORD = "correct horse"
_HEARTBEAT = 1.5  # seconds; on a busy machine a daemon may not run for one
# What may wait for one consumer is what comes in some seconds: on a busy machine, one that has just
# subscribed is given nothing for more than one of them, until all workers know of it.
_PENDING = 1_000_000
_SETTINGS = """\
users_file = "{users}"
auth = "none"
hub_auth = "{key}"
hub_rate = 1_000_000
hub_burst = 1_000_000
hub_heartbeat = 3600
max_pending = {pending}
hub_max_pending = {hub_pending}
hub_detached_idle = 10
stall_timeout = 0.1
mesh = "chaos"
node = "n{number}"
mesh_secret_file = "{secret}"
mesh_heartbeat = {heartbeat}
export_edges = "{edges}"
export_interval = 1
workers = {workers}
peer = {peers}
[[acl]]
who = ["*"]
publish = ["//", "//pubsubd/", "visit", "slow:", "a", "crowd"]
receive = ["#", "//pubsubd/"]
[[acl]]
who = ["{user}"]
publish = ["secret/"]
"""


@dataclass(frozen=True)
class State:
    """What has to come back after each fault.

    Attributes:
        connections, subscriptions: as the daemon tells.
        actors: that are registered.
        descriptors: files that it has open.
        links: other daemons that it is linked to.
    """

    connections: int
    subscriptions: int
    actors: int
    descriptors: int
    links: tuple[str, ...]


class Injected(Daemon):
    """A daemon with an injector in each of its processes.

    Attributes:
        workers: how many it has.
        processes: it, and if it has several workers, these.
    """

    def __init__(self, directory: Path, workers: int = 1) -> None:
        super().__init__(directory, start=False, addressed=False)
        self.workers = workers
        self.processes: list[int] = []
        self._path = directory / "injector"

    @property
    def command(self) -> list[str]:
        """How it is started, up to its arguments."""
        code = (
            f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); "
            "from soaklib.faults.injector import main; main()"
        )
        return [sys.executable, "-c", code, str(self._path), "pubsubd", "serve"]

    def start(self, *, wait: bool = True) -> None:
        """As any other, with a log of its own."""
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            path.unlink()
        if self.log_file.exists():
            self.log_file.replace(self.log_file.with_name(f"log.{self.starts}"))
        super().start(wait=wait)

    def wait_ready(self) -> None:
        """Wait until it accepts connections."""
        super().wait_ready()
        # One that reads settings comes and goes; workers are there before it is ready.
        self.processes = sorted(family(self.pid)) if self.workers > 1 else [self.pid]

    @property
    def whole(self) -> bool:
        """Whether all of its processes live."""
        return self.alive and set(self.processes) <= set(family(self.pid))

    def descriptors(self) -> int:
        """How many file descriptors its processes have open."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.processes)

    def tell(self, *words: object, process: int = 0, patience: float = PATIENCE) -> Any:
        """Say something to an injector and return its answer; OSError if there is none."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(patience)
            control.connect(f"{self._path}.{process or self.pid}")
            with control.makefile("rw", encoding="utf-8") as file:
                file.write(json.dumps(words) + "\n")
                file.flush()
                answer = file.readline()
        if not answer:
            raise ConnectionError("the daemon has ended")
        return json.loads(answer)


class Town:
    """The daemon under test, the two others of its ring, and one that comes and goes.

    The one under test dials the first of the others, and the second dials it; so all tell of each
    other by two ways.

    Attributes:
        victim: the daemon under test.
        others: the rest of the ring.
        guest: the one that comes and goes.
        doors: where the one under test listens.
    """

    def __init__(self, directory: Path, seed: int, workers: int = 1) -> None:
        self._directory = directory
        self.victim = Injected(directory / "d0", workers)
        self.others = [Daemon(directory / f"d{i}", start=False) for i in (1, 2)]
        self.guest = Daemon(directory / "d3", start=False, addressed=False)
        self._made = certificates.make(directory)
        self._key = directory / "key"
        self._key.write_bytes(secrets.token_hex(32).encode())
        self._key.chmod(0o600)
        self._secret = directory / "secret"
        self._secret.write_text(secrets.token_hex(32))
        self._secret.chmod(0o600)
        self._hashes = hash_password(_PASSWORD), hash_password("passing")
        self._edges = directory / "edges"
        self._edges.mkdir()
        self.doors = self._find_doors(seed)
        self.write(False, False, 0)
        self._flag_others()

    def _find_doors(self, seed: int) -> Doors:
        one, ca = self.victim, str(self._made.ca)
        secure, secure_hub, guarded, guarded_hub = free_ports(one.host, 4)
        ann = self._made.client("ann")
        return Doors(
            line=one.line,
            secure=Address((one.host, secure), ca),
            unix=Address(str(self._directory / "d0/socket")),
            known=Address((one.host, secure), ca, str(ann.certificate), str(ann.key)),
            guarded=Address((one.host, guarded)),
            hub=one.hub,
            secure_hub=Address((one.host, secure_hub), ca),
            guarded_hub=Address((one.host, guarded_hub)),
            far_hub=self.others[0].hub,
            user="ann",
            password=_PASSWORD,
            token=_sign(self._key.read_bytes()),
            rng=random.Random(seed),
        )

    def _flag_others(self) -> None:
        first, second = self.others
        for number, one in enumerate(self.others, 1):
            one.flags = [
                "--mesh=chaos",
                f"--node=n{number}",
                f"--mesh-secret-file={self._secret}",
                f"--mesh-heartbeat={_HEARTBEAT}",
                "--hub-rate=0",
            ]
        second.flags.append(f"--peer={self.victim.host}:{self.victim.port}")
        second.flags.append(f"--peer={first.host}:{first.port}")

    def write(self, dials: bool, is_dialled: bool, number: int) -> None:
        """Write the settings of the daemon under test and of its guest, and the users."""
        first, doors = self.others[0], self.doors
        users = self._directory / "users"
        text = f"ann:{self._hashes[0]}\n"
        if dials:
            text += f"passing:{self._hashes[1]}\n"
        _replace(users, text, 0o600)
        peers = [f"{first.host}:{first.port}"]
        if dials:
            peers.append(f"{self.guest.host}:{self.guest.port}")
        pair = self._made
        tls = (
            f'tls_certificate = "{pair.server_certificate}"\n'
            f'tls_key = "{pair.server_key}"\ntls_client_ca = "{pair.ca}"\n'
        )
        text = _SETTINGS.format(
            users=users,
            key=self._key,
            pending=_PENDING + number % 7,
            hub_pending=_PENDING,
            number=0,
            secret=self._secret,
            heartbeat=_HEARTBEAT,
            edges=self._edges,
            peers=json.dumps(peers),
            user="ann",
            workers=self.victim.workers,
        )
        text += listener("line", doors.line) + listener("hub", doors.hub)
        text += listener("unix", doors.unix)
        text += listener("secure", doors.secure, tls)
        text += listener("secure-hub", doors.secure_hub, tls)
        text += listener("guarded", doors.guarded, 'auth = "required"\n')
        text += listener("guarded-hub", doors.guarded_hub, 'auth = "required"\n')
        _replace(self.victim.directory / "pubsubd.toml", text)
        guest = self.guest
        peers = [f"{self.victim.host}:{self.victim.port}"] if is_dialled else []
        text = (
            f'mesh = "chaos"\nnode = "n3"\nmesh_secret_file = "{self._secret}"\n'
            f"mesh_heartbeat = {_HEARTBEAT}\npeer = {json.dumps(peers)}\n"
        )
        _replace(guest.directory / "pubsubd.toml", text + listener("line", guest.line))

    def reloads(self) -> Reloads:
        """What the load needs to let daemons read their settings again."""
        return Reloads(self.write, self.guest.line, "n0", "passing passing")

    def start(self) -> None:
        """Start all that do not run, and wait until they are linked."""
        for one in (self.victim, self.guest):
            one.flags = [f"--config={one.directory / 'pubsubd.toml'}"]
        self.write(False, False, 0)
        new = [one for one in self._all() if one.starts == 0 or not one.alive]
        for one in new:
            one.start(wait=False)
        for one in new:
            one.wait_ready()
        wait_until(lambda: self._links() == ("n1", "n2"), "all are linked", tick=0.05)

    def kill(self) -> None:
        """End all of them."""
        for one in self._all():
            if one.starts:
                one.kill()

    def _all(self) -> list[Daemon]:
        return [*self.others, self.guest, self.victim]

    @property
    def pids(self) -> tuple[int, int]:
        """Those that are told to reload."""
        return self.victim.pid, self.guest.pid

    # What can be seen

    def _links(self) -> tuple[str, ...]:
        try:
            told = self.victim.request("peers")
        except OSError:
            return ()
        if told["flooding"] or len(told["daemons"]) < 3:
            return ()
        return tuple(sorted(link["node"] for link in told["links"]))

    def state(self) -> State:
        """What has to come back; raises OSError if the daemon does not tell."""
        descriptors = self.victim.descriptors()  # none of ours is among them
        with Line(self.doors.line, timeout=5.0) as line:
            told = line.request("stats")
            links = line.request("peers")["links"]
        return State(
            told["connections"],
            told["subscriptions"],
            self._actors(),
            descriptors,
            tuple(sorted(link["node"] for link in links)),
        )

    def _actors(self) -> int:
        with self.doors.hub.connect(5.0) as sock:
            sock.sendall(b'{"type":"hub:metrics"}\n')
            heard = b""
            while not heard.endswith(b"\n"):
                part = sock.recv(4096)
                if not part:
                    raise ConnectionError("closed")
                heard += part
        actors: int = json.loads(heard)["payload"]["actors"]
        return actors

    def counted(self) -> int | None:
        """How many faults the daemon has counted; None if it counts none."""
        told = self.victim.request("stats").get("faults")
        return None if told is None else sum(told.values())

    def exported(self) -> float:
        """The seconds since the last edge list."""
        newest = 0.0
        for path in self._edges.iterdir():
            with contextlib.suppress(FileNotFoundError):  # it has its name only when it is whole
                newest = max(newest, path.stat().st_mtime)
        return time.time() - newest

    def ready(self) -> bool:
        """Whether it says that all is well."""
        heard = b""
        with contextlib.suppress(OSError), self.doors.hub.connect(5.0) as sock:
            sock.sendall(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while part := sock.recv(4096):
                heard += part
        return b" 200 " in heard[:20]

    def failures(self) -> int:
        """How often the tasks without which there is no daemon have failed, in its log."""
        lines = self.victim.log.splitlines()
        return sum("event=task-failed" in line and 'task="accept' in line for line in lines)

    def links_down(self) -> int:
        """How many links of the ring have ended so far, as the others tell."""
        return sum(
            "event=link-down" in line and '"n3"' not in line
            for one in self.others
            for line in one.log.splitlines()
        )


def _replace(path: Path, text: str, mode: int = 0o644) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def _sign(key: bytes) -> str:
    """Return a JSON Web Token."""

    def encode(data: bytes) -> bytes:
        return base64.urlsafe_b64encode(data).rstrip(b"=")

    now = int(time.time())
    claims = {"iss": "signal-hub", "iat": now, "exp": now + 36_000}
    said = encode(compact({"alg": "HS256", "typ": "JWT"})) + b"." + encode(compact(claims))
    return (said + b"." + encode(hmac.new(key, said, hashlib.sha256).digest())).decode()
