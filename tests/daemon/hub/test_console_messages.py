"""The console's pane that publishes and subscribes, and the one that explains, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser import Page
from tests.daemon.hub.test_console import HOSTILE, open_console, write_users
from tests.daemons import ROOT, Daemon, Line, frame, wait_until
from tests.rights import PASSWORD

SUBSCRIBE = "#view-messages form:not(:has(textarea))"
PUBLISH = "#view-messages form:has(textarea)"
FIGURES = "section[aria-labelledby=received] .note"

SENT = {
    "line": ("sub chat", "pub chat/main 5 hello"),
    "hub": (
        '"correlationId":"1","payload":{"topic":"chat/#"}}',
        '"type":"pubsub:message","data":{"name":"chat/main","data":"hello"}}}',
    ),
    "synap": (
        '{"command":"pubsub.subscribe","request_id":"1","payload":{"topics":["chat.#"]}}',
        '{"command":"pubsub.publish","request_id":"2","payload":{"topic":"chat.main",',
    ),
    "envelope": (
        '{"type":"__subscribe","id":"","payload":{"topic":"chat:1"}}',
        '{"type":"chat","id":"1","payload":"hello"}',
    ),
}


def choose(page: Page, dialect: str) -> None:
    """Choose a dialect, and wait until the page shows what is sent in it, and moves no more."""
    page.click(f"[name=dialect][value={dialect}]")
    page.wait_text(f"{SUBSCRIBE} code", SENT[dialect][0])
    page.wait_text(f"{PUBLISH} code", SENT[dialect][1])


def subscribe(page: Page, topic: str | None = None) -> None:
    if topic is not None:
        page.type(f"{SUBSCRIBE} [name=topic]", topic)
    page.click(f"{SUBSCRIBE} button.main")
    page.wait(f"/Sub|Sent/.test(document.querySelector('{SUBSCRIBE} [role=status]').textContent)")


def received(page: Page) -> list[str]:
    """Return the name, the dialect and the payload of each message listed, the latest first."""
    rows = page.run(
        "[...document.querySelectorAll('.msg:not(.lost)')].map(one =>"
        " [one.querySelector('.msg-name'), one.querySelector('small'), one.children[1]]"
        " .map((part, at) => part.innerText.split(at === 1 ? / from| ·/ : '\\0')[0]).join(' | '))"
    )
    return list(rows)


def losses(page: Page) -> list[str]:
    """Return what is said of messages that were missed, the latest first."""
    return list(page.run("[...document.querySelectorAll('.msg.lost')].map(one => one.textContent)"))


def wait_rows(page: Page, number: int) -> None:
    page.wait(f"document.querySelectorAll('.msg').length === {number}")


@pytest.fixture
def line(shared: Daemon, dial: Callable[..., Line]) -> Line:
    return dial(shared)


def test_each_dialect_subscribes_publishes_and_shows_what_it_sends(
    shared: Daemon, page: Page, line: Line
) -> None:
    open_console(page, shared, "messages")
    for dialect in SENT:
        choose(page, dialect)
        subscribe(page)
        page.click(f"{PUBLISH} button.main")
        page.wait_text(f"{PUBLISH} [role=status]", "Published")
    line.say(b"pub chat:1 6 README\n")
    wait_rows(page, 8)
    assert sorted(one for one in received(page) if "payload" not in one) == [
        "chat.main | Line protocol | hello",
        "chat.main | Synap | hello",
        "chat/main | Line protocol | hello",
        "chat/main | Line protocol | hello",
        "chat/main | Signal Hub | hello",
        "chat:1 | Envelopes | README",
        "chat:1 | Line protocol | README",
    ]
    page.click(".msg-chips button")  # the line protocol's subscription ends
    page.wait("document.querySelectorAll('.msg-chips li').length === 3")
    line.say(b"pub chat/main 3 two\n")
    wait_rows(page, 9)
    assert received(page)[0] == "chat/main | Signal Hub | two"


def test_what_a_dialect_refuses_is_said_and_nothing_is_subscribed(
    shared: Daemon, page: Page
) -> None:
    open_console(page, shared, "messages")
    choose(page, "hub")
    page.type(f"{SUBSCRIBE} [name=topic]", "a.b")
    page.click(f"{SUBSCRIBE} button.main")
    page.wait_text(f"{SUBSCRIBE} [role=status]", "topic 'a.b' must match")
    choose(page, "line")
    page.type(f"{SUBSCRIBE} [name=topic]", "a b")
    page.click(f"{SUBSCRIBE} button.main")
    page.wait_text(f"{SUBSCRIBE} [role=status]", "a space")
    page.click("[name=kind][value=json]")
    page.type(f"{PUBLISH} textarea", "[1")
    page.wait_text(f"{PUBLISH} code", "JSON")
    assert page.run("document.querySelectorAll('.msg-chips li').length") == 0


def test_json_unfolds_bytes_are_digits_and_nothing_is_executed(
    shared: Daemon, page: Page, line: Line
) -> None:
    open_console(page, shared, "messages")
    subscribe(page, "")
    name = "x/<img/src=x/onerror=alert(1)>\u202e\x1b[31m"
    value = {"<img src=x onerror=alert(1)>": [1, {"b": None}], "n": 7}
    large = b"word " * 200_000
    for data in (b"\xff\x00" * 100, json.dumps(value).encode(), HOSTILE.encode() + b"\0", large):
        line.say(frame(name, data))
    wait_rows(page, 4)
    choose(page, "hub")
    subscribe(page, "fake")
    fake = {"type": "pubsub:message", "payload": {"name": "fake", "dataBase64": "!"}}
    line.say(frame("fake", json.dumps(fake).encode()))
    wait_rows(page, 6)
    page.wait_text(".msg", '{"name": "fake", "dataBase64": "!"}')
    page.run("document.querySelectorAll('.msg:nth-child(-n+2)').forEach(one => one.remove())")
    assert page.run("document.querySelectorAll('main img, main script').length") == 0
    assert page.text(".msg-name") == "x/<img/src=x/onerror=alert(1)>U+202E\u241b[31m"
    text, hostile, folded, binary = received(page)
    assert len(text) < 600
    assert text.endswith("Show more: 999,600 characters left")
    page.click(".msg button.small")
    page.wait_text(".msg", "Show more: 989,600 characters left")
    assert hostile.endswith("| <img src=x onerror=alert(1)>\u241b[31mU+202EgnpU+2066\u2400")
    assert folded.endswith('"n": 7}')
    assert page.run("document.querySelectorAll('.msg-tree').length") == 0
    page.click(".msg summary")
    page.click(".msg-tree summary")
    page.wait_text(".msg-tree .msg-tree", '{"b": null}')
    assert "binary 200 B" in binary
    assert binary.count("ff 00") == 32
    page.type("[type=search]:not([hidden])[placeholder='in name or text']", "WORD")
    page.wait("document.querySelectorAll('.msg:not([hidden])').length === 1")


def test_what_the_page_does_not_show_is_told(shared: Daemon, page: Page, line: Line) -> None:
    open_console(page, shared, "messages")
    subscribe(page, "")
    page.run("document.querySelector('section[aria-labelledby=received] button').click()")
    line.say(b"pub held 1 x\n" * 600)
    page.wait_text(FIGURES, "500 wait")
    page.wait_text(FIGURES, "600 received")
    page.run("document.querySelector('section[aria-labelledby=received] button').click()")
    page.wait_text(FIGURES, "100 missed")
    assert losses(page) == ["100 messages missed: paused: the first 500 are kept"]
    assert len(received(page)) <= 500

    line.say(b"pub flood 100 %b\n" % (b"x" * 100) * 5_000)
    page.wait_text(".msg.lost", "they came faster than the page shows them")
    page.wait_text(FIGURES, "5,600 received")
    assert page.run("document.querySelectorAll('.msg').length") <= 500


BEHIND = """(async () => {
  const { messageList } = await import("/console/message-list.js");
  const list = messageList(() => {}), now = Date.now();
  list.watch("It", () => new Promise(() => {}));
  Date.now = () => now + 3000;
  list.watch("It");
  return list.node.textContent;
})()"""


def test_it_says_how_far_it_is_behind(shared: Daemon, page: Page) -> None:
    open_console(page, shared, "messages")
    assert "0 received · It is 3 s behind" in page.run(BEHIND)


def test_what_a_connection_loses_is_told_and_it_subscribes_again(
    shared: Daemon, page: Page, line: Line
) -> None:
    open_console(page, shared, "messages")
    for dialect in ("line", "hub"):
        choose(page, dialect)
        subscribe(page)
    line.say(b"pub //pubsubd/connections - {}\n")
    rows = json.loads(line.hear_frame()[1])["connections"]
    ours = [one for one in rows if one["transport"] == "websocket" and one["subscriptions"]]
    for row in ours:
        line.say(b"pub //pubsubd/kill - %d\n" % row["connection"])
    page.wait("document.querySelectorAll('.msg.lost').length === 4")
    told = sorted(losses(page))
    for text, dialect in zip(told, ["Line protocol"] * 2 + ["Signal Hub"] * 2, strict=True):
        assert text.startswith(f"Messages missed: {dialect}: ")
        assert "killed: ended by" in text
    line.ping()
    line.say(b"pub chat/again 3 one\n")
    wait_rows(page, 6)


def test_what_the_daemon_drops_is_told(
    start: Callable[..., Daemon], page: Page, dial: Callable[..., Line]
) -> None:
    daemon = start("--slow-consumer", "drop", "--hub-max-pending", "4096")
    open_console(page, daemon, "messages")
    subscribe(page, "")
    line = dial(daemon)
    while not line.stats()["dropped"]:
        # Large ones, as the page keeps 500 messages and 16 MiB, and then drops what tells of them.
        line.say(b"pub flood 32000 %b\n" % (b"x" * 32_000) * 30)
    page.wait_text(".msg.lost", "the daemon dropped them, as this page was too slow")


def test_a_user_sees_in_all_dialects_what_the_rights_allow(
    start: Callable[..., Daemon], page: Page, tmp_path: Path
) -> None:
    write_users(tmp_path / "users", ann=PASSWORD)
    file = tmp_path / "pubsubd.toml"
    file.write_text(
        f"users_file = {json.dumps(str(tmp_path / 'users'))}\n"
        '[[acl]]\nwho = ["ann"]\npublish = ["chat"]\nreceive = ["chat"]\n'
    )
    daemon = start("--config", str(file))
    host, port = daemon.hub
    page.open(f"http://{host}:{port}/#messages")
    page.type("[name=user]", "ann")
    page.type("[name=password]", PASSWORD)
    page.press("Enter")
    page.wait_text("#state", "connected")
    for dialect in SENT:
        choose(page, dialect)
        subscribe(page)
    choose(page, "hub")
    page.click(f"{PUBLISH} button.main")
    wait_rows(page, 2)
    page.type(f"{PUBLISH} [name=name]", "secret")
    page.click(f"{PUBLISH} button.main")
    page.wait_text(f"{PUBLISH} [role=status]", "unauthorized: no right to publish")
    page.run("location.hash = '#explain/chat'")
    page.wait_text("#view-explain p[role=status]", "your rights do not include it")
    page.run("location.hash = '#mesh'")
    page.wait_text("#view-mesh .note", "your rights do not include it")


def test_explain_tells_who_would_receive_a_name_and_why(
    shared: Daemon, page: Page, line: Line
) -> None:
    line.say(b"sub chat\nsub main\nsub\n")
    line.ping()
    open_console(page, shared, "explain/chat%2Fmain")
    page.wait_text("#view-explain p[role=status]", "1 receiver of chat/main")
    row = page.text("#view-explain tbody tr")
    assert f"127.0.0.1:{line.sock.getsockname()[1]}" in row
    assert {"contains chat", "contains main", "everything"} <= set(
        row.replace("\t", "\n").split("\n")
    )
    page.type("#view-explain [name=name]", "a b")
    page.press("Enter")
    page.wait_text("#view-explain p[role=status]", "bad-request: a space in the name")


def test_the_examples_for_browsers_do_what_the_pages_say(
    shared: Daemon, page: Page, line: Line
) -> None:
    host, port = shared.hub
    manual = (ROOT / "man" / "pubsubd-hub.7").read_text(encoding="utf-8").replace("\\e", "\\")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = (manual, "line"), (manual, "socket"), (readme, "socket")
    for text, name in pages:
        found = re.search(rf"const {name} = new WebSocket.*?\)\)?;\n(?=\.Ed|```)", text, re.DOTALL)
        assert found is not None
        script = re.sub(r"(localhost|127\.0\.0\.1):9015", f"{host}:{port}", found[0])
        page.open("about:blank")  # what the one before has opened is closed
        open_console(page, shared)
        page.run(f"{{ const console = {{ log: said => window.said = said }}; {script} }}")
        if name == "line":
            page.wait("window.said === 'pub chat/main 5 hello\\n'")
            continue
        wait_until(
            lambda: line.say(b"pub chat:1 5 hello\n") or page.run("window.said"), "a message"
        )
        assert page.run("window.said") == {
            "type": "chat",
            "id": "1",
            "payload": {"name": "chat:1", "data": "hello"},
        }
