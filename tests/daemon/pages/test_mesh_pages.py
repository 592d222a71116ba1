"""Is pubsubd-mesh(7) true? Its examples are carried out, and its numbers are compared."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator

import pytest

from pubsubd.hub.catalogue import ALL_DETAILS
from pubsubd.hub.federation import BROADCASTS, BURST
from pubsubd.mesh import (
    advertising,
    adverts,
    core,
    dial,
    directory,
    edges,
    forwarding,
    handshakes,
    incoming,
    interests,
    link,
    linkstate,
    outgoing,
    pages,
    window,
)
from pubsubd.mesh.state import MeshCounters
from pubsubd.protocol import errors, wire
from pubsubd.protocol.limits import LINK_STALL, MIB
from pubsubd.routing import claims
from tests.daemon.pages.test_pages import rendered, section, source
from tests.daemons import ROOT, Daemon, Line, wait_until
from tests.webs import build

PAGE = "pubsubd-mesh.7"

STANDS_FOR = {
    "<n>": rb"[0-9]+",
    "<life>": rb"[0-9]{13}",
    "<nonce>": rb"[0-9a-f]{32}",
    "<advert>": rb"127\.0\.0\.1 [0-9]+\nnode [0-9]+ [0-9]+ [0-9]+\nversion [^\n]+\nhub 0 0 0"
    rb"(?:\nlink a in [^\n]+)?(?:\nwant //fwd/hub/[^\n]+){2}",
}


def examples() -> Iterator[list[tuple[str, str]]]:
    """Yield each example: its lines, as who speaks, and what; D is the daemon."""
    displays = r"^\.Bd -literal.*\n((?:(?!\.).*\n)+)\.Ed"
    for block in re.findall(displays, source(PAGE), flags=re.MULTILINE):
        lines = [re.fullmatch(r"([CDPS]): (.*)", line) for line in block.splitlines()]
        if all(lines):
            yield [(line[1], line[2].replace("\\en", "\n")) for line in lines if line]


EXAMPLES = list(examples())


def test_the_page_has_its_examples() -> None:
    spoken = re.findall(r"^[CDPS]: ", source(PAGE), flags=re.MULTILINE)
    assert len(spoken) == sum(map(len, EXAMPLES)) > 18


def expect(line: Line, text: str) -> None:
    """Hear what an example says, after heartbeats and adverts that may come before it."""
    pattern = re.escape(text.encode()) + rb"\n"
    for word, meaning in STANDS_FOR.items():
        pattern = pattern.replace(re.escape(word.encode()), meaning)
    while True:
        name, data = line.hear_frame()
        heard = wire.frame(name.encode(), data)
        if re.fullmatch(pattern, heard):
            return
        assert name.startswith(("//fwd/peers/", "//pubsubd/heartbeat")), heard


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: f"{len(e)} {e[0][1][:40]}")
def test_an_example_of_the_page_is_what_is_said(
    example: list[tuple[str, str]], start: Callable[..., Daemon]
) -> None:
    daemon = start("--node", "b", "--mesh", "org")
    lines = {who: Line(daemon.address) for who in {"C", *(who for who, _ in example)} - {"D"}}
    for who, text in example:
        if text == "(closed)":
            assert lines["C"].hear_end() == b""
        elif who == "D":
            expect(lines["C"], text)
        elif text.startswith("< "):
            expect(lines[who], text[2:])
        else:
            if who == "P":
                wait_until(lambda: asks_for_chat(lines["P"]), "D knows what C wants")
            lines[who].say(text.encode() + b"\n")
    for line in lines.values():
        line.close()


def asks_for_chat(line: Line) -> bool:
    line.say(b"pub //pubsubd/peers 0 \n")
    links = json.loads(line.hear_frame()[1])["links"]
    return [link["interests"] for link in links] == [["//fwd/chat/"]]


def test_the_page_tells_every_fault_of_a_link() -> None:
    listed = re.findall(
        r"^\.It Cm (\S+)", section(PAGE, "Errors that refuse or close a link"), flags=re.MULTILINE
    )
    assert listed == list(errors.MESH_CLOSES)


def test_the_page_tells_every_key_of_the_answers() -> None:
    text = section(PAGE, "REQUESTS")
    told = set(re.findall(r"[a-z_]+", text))
    described = build(["ab"])["a"].report.describe()
    keys = {*described, *described["links"][0], *described["daemons"][0]}
    web = build(["ab", "bc", "cd"])
    web.kill("d")
    web.run()
    web["a"].say("ask", b"pub //pubsubd/weak 0 \n")
    weak = json.loads(web["a"].hears("ask")[0][1])
    keys |= {*weak, *(key for rows in weak.values() if isinstance(rows, list) for key in rows[0])}
    keys |= {field.name for field in dataclasses.fields(MeshCounters)} | {*described["counters"]}
    assert keys - told == set()


def test_the_page_tells_every_column_of_edge_lists() -> None:
    tags = re.findall(r"^\.It Li (.*)$", section(PAGE, "EDGE LISTS"), flags=re.MULTILINE)
    assert [one for tag in tags for one in tag.split(" , ")] == list(edges.COLUMNS)
    assert list(build(["ab"])["a"].report.edges()[0]) == list(edges.COLUMNS)


def test_the_numbers_in_the_page_are_the_real_ones() -> None:
    most = interests.MAX_INTEREST_BYTES // 1024
    for sentence in (
        f"more than {interests.MAX_INTERESTS:,} interests, or more than {most} KiB",
        f"It starts at {forwarding.TTL}, and",
        f"It remembers the last {window.SIZE:,} numbers of each life",
        f"This lasts for {forwarding.FLOOD:g} second plus",
        f"not finished in {handshakes.GREETING_TIME:g} seconds",
        f"or nothing for {handshakes.ANSWER_TIME:g} seconds",
        f"has brought nothing for {'two' if core.SILENT == 2 else core.SILENT} heartbeats",
        f"within {advertising.PACE:g} seconds when the interests of its clients change",
        f"every {advertising.REFRESH * 0.75:g} to {advertising.REFRESH:g} seconds otherwise",
        f"about {advertising.REFRESH_RATE / 1000:g} kB a second",
        f"not been reachable for {core.FORGET:g} seconds is forgotten",
        f"at most {linkstate.MAX_DAEMONS:,} others",
        f"{linkstate.MAX_TABLE // MIB} MiB of all daemons together",
        f"counted with {linkstate.LINK_SIZE} bytes",
        f"each daemon with {linkstate.ADVERT_SIZE // 1024} KiB",
        f"{linkstate.MAX_ALL_LINKS:,} links, each counted at both ends",
        f"{linkstate.MAX_TREES:,} daemons in all of them together",
        f"{forwarding.MAX_NEXT_HOPS:,} answers to where",
        f"{core.MAX_HELD // MIB} MiB of all links together",
        f"more than {handshakes.MAX_GREETINGS:,} hellos at once",
        f"while it has {adverts.MAX_LINKS:,} links",
        f"more than {adverts.MAX_LINKS:,} links",
        f"{dial.MAX_HINTS} addresses that clients",
        f"pages of about {pages.PAGE_SIZE // 1024} KiB",
        f"makes none for {3 * advertising.CLAIM_TIME:g} seconds",
        f"A batch has at most {link.MAX_BATCH // MIB} MiB",
        f"for up to {LINK_STALL:g} seconds without",
        f"for the last {core.KEPT_DOWN:,} links",
        f"others every {directory.GATHER:g} seconds",
        f"come to {directory.RATE / 1e6:g} MB a second",
        f"in parts of about {directory.PART // 1024} KiB",
        f"up to {claims.MAX_KNOWN:,} actors of other daemons, with {ALL_DETAILS // MIB} MiB",
        f"confirmed after {incoming.CONFIRM:g} seconds, or when there are {incoming.AT_ONCE}",
        f"not confirmed after {outgoing.AGAIN:g} seconds",
        f"After {outgoing.PATIENCE:g} seconds, or when the other",
        f"{outgoing.MAX_UNCONFIRMED // MIB} MiB that are not confirmed",
        f"{outgoing.MAX_EACH // MIB} MiB of them to one daemon",
        f"{incoming.MAX_HELD // MIB} MiB that wait for earlier ones",
        f"and {incoming.MAX_WAITING:,} messages from one daemon",
        f"takes {BROADCASTS // 60} broadcasts and displacements a second",
        f"and {BURST:,} at once",
    ):
        assert sentence in rendered(PAGE), sentence


@pytest.mark.parametrize(
    "text", [source(PAGE), (ROOT / "README.md").read_text(encoding="utf-8")], ids=["page", "readme"]
)
def test_the_chain_carries_messages_as_printed(text: str, start: Callable[..., Daemon]) -> None:
    """The commands, with free ports instead of those that are printed."""
    commands = re.findall(r"^\$ pubsubd serve (.*--no-hub.*)$", text, flags=re.MULTILINE)
    assert len(commands) == 3
    real: dict[str, int] = {}
    daemons = []
    for command in commands:
        port = (re.findall(r" --port (\d+)", command) or ["9014"])[0]
        words = re.sub(r" --port \d+", "", command).split()
        words = [re.sub(r":(\d+)$", lambda m: f":{real[m[1]]}", word) for word in words]
        daemons.append(start(*words))
        real[port] = daemons[-1].address[1]
    first, last = Line(daemons[0].address), Line(daemons[2].address)
    last.say(b"sub //fwd/chat/\n")
    last.ping()

    def is_known() -> bool:
        first.say(b"pub //pubsubd/peers 0 \n")
        told = json.loads(first.hear_frame()[1])
        return ("c", 2, 1) in [
            (one["node"], one["hops"], one["interests"]) for one in told["daemons"]
        ]

    wait_until(is_known, "the first daemon knows what is wanted at the third")
    first.say(b"pub //chat/main 5 hello\n")
    assert last.hear_frame() == ("//fwd/chat/main", b"hello")
    first.close()
    last.close()


def test_the_readme_and_the_pages_point_to_it() -> None:
    assert "man/pubsubd-mesh.7" in (ROOT / "README.md").read_text(encoding="utf-8")
    for page in ("pubsubd.8", "pubsubd.1", "pubsubd-protocol.7"):
        assert ".Xr pubsubd-mesh 7" in source(page)
