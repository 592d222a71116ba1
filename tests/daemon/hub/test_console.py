"""The console in a real browser: it loads, logs in, shows what happens, and tells what was lost."""

from __future__ import annotations

import subprocess

from tests.browser import Page
from tests.daemons import DEADLINE, Daemon, tool

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m\u202egnp\u2066"


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
