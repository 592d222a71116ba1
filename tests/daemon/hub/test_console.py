"""The console in a real browser: it loads, logs in, shows what happens, and tells what was lost."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsubd.access.users import make_token
from tests.browser import Browser, Page
from tests.daemons import DEADLINE, Daemon, Line, frame, free_port, tool, wait_until
from tests.rights import PASSWORD, users

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202egnp\u2066"
BOSS, BOSS_LINE = make_token()
ACL = """
[[acl]]
who = ["ann"]
publish = ["chat/"]
receive = ["chat/"]

[[acl]]
who = ["boss"]
publish = ["#", "//pubsubd/"]
receive = ["#", "//pubsubd/"]
"""


def open_console(page: Page, daemon: Daemon, view: str = "overview") -> None:
    """Open the console and wait until it is connected."""
    host, port = daemon.hub
    page.open(f"http://{host}:{port}/#{view}")
    page.wait_text("#state", "connected")


def test_it_connects_and_its_tabs_are_reached_with_the_keyboard(shared: Daemon, page: Page) -> None:
    open_console(page, shared)
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Skip to the content"
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Overview"
    page.press("ArrowRight")
    page.wait(
        "location.hash === '#connections' && !document.querySelector('#view-connections').hidden"
    )
    assert page.run("document.activeElement.id") == "tab-connections"
    assert page.run("document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    page.wait("location.hash === '#mesh'")


def test_a_first_message_comes_from_nc_and_is_text_whatever_it_is(
    daemon: Daemon, page: Page
) -> None:
    tool("nc")
    open_console(page, daemon)
    page.click(".steps button.main")
    page.wait_text(".steps button", "Subscribed")
    command = page.text(".steps code")
    assert command.endswith(f"nc -N {daemon.address[0]} {daemon.address[1]}")
    for line in (command, command.replace("Hello from nc", HOSTILE)):
        subprocess.run(["bash", "-c", line], check=True, timeout=DEADLINE)
    page.wait("document.querySelectorAll('.received li').length === 2")
    assert page.run("document.querySelectorAll('main img').length") == 0
    assert page.run("document.querySelector('.received').textContent") == (
        "hello/world <img src=x onerror=alert(1)>\u241b[31mU+202EgnpU+2066hello/world Hello from nc"
    )
    page.click(".steps li:nth-child(2) > button")
    page.wait_text(".received", "Hello from the browser")


# What it shows


def test_the_overview_shows_rates_names_and_events_as_they_come(
    daemon: Daemon, dial: Callable[..., Line], page: Page
) -> None:
    name = HOSTILE.replace(" ", "/")
    open_console(page, daemon)
    line, bad = dial(daemon), dial(daemon)
    bad.say(b"pub x 3 hello\n")

    def busy() -> bool:
        """Publish some more, of which the daemon looks at a part; return whether it was told."""
        line.say(100 * frame(name, b"x"))
        return bool(page.run("document.querySelector('td.name') !== null"))

    wait_until(busy, "the busiest name")
    assert page.text("td.name") == "<img/src=x/onerror=alert(1)>\u241b[31mU+202EgnpU+2066"
    assert re.search(r"Messages in\n[1-9]", page.text(".facts"))
    page.wait(
        "[...document.querySelectorAll('.tile svg')].some(one =>"
        " /^Published: now .*, at most [1-9]/.test(one.getAttribute('aria-label')))"
    )
    page.wait_text("#view-overview", "wrong-length")
    assert page.run("document.querySelectorAll('main img').length") == 0


def test_a_connection_is_found_and_ended_after_a_question(
    daemon: Daemon, dial: Callable[..., Line], page: Page
) -> None:
    open_console(page, daemon, "connections")
    victim, other = dial(daemon), dial(daemon)
    for one in (victim, other):
        one.ping()
    rows = "[...document.querySelectorAll('.connections tbody tr')].map(one => one.textContent)"
    page.wait_text(".connections", victim.label)
    assert any("(this page)" in row and "Kill" not in row for row in page.run(rows))
    page.click("[data-by=age] button")
    page.wait("document.querySelector('[data-by=age]').ariaSort === 'descending'")
    page.type("#view-connections [type=search]", victim.label)
    page.wait(f"{rows}.length === 1")
    assert page.text("#view-connections .note").startswith("1 of 1 shown, ")
    page.click(".connections .danger")
    page.wait("document.querySelector('dialog').open")
    assert victim.label in page.text("dialog")
    page.picture("kill")
    page.press("Escape")  # nothing happens without a yes
    assert victim.ping() == b""
    page.click(".connections .danger")
    page.click("dialog .danger")
    assert b"killed ended by 127.0.0.1" in victim.hear_end()
    page.wait_text("[aria-labelledby=closed-of-late] tbody", "killed")
    page.wait(f"{rows}.length === 0")
    assert other.ping() == b""


def test_events_that_were_missed_are_told(
    daemon: Daemon, dial: Callable[..., Line], page: Page
) -> None:
    open_console(page, daemon, "events")
    page.wait_text("#view-events", "Nothing has happened yet")
    lines = [dial(daemon) for _ in range(520)]  # twice as many as the daemon keeps, and some
    lines[-1].ping()
    daemon.signal(signal.SIGSTOP)
    for one in lines:
        one.say(b"pub x 3 hello\n")
    daemon.signal(signal.SIGCONT)
    page.wait_text("#view-events tr.lost", "events missed: only the last 256 are kept")
    latest = page.text("#view-events tbody tr:first-child")
    assert "missed" not in latest  # which was before those that are here
    page.picture("events-missed")
    page.type("#view-events [type=search]", latest.split()[2])
    page.wait("document.querySelectorAll('#view-events tbody tr:not(.lost)').length === 1")


def test_differences_are_merged_and_what_was_left_out_is_told(shared: Daemon, page: Page) -> None:
    open_console(page, shared)
    messages = [
        {"n": 0, "interval": 1, "own": 7, "may_kill": False},
        {"n": 1, "interval": 1, "totals": {"a": 1, "b": 2}}
        | {"connections": {"count": 2, "rows": [{"connection": i, "user": "u"} for i in (1, 2)]}},
        {"n": 2, "totals": {"b": 3}, "connections": {"rows": [{"connection": 2, "user": "v"}]}},
        {"n": 3, "missed": {"updates": 4, "why": "slow"}, "connections": {"gone": [1]}},
    ]
    state, lost = page.run(
        "import('/console/live.js').then(({Live}) => {"
        " const connection = new EventTarget(), lost = [];"
        " const live = new Live(connection, (...one) => lost.push(one));"
        f" for (const one of {json.dumps(messages)}) connection.dispatchEvent(new CustomEvent("
        " 'message', {detail: {name: '//pubsubd/live',"
        "  data: new TextEncoder().encode(JSON.stringify(one))}}));"
        " live.state.connections.rows = [...live.state.connections.rows];"
        " return [live.state, lost]; })"
    )
    assert state == {
        "own": 7,
        "may_kill": False,
        "interval": 1,
        "totals": {"a": 1, "b": 3},
        "connections": {"count": 2, "rows": [[2, {"connection": 2, "user": "v"}]]},
    }
    assert lost == [[4, "slow"]]


# How it looks


def test_each_view_is_accessible_and_fits_a_phone_in_light_and_dark(
    daemon: Daemon, dial: Callable[..., Line], page: Page
) -> None:
    open_console(page, daemon)
    views = page.run("[...document.querySelectorAll('[role=tab]')].map(tab => tab.hash.slice(1))")
    assert len(views) == 6
    line, bad = dial(daemon), dial(daemon)
    line.say(b"sub a\n" + b"".join(frame(f"a/{'very-long-' * i}name", b"x") for i in range(9)))
    bad.say(b"pub x 3 hello\n")
    page.wait_text("#view-overview", "wrong-length")
    for scheme, width in (("light", 1280), ("dark", 400)):
        page.scheme(scheme)
        page.size(width, 800)
        for view in views:
            page.click(f"#tab-{view}")
            page.wait(f"document.querySelector('#view-{view}').checkVisibility()")
            if view == "connections":
                page.wait_text(".connections", line.label)
            page.picture(f"{view}-{width}-{scheme}")
            assert page.axe() == [], view
            assert not page.too_wide, view


# Logins


def write_users(path: Path, **secrets: str) -> None:
    """Write a users file."""
    lines = users(**secrets).lines
    path.write_text("".join(f"{name}:{line}\n" for name, line in lines))
    path.chmod(0o600)


@pytest.fixture
def guarded(start: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    """A daemon with a login: ann, who has a password and few rights, and the boss with a token."""
    write_users(tmp_path / "users", ann=PASSWORD, boss=BOSS_LINE)
    file = tmp_path / "pubsubd.toml"
    file.write_text(f"users_file = {json.dumps(str(tmp_path / 'users'))}\n{ACL}")
    return start("--config", str(file))


def give(page: Page, user: str, password: str) -> None:
    """Fill the form and press the button."""
    page.type("[name=user]", user)
    page.type("[name=password]", password)
    page.press("Enter")


def later(page: Page, seconds: float) -> None:
    """Set the page's clock forward."""
    page.run(f"Date.now = (now => () => now() + {1000 * seconds})(Date.now); null")
    page.wait("!document.querySelector('#login button').disabled")


def test_a_login_is_tried_once_in_five_seconds_and_kept_for_the_tab(
    guarded: Daemon, dial: Callable[..., Line], page: Page, browser: Browser, tmp_path: Path
) -> None:
    host, port = guarded.hub
    page.open(f"http://{host}:{port}/")
    page.wait("document.querySelector('[name=user]').checkVisibility()")
    page.picture("login")
    page.run("Date.now = (now => () => now)(Date.now()); null")  # however long all this takes
    give(page, "ann", "wrong")
    page.wait_text("#login .fault", "login-failed")
    page.wait_text("#state", "log in")
    operator = dial(guarded)
    operator.say(frame("//pubsubd/auth", BOSS.encode()))
    operator.ping()

    def failed() -> int:
        return int(operator.stats()["errors"].get("login-failed", 0))

    assert failed() == 1
    for _ in range(3):  # too early, however it is asked for
        give(page, "ann", PASSWORD)
        page.run("document.querySelector('#login form').requestSubmit()")
    assert page.run("document.querySelector('#login button').disabled")
    assert page.text("#state").startswith("log in")
    later(page, 5)
    give(page, "ann", PASSWORD)
    page.wait_text("#user", "ann")
    page.wait_text("#state", "connected")
    page.wait_text("#view-overview", "your rights do not include it")
    assert failed() == 1
    page.call("Page.reload")
    page.wait("document.querySelector('#user')?.textContent === 'ann'")
    with browser.page() as other:  # another tab
        other.open(f"http://{host}:{port}/")
        other.wait("document.querySelector('#login')?.checkVisibility()")

    # What is taken back is tried once more, when the page comes back, and then never again; not
    # by its other connection either.
    page.click("#tab-messages")
    page.click("#view-messages form:not(:has(textarea)) button.main")
    page.wait_text("#view-messages [role=status]", "Subscribed")
    write_users(tmp_path / "users", ann="another one", boss=BOSS_LINE)
    guarded.signal(signal.SIGHUP)
    page.wait_text("#login .fault", "login-failed")
    assert page.run("sessionStorage.getItem('pubsubd.login')") is None
    assert failed() == 2

    page.click("#login summary")
    later(page, 10)
    page.type("[name=token]", BOSS)
    page.press("Enter")
    page.wait_text("#user", "boss")
    page.click("#leave")
    page.wait("document.querySelector('#login')?.checkVisibility()")
    assert page.run("sessionStorage.length + localStorage.length") == 0
    assert failed() == 2


def test_without_logins_there_is_no_form(shared: Daemon, page: Page) -> None:
    open_console(page, shared)
    for button in ("#login", "#enter", "#leave"):
        assert not page.run(f"document.querySelector('{button}').checkVisibility()")


# Coming back


def test_it_comes_back_when_the_daemon_does(start: Callable[..., Daemon], page: Page) -> None:
    ports = ("--port", str(free_port()), "--hub-port", str(free_port()))
    daemon = start(*ports, ports=False)
    open_console(page, daemon)
    daemon.stop()
    page.wait_text("#state", "not connected: shutting-down")
    page.wait_text("#retry", "next try in")
    page.picture("away")
    start(*ports, ports=False)
    page.run("document.querySelector('#retry button').click()")  # unless it is back by itself
    page.wait("document.querySelector('#state').textContent === 'connected'")


def test_it_waits_longer_after_each_try(shared: Daemon, page: Page) -> None:
    open_console(page, shared)
    waits = page.run(
        "import('/console/connection.js').then(({Connection}) => new Promise(done => {"
        " const waits = [], later = setTimeout;"
        " window.setTimeout = (call, wait) => { waits.push(wait);"
        "   if (waits.length < 12) later(call); else done(waits); };"
        " window.WebSocket = class { close() {}"
        "   constructor() { later(() => this.onclose({reason: ''})); } };"
        " new Connection().open(); }))"
    )
    assert all(0.7 * 500 * 2**i < wait < 1.3 * 500 * 2**i for i, wait in enumerate(waits[:6]))
    assert all(20_000 < wait < 40_000 for wait in waits[7:])
    held = page.run(
        "import('/console/connection.js').then(({Connection}) => {"
        " const held = new Connection({may: () => false}); held.open(); return held.state; })"
    )
    assert held == "waiting"
