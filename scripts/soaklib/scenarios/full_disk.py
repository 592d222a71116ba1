"""A full disk under the log and the edge lists.

The daemon logs to a file and writes edge lists to a directory, both on a disk of one megabyte (or,
without root, under a limit of the size of files). The disk is filled to the last byte. It has to go
on serving as if nothing were the matter, whatever it has to log: reloads, clients that are cut,
clients that are refused. When there is room again it logs and exports again, and no edge list is
cut short.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from soaklib.daemons import Daemon, running
from soaklib.scenario import Scenario, Setting, judge_traffic
from soaklib.traffic import Pub, Sub, traffic
from soaklib.verdict import Verdict
from soaklib.wires import KIB, Line, wait_until
from soaklib.workers import Worker

_FILE_SIZE = 64 * KIB


@contextlib.contextmanager
def _disk(directory: Path) -> Iterator[bool]:
    """Mount a small disk there; whether that was possible."""
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "pubsubd-chaos", str(directory)]
    mounted = False
    with contextlib.suppress(OSError):
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(directory)], check=False)


def _fill(path: Path) -> None:
    """Leave no byte on the disk."""
    with path.open("ab", buffering=0) as file:
        for size in (64 * KIB, KIB, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    disk = setting.directory / "disk"
    with _disk(disk) as mounted:
        (disk / "edges").mkdir()
        config = setting.directory / "pubsubd.toml"
        config.write_text("hub_rate = 0\n")
        limit = None
        if not mounted:
            limit = lambda: resource.setrlimit(  # noqa: E731  (one call)
                resource.RLIMIT_FSIZE, (_FILE_SIZE, _FILE_SIZE)
            )
        verdict.note("what is full", "a disk" if mounted else "files, by a limit of their size")
        daemon = Daemon(
            setting.directory,
            f"--config={config}",
            "--mesh=disk",
            "--node=one",
            f"--export-edges={disk / 'edges'}",
            "--export-interval=0.1",
            log=disk / "log",
            prepare=limit,
        )
        peer = f"--peer={daemon.host}:{daemon.port}"
        other = setting.directory / "other"
        try:
            # With a link there is something to be written in edge lists.
            with running(other, "--mesh=disk", "--node=two", peer, hub=False):
                wait_until(lambda: daemon.request("peers")["links"], "the link is up")
                _run(setting, verdict, daemon, disk, mounted=mounted)
        finally:
            daemon.kill()


def _run(setting: Setting, verdict: Verdict, daemon: Daemon, disk: Path, *, mounted: bool) -> None:
    pubs = [Pub("p00", daemon.line, rate=5_000), Pub("s00", daemon.hub, "ws", rate=50)]
    subs = [Sub("line", daemon.line), Sub("ndjson", daemon.hub, "ndjson", fast=False)]
    edges = disk / "edges"
    with Worker(traffic, pubs, subs) as load:
        load.answer()
        verdict.check("every stream flows", load.ask("prime"), good=True)
        load.ask("go")
        wait_until(lambda: any(map(_size, edges.iterdir())), "edge lists are written")
        if mounted:
            _fill(disk / "filler")
        else:
            _fill_log(daemon)
        size = daemon.log_file.stat().st_size
        time.sleep(0.5)  # what was being written when the disk became full is there by now
        before = {path.name for path in edges.iterdir()}
        reloads = 5 if setting.short else 30
        for _ in range(reloads):
            daemon.signal(signal.SIGHUP)
            for _ in range(20):
                with Line(daemon.line) as line:
                    line.say(b"pub a 1 xx\n")
                    line.hear_end()
            time.sleep(0.1 if setting.short else 1.0)
        grown = daemon.log_file.stat().st_size - size
        verdict.check("bytes logged while it was full", grown, grown < 4 * KIB)
        verdict.check("the daemon is alive", daemon.alive, daemon.alive)
        if mounted:
            (disk / "filler").unlink()
        else:
            os.truncate(daemon.log_file, 0)
        size = daemon.log_file.stat().st_size
        written = {path.name for path in edges.iterdir()}
        if mounted:  # a limit of the size of files is none to such small ones
            verdict.check("edge lists while it was full", len(written - before), written == before)
        daemon.signal(signal.SIGHUP)
        wait_until(lambda: daemon.log_file.stat().st_size > size, "it logs again")
        wait_until(
            lambda: {path.name for path in edges.iterdir()} - written, "edge lists come again"
        )
        verdict.note("afterwards", "it logs and exports again")
        report = load.ask("finish")
    judge_traffic(verdict, report)
    broken = [path.name for path in edges.iterdir() if not _whole(path)]
    verdict.none(f"edge lists cut short, of {len(list(edges.iterdir()))}", len(broken), broken[:3])
    text = daemon.log_file.read_bytes()
    lines = text.decode("utf-8", "replace").splitlines()
    odd = [line for line in lines if "Traceback" in line or "event=fault" in line]
    verdict.none("faults in the log", len(odd), odd[:2])
    status = daemon.stop()
    verdict.check("exit status", status, status == 0)


def _fill_log(daemon: Daemon) -> None:
    """Let its log be as long as a file may be."""
    with daemon.log_file.open("ab") as file:
        file.write(b"time=0 level=info event=filler\n" * (_FILE_SIZE // 31 + 1))


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0


def _whole(path: Path) -> bool:
    if not path.name.endswith(".jsonl"):
        return False
    data = path.read_bytes()
    try:
        for line in data.splitlines():
            json.loads(line)
    except ValueError:
        return False
    return not data or data.endswith(b"\n")


SCENARIO = Scenario("full-disk", __doc__ or "", run)
