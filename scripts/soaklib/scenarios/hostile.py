"""Clients that want to hold up the others: every attack that we could think of.

Each attack is done by a process of its own on a fresh daemon with default settings, while a client
on each port sends itself one message at a time. What is done, is cheap for who does it. Told are
for each port the median, the 99th percentile and the longest of the waits (as of messages that
are due at any moment, without the time in which there was no processor), beside those before the
attack; the memory that the daemon took, beside what the documented limits allow; the slowest
class of its own loop lag. Waits over 20 ms may make up a tenth of a second of each attack, which
is one hundredth of ten seconds; a single one may take 50 ms. To a daemon of several workers the
messages cross from one worker to another, and may wait for both. It has to live, to log no fault,
and to be as before afterwards. The heavy ones are done by 100 connections at once as well. The
short form does four, chosen by the seed.
"""

from __future__ import annotations

import fnmatch
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pubsubd.access.users import hash_password
from soaklib.attacks import ATTACKS
from soaklib.attacks.attack import Attack
from soaklib.attacks.bounds import CONNECTION
from soaklib.attacks.forger import MESH, VICTIM
from soaklib.attacks.stage import Effort, Place, act
from soaklib.daemons import Daemon, free_ports, listener
from soaklib.pings import Waits, pings
from soaklib.scenario import Scenario, Setting
from soaklib.verdict import Verdict
from soaklib.wires import MIB, Address, SoakError, wait_until
from soaklib.workers import Worker
from tests import certificates

MANY = 100
"""Connections that a heavy attack is done by at once."""

_OFTEN, _LONGEST, _LONGEST_OF_MANY = 20.0, 50.0, 250.0  # milliseconds
_LONG_TIME = 0.1  # seconds of an attack in which waits may take longer than that
_ROOM = 64 * MIB  # over what the documented limits allow
_LAG = re.compile(r'pubsubd_loop_lag_seconds_bucket\{.*le="([^"]+)".*\} (\S+)')
_TOO_MUCH = 4 * 1024 * MIB  # bytes that no daemon is given


@dataclass(frozen=True)
class _Times:
    """Seconds.

    Attributes:
        quiet: before an attack.
        attack: of it, once it is prepared.
        patience: for what is under way, and for the daemon to be as before.
    """

    quiet: float
    attack: float
    patience: float


_LONG, _SHORT = _Times(1.0, 10.0, 60.0), _Times(0.1, 0.5, 15.0)
_CARRIED_OUT = 1.5  # seconds of processor for a MiB of what was said, if it is the dearest
_BUSY = 10  # times as long as what it computes that a daemon may take, on a busy machine
_FEW = 4  # attacks of the short form


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    chosen = [
        (attack, count)
        for attack in ATTACKS.values()
        for count in ((1, MANY) if attack.crowd and not setting.alone else (1,))
        if not setting.only
        or any(fnmatch.fnmatch(_name(attack, count), one) for one in setting.only)
    ]
    known = len(chosen)
    if setting.short:
        chosen = setting.rng.sample(chosen, min(_FEW, known))
    worst = ("", 0.0)
    for attack, count in chosen:
        longest = strike(setting, verdict, attack, count)
        if count == 1 and longest > worst[1]:
            worst = _name(attack, count), longest
        if not setting.short:
            print(f"    {verdict.checks[-1].what}: {verdict.checks[-1].seen}", file=sys.stderr)
    failed = sum(check.good is False for check in verdict.checks)
    verdict.check("attacks, of all there are", f"{len(chosen)} of {known}", bool(chosen))
    verdict.note("attacks that did what they should not", failed)
    verdict.note("longest wait, by one attacker", f"{worst[1]:.0f} ms, in {worst[0] or 'none'}")


def _name(attack: Attack, count: int) -> str:
    return attack.name if count == 1 else f"{attack.name} x{count}"


def strike(setting: Setting, verdict: Verdict, attack: Attack, count: int) -> float:
    """Do one attack; return the longest wait, in milliseconds."""
    times = _SHORT if setting.short else _LONG
    if setting.seconds is not None:
        times = replace(times, quiet=min(times.quiet, setting.seconds / 4), attack=setting.seconds)
    name = _name(attack, count)
    directory = setting.directory / name.replace(" ", "-")
    faults: list[str] = []
    parts: list[str] = []
    longest = 0.0
    try:
        with _victim(attack, directory) as (daemon, place):
            try:
                seen = _measure(attack, count, times, daemon, place)
                longest = max(waits.longest for waits in seen.waits.values())
                parts, faults = judge(
                    attack, count, seen, timed=verdict.timed, seconds=times.attack
                )
            except SoakError as error:
                faults.append(f"did not come to its end: {str(error).strip().splitlines()[-1]}")
            if not daemon.alive:
                faults.append(f"the daemon has ended with {daemon.wait(1)}")
            faults += daemon.faults()[:1]
            faults += [line for line in daemon.log.splitlines() if "level=critical" in line][:1]
    except SoakError as error:
        faults.append(f"no daemon: {error}")
    text = "; ".join(parts)
    if faults:
        text += f" WRONG: {', '.join(faults)}"
    verdict.check(name, text, not faults)
    return longest


def _limit_memory() -> None:
    """In the daemon: let it fail before the machine does."""
    resource.setrlimit(resource.RLIMIT_DATA, (_TOO_MUCH, _TOO_MUCH))


@contextmanager
def _victim(attack: Attack, directory: Path) -> Iterator[tuple[Daemon, Place]]:
    """A daemon of the kind that an attack needs."""
    daemon = Daemon(directory, start=False, prepare=_limit_memory)
    secure: Address | None = None
    kinds = attack.daemon.split()
    if "mesh" in kinds:
        daemon.flags += [f"--mesh={MESH}", f"--node={VICTIM}"]
    if "secret" in kinds:
        secret = directory / "secret"
        secret.write_text("nobody knows it\n" * 2)
        secret.chmod(0o600)
        daemon.flags.append(f"--mesh-secret-file={secret}")
    if "workers" in kinds or "many-workers" in kinds:
        daemon.flags += [f"--workers={2 if 'workers' in kinds else 5}"]
    if "users" in kinds:
        users = directory / "users"
        users.write_text(f"ann:{hash_password('correct horse')}\n")
        users.chmod(0o600)
        daemon.flags += [f"--users-file={users}", "--auth=none"]
    if "python" in kinds:
        daemon.env["PUBSUBD_SCANNER"] = "python"
    if "proxied" in kinds:
        daemon.flags += [f"--trusted-proxies={daemon.host}"]
    if "tls" in kinds:
        made = certificates.make(directory)
        port = free_ports(daemon.host, 1)[0]
        secure = Address((daemon.host, port), str(made.ca))
        tls = f'tls_certificate = "{made.server_certificate}"\ntls_key = "{made.server_key}"\n'
        daemon = Daemon(directory, start=False, prepare=_limit_memory, addressed=False)
        secure = Address((daemon.host, port), str(made.ca))
        path = directory / "pubsubd.toml"
        text = listener("line", daemon.line) + listener("hub", daemon.hub)
        path.write_text(text + listener("secure", Address(secure.where), tls))
        daemon.flags = [f"--config={path}"]
    daemon.start()
    try:
        yield daemon, Place(daemon.line, daemon.hub, secure, daemon.pid)
    finally:
        daemon.kill()


@dataclass
class Seen:
    """What was seen of one attack.

    Attributes:
        quiet, waits, after: of the probes, before, meanwhile and afterwards.
        effort: the attacker's.
        before, peak, left: bytes of memory.
        lag: the bound of the slowest class of loop lag that was noted meanwhile, in seconds.
        back: what is not as before, if anything.
    """

    quiet: dict[str, Waits]
    waits: dict[str, Waits]
    after: dict[str, Waits]
    effort: Effort
    before: int
    peak: int
    left: int
    lag: str
    back: str


def _measure(attack: Attack, count: int, times: _Times, daemon: Daemon, place: Place) -> Seen:
    with (
        Worker(act, attack, place, count, times.attack) as client,
        Worker(pings, place.line, place.hub, daemon.pid) as probe,
    ):
        client.answer()
        probe.answer()
        probe.ask("mark")
        time.sleep(times.quiet)
        quiet = probe.ask("report", 1.0)
        there = daemon.request("stats")["connections"]
        lag = _lag(daemon)
        daemon.forget_peak()
        before = daemon.memory()
        probe.ask("mark")
        effort: Effort = client.ask("go", patience=4 * times.patience + times.attack)
        waits = probe.ask("report", times.patience, patience=2 * times.patience)
        peak = daemon.peak()
        # What was said by those who have gone is carried out, all that the system holds of it.
        back = _wait_back(daemon, there, times.patience + _CARRIED_OUT * effort.sent / MIB)
        probe.ask("mark")
        time.sleep(times.quiet)
        after = probe.ask("report", 1.0)
        left = daemon.memory()
        slowest = "" if back else slowest_step(lag, _lag(daemon))
    return Seen(quiet, waits, after, effort, before, peak, left, slowest, back)


def _wait_back(daemon: Daemon, connections: int, patience: float) -> str:
    """Wait until the attacker's connections are forgotten; tell what is still there.

    Args:
        daemon: that was attacked.
        connections: that there were before.
        patience: seconds of processor time that the daemon may need for it.
    """
    told = {}

    def back() -> bool:
        nonlocal told
        if not daemon.alive:
            return True
        try:
            told = daemon.request("stats")
        except (OSError, ValueError):
            return False
        # On a busy machine it has less of the processor than it would have.
        return bool(told["connections"] <= connections) or daemon.cpu() - begun > patience

    begun = daemon.cpu()
    with suppress(SoakError):
        wait_until(back, "the attacker is forgotten", _BUSY * patience, tick=0.02)
    if told.get("connections", 0) > connections:
        return f"{told.get('connections')} connections in place of {connections}"
    return "" if daemon.alive else "the daemon is gone"


def _lag(daemon: Daemon) -> dict[str, float]:
    """Return the histogram of its loop lag: bound -> measurements up to it."""
    with daemon.hub.connect() as sock:
        sock.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        heard = b""
        while part := sock.recv(MIB):
            heard += part
    found: Counter[str] = Counter()  # of all workers together
    for bound, value in _LAG.findall(heard.decode()):
        found[bound] += float(value)  # type: ignore[assignment]
    return dict(found)


def slowest_step(before: dict[str, float], after: dict[str, float]) -> str:
    """Return the bound of the slowest class that has more measurements than before."""
    reached, below = "0", 0.0
    for bound, value in after.items():
        new = value - before.get(bound, 0.0)
        if new > below:
            reached = bound
        below = new
    return reached


def _milliseconds(waits: Waits) -> str:
    """Return median, 99th percentile and longest."""
    return f"{waits.share(0.5):6.1f} /{waits.share(0.99):8.1f} /{waits.longest:6.0f} ms"


def judge(
    attack: Attack, count: int, seen: Seen, *, timed: bool, seconds: float = 10.0
) -> tuple[list[str], list[str]]:
    """Return what is told of an attack of so many seconds, and what is not as it should be."""
    parts, faults = [], []
    loops = 2 if "workers" in attack.daemon else 1  # that a message has to do with
    often = loops * _OFTEN + attack.delay
    longest = loops * (_LONGEST if count == 1 else _LONGEST_OF_MANY) + attack.delay
    # In a second, the 99th percentile would be the longest wait less ten milliseconds.
    share = 1 - max(0.01, min(0.1, _LONG_TIME / seconds))
    for port, waits in seen.waits.items():
        quiet = seen.quiet[port]
        usual = waits.share(share)
        text = f"{port} {_milliseconds(waits)} (quiet {quiet.share(0.5):.1f} / {quiet.longest:.0f})"
        text += f" ({waits.worked:.0f} ms of processor)"
        if waits.longest > longest:
            text += f" at {waits.longest_at:.1f} s"
        parts.append(text)
        if timed and count == 1 and usual > often:
            faults.append(f"p{100 * share:.0f} of {port} {usual:.0f} ms")
        if timed and waits.longest > longest:
            faults.append(f"{port} waited {waits.longest:.0f} ms")
        if waits.lost or seen.after[port].lost:
            faults.append(f"{port} waits still")
        if broken := waits.broken or seen.after[port].broken:
            faults.append(f"{port} was closed: {broken}")
        if timed and seen.after[port].share(share) > loops * _OFTEN:
            faults.append(
                f"p{100 * share:.0f} of {port} afterwards {seen.after[port].share(share):.0f} ms"
            )
        if timed and seen.after[port].longest > longest:
            faults.append(f"{port} waited {seen.after[port].longest:.0f} ms afterwards")
    effort = seen.effort
    allowed = attack.table + attack.each * count + effort.connections * CONNECTION
    grown = seen.peak - seen.before
    left = seen.left - seen.before
    parts.append(
        f"{grown / MIB:+6.0f} MiB of {(allowed + _ROOM) / MIB:.0f}, {left / MIB:+.0f} left"
    )
    if grown > allowed + _ROOM * (1 if timed else 4):  # a short form tells of leaps alone
        faults.append(f"{grown / MIB:.0f} MiB of memory")
    if seen.back:
        faults.append(seen.back)
    without = max(waits.without for waits in seen.waits.values()) / 1_000
    parts.append(
        f"lag up to {seen.lag} s, {effort.opened:,} connections, sent {effort.sent / MIB:.1f} MiB "
        f"in {effort.processor:.1f} s of processor, prepared in {effort.prepared:.1f} s, "
        f"{without:.1f} s without a processor"
    )
    return parts, faults


SCENARIO = Scenario("hostile", __doc__ or "", run)
