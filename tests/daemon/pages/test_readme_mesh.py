"""Do the README's three daemons in a chain do what it says, with what it says to wait for?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.daemon.pages.test_pages import README
from tests.daemons import DEADLINE, Start, environment, program, tool, wait_until
from tests.forks import run

CHAIN = README.partition("## Several daemons")[2].partition("### ")[0]
BLOCKS = re.findall(r"^```shell-session\n(.*?)^```$", CHAIN, flags=re.MULTILINE | re.DOTALL)


def test_what_is_published_at_the_first_daemon_arrives_at_the_third(
    start: Start, tmp_path: Path
) -> None:
    tool("nc")
    daemons, listening, publishing = BLOCKS
    ports: dict[str, str] = {}  # as printed -> as they are here

    def here(text: str) -> str:
        return re.sub(r"\b90\d\d\b", lambda found: ports[found[0]], text)

    chain = []
    for line in daemons.splitlines():
        words = line.removeprefix("$ pubsubd serve ").split()
        printed = words.pop(words.index("--port") + 1) if "--port" in words else "9014"
        flags = [here(word) for word in words if word != "--port"]
        chain.append(start(*flags))
        ports[printed] = str(chain[-1].address[1])
    assert "when the second and the third have printed `event=link-up`" in CHAIN
    for daemon in chain[1:]:
        daemon.wait_log("event=link-up")
    command, typed, printed = listening.splitlines()
    screen = tmp_path / "screen"
    with (
        screen.open("wb") as output,
        program(*here(command.removeprefix("$ ")).split(), stdout=output) as nc,
    ):
        assert nc.stdin is not None
        nc.stdin.write(typed.encode() + b"\n")
        nc.stdin.flush()
        (waiting,) = re.findall(r"`pubsubd (pub [^`]*--wait-for 1)`", CHAIN)
        told = [sys.executable, "-m", "pubsubd", *waiting.split(), "--port", ports["9014"]]
        done = run(told, capture_output=True, timeout=DEADLINE, env=environment())
        assert (done.returncode, done.stdout + done.stderr) == (0, b"")
        by_hand = here(publishing.removeprefix("$ ").rstrip())
        subprocess.run(["bash", "-c", by_hand], env=environment(), timeout=DEADLINE, check=True)
        expected = f"{printed}\n" * 2
        wait_until(lambda: screen.stat().st_size >= len(expected), "nc prints both messages")
        assert screen.read_text() == expected
