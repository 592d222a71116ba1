"""Are the examples of pubsubd-mesh(7) true that have clients at the hub ports of two daemons?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.daemon.pages.test_hub_pages import Client, same, shown
from tests.daemon.pages.test_pages import source
from tests.daemons import Daemon, Line, wait_until

WHERE = {"H": 0, "I": 1}


def examples() -> list[list[tuple[str, str]]]:
    """Return each example: its lines, as who speaks or hears, and what."""
    found = []
    for block in re.findall(
        r"^\.Bd -literal.*\n((?:(?!\.).*\n)+)\.Ed", source("pubsubd-mesh.7"), flags=re.MULTILINE
    ):
        text = re.sub(r"\n   +", "", block)
        lines = [re.fullmatch(r"([HI]): (.*)", line) for line in text.splitlines()]
        if all(lines):
            found.append([(line[1], line[2]) for line in lines if line])
    return found


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    directory = tmp_path_factory.mktemp("two")
    flags = ("--hub-mesh", "chat/", "--mesh-heartbeat", "1")
    near = Daemon(directory / "h", "--node", "h", *flags)
    to = f"127.0.0.1:{near.address[1]}"
    far = Daemon(directory / "i", "--node", "i", "--peer", to, *flags)
    yield near, far
    for daemon in (far, near):
        daemon.signal()
        assert daemon.wait() == 0


def known(line: Line) -> dict[str, tuple[object, ...]]:
    """Return what a daemon knows of each daemon of the mesh."""
    line.say(b"pub //pubsubd/peers 0 \n")
    daemons = json.loads(line.hear_frame()[1])["daemons"]
    return {one["node"]: (one["interests"], one.get("actors")) for one in daemons}


@pytest.mark.parametrize("example", examples(), ids=lambda example: example[0][1][:40])
def test_an_example_with_two_hub_ports_is_what_happens(
    example: list[tuple[str, str]], two: tuple[Daemon, Daemon]
) -> None:
    lines = [Line(daemon.address) for daemon in two]
    clients = [Client(daemon, "lines") for daemon in two]

    def agree() -> bool:
        near, far = map(known, lines)
        return len(near) == len(two) and near == far

    for who, text in example:
        client = clients[WHERE[who]]
        if text.startswith("< "):
            heard = client.hear()
            assert same(shown(text[2:]), heard), f"{text}\n{json.dumps(heard)}"
        else:
            wait_until(agree, "both daemons know the same of each other")
            client.say(text)
            client.sync()
    for client in clients:
        assert client.drained(), "a client hears more than the page shows"
        client.close()
    for line in lines:
        line.close()


def test_the_page_has_examples_with_hub_ports() -> None:
    assert len(examples()) == 2
