"""Would the container file build what it says? Its instructions are read; no engine is needed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pubsubd.settings.config import Config
from pubsubd.settings.table import SETTINGS
from tests.certificates import Certificates
from tests.daemons import DEADLINE, ROOT, Daemon, environment
from tests.packages import EPOCH, build, run

CONTAINER = ROOT / "contrib" / "container"
HEALTHCHECK = CONTAINER / "healthcheck.py"


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage, those before the first one in a stage of their own."""
    text = (CONTAINER / "Containerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        verb, _, rest = line.partition(" ")
        if verb == "FROM":
            found.append([])
        found[-1].append((verb, rest.strip()))
    return found


def of(verb: str, stage: list[tuple[str, str]]) -> list[str]:
    return [rest for one, rest in stage if one == verb]


def test_it_builds_in_one_stage_and_runs_in_another() -> None:
    head, first, second = stages()
    assert [verb for verb, _ in head] == ["ARG"]
    assert of("FROM", first) == ["${BASE} AS build"]
    assert of("FROM", second) == ["${BASE}"]
    assert of("RUN", second) == []
    (user,) = of("USER", second)
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user)
    assert of("STOPSIGNAL", second) == ["SIGTERM"]
    assert json.loads(of("ENTRYPOINT", second)[0]) == ["pubsubd", "serve"]


def test_its_ports_and_variables_are_the_daemons() -> None:
    _, _, second = stages()
    ports = {str(port) for one in Config().all_listeners() for _, port in one.addresses}
    assert set(of("EXPOSE", second)[0].split()) == ports
    text = (CONTAINER / "Containerfile").read_text(encoding="utf-8")
    variables = {setting.variable for setting in SETTINGS.values()}
    assert set(re.findall(r"PUBSUBD_\w+", text + HEALTHCHECK.read_text("utf-8"))) <= variables
    assert "PUBSUBD_HOST=*" in shlex.split(of("ENV", second)[0])
    flags = {setting.flag for setting in SETTINGS.values()} | {"--config"}
    # Flags of the daemon, among those of the engines.
    assert {"--config"} <= set(re.findall(r"--[a-z-]+", text)) & flags


def test_what_it_copies_is_there_and_enough_to_build(
    checkout: Path, wheel: Path, tmp_path: Path
) -> None:
    _, first, second = stages()
    context = tmp_path / "context"
    for rest in of("COPY", first):
        *sources, target = rest.split()
        for source in sources:
            assert (checkout / source).exists(), source
            to = target if target != "./" else source
            (context / to).parent.mkdir(parents=True, exist_ok=True)
            run("cp", "-r", checkout / source, context / to)
    built = build("wheel", context, tmp_path / "built", SOURCE_DATE_EPOCH=str(EPOCH))
    assert built.read_bytes() == wheel.read_bytes()
    copied = [rest.split() for rest in of("COPY", second)]
    assert copied[0] == ["--from=build", "/opt/pubsubd", "/opt/pubsubd"]
    assert (checkout / copied[1][0]).read_bytes() == HEALTHCHECK.read_bytes()
    (health,) = of("HEALTHCHECK", second)
    assert json.loads(health[health.index("[") :]) == ["python", copied[1][1]]


def healthy(port: int, **variables: str) -> bool:
    """Ask the health check as an engine does."""
    # A proxy that is not to be asked.
    environ = environment() | {"PUBSUBD_HUB_PORT": str(port), "http_proxy": "http://127.0.0.1:9"}
    command = [sys.executable, HEALTHCHECK]
    found = subprocess.run(
        command, env=environ | variables, capture_output=True, check=False, timeout=DEADLINE
    )
    assert found.returncode in (0, 1)
    assert b"Traceback" not in found.stderr
    return found.returncode == 0


def test_the_health_check_tells_a_living_daemon_from_a_dead_one(
    start: Callable[..., Daemon],
) -> None:
    daemon = start("--host=127.0.0.1", "--host=::1", "--host=127.0.0.2")
    for host in ("", "*", "0.0.0.0", "::", "127.0.0.2 ::1"):
        assert healthy(daemon.hub[1], PUBSUBD_HOST=host), host
    assert not healthy(daemon.address[1])  # the line port, which speaks no HTTP
    daemon.stop()
    assert not healthy(daemon.hub[1])


def test_the_health_check_speaks_tls_where_the_daemon_does(
    start: Callable[..., Daemon], certificates: Certificates
) -> None:
    pair = (
        "--tls-certificate",
        certificates.server_certificate,
        "--tls-key",
        certificates.server_key,
    )
    daemon = start(*map(str, pair))
    port = daemon.hub[1]
    assert healthy(port, PUBSUBD_TLS_CERTIFICATE=str(certificates.server_certificate))
    assert not healthy(port)
