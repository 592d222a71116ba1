"""A headless Chromium that is told what to do through its debugging protocol.

One process serves all tests of a run; each page has a context of its own, as an incognito window
has. The protocol is spoken with the package ``websockets``, which other tests need anyway: the
usual libraries for this bring a program of 100 MB and a second process.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.daemons import DEADLINE, ROOT, wait_until

PICTURES = ROOT / "screenshots"
"""Folder of the pictures that tests take, for people to look at."""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--remote-debugging-port=0",
    "--remote-debugging-address=127.0.0.1",
)
_KEYS = {"Enter": ("\r", 13), "Tab": ("", 9), "Escape": ("", 27), " ": (" ", 32)} | {
    f"Arrow{way}": ("", 37 + i) for i, way in enumerate(("Left", "Up", "Right", "Down"))
}
_AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


class Browser:
    """A browser process; a context manager that ends it, by its own process group."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.fail("chromium is missing: apt-get install chromium (scripts/setup-test-tools)")
        profile = directory / "profile"
        self._log = directory / "chromium.log"
        environment = os.environ | {"HOME": str(directory), "no_proxy": "127.0.0.1,localhost"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._calls = 0
        self._stack = contextlib.ExitStack()
        self._pages: dict[str, Page] = {}
        port_file = profile / "DevToolsActivePort"
        try:
            wait_until(
                lambda: self._ended() or (port_file.exists() and "\n/" in port_file.read_text()),
                "chromium's debugging port",
            )
            port, path = port_file.read_text().split()
            self._socket = self._stack.enter_context(
                connect(
                    f"ws://127.0.0.1:{port}{path}",
                    max_size=None,
                    open_timeout=DEADLINE,
                    close_timeout=0,
                    proxy=None,
                )
            )
        except BaseException:
            self.close()
            raise

    def _ended(self) -> bool:
        if self._process.poll() is not None:
            pytest.fail(f"chromium ended: {self._log.read_text(errors='replace')[-2000:]}")
        return False

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the browser and whatever it has started."""
        self._stack.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        """Call a method of the debugging protocol, of a page's session, and return its result."""
        self._calls += 1
        message = {"id": self._calls, "method": method, "params": params}
        self._socket.send(json.dumps(message | ({"sessionId": session} if session else {})))
        while True:
            answer = json.loads(self._socket.recv(timeout=DEADLINE))
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer
                return answer["result"]
            page = self._pages.get(answer.get("sessionId"))
            if page is not None:
                page.note(answer["method"], answer["params"])

    @contextlib.contextmanager
    def page(self) -> Iterator[Page]:
        """Open an empty page in a context of its own, without anything of other pages."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        try:
            target = self.call(
                "Target.createTarget", url="about:blank", browserContextId=context, width=1280
            )["targetId"]
            session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            page = self._pages[session] = Page(self, session)
            for domain in ("Page", "Runtime", "Log"):
                page.call(f"{domain}.enable")
            page.size(1280, 800)
            yield page
            page.run("null")  # so that what it has reported is here
            del self._pages[session]
            assert not page.faults, page.faults
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """A page of the browser.

    Attributes:
        faults: exceptions of its scripts, and what its security policy has forbidden.
        logged: texts that its scripts have written to the developer console.
    """

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.faults: list[str] = []
        self.logged: list[str] = []

    def note(self, event: str, params: Any) -> None:
        """Take note of an event."""
        if event == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Runtime.consoleAPICalled":
            self.logged += [str(one.get("value")) for one in params["args"]]
        elif event == "Log.entryAdded" and params["entry"]["source"] in ("security", "violation"):
            self.faults.append(params["entry"]["text"])

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the debugging protocol and return its result."""
        return self._browser.call(method, self._session, **params)

    def run(self, script: str) -> Any:
        """Return what a JavaScript expression comes to in the page; promises are waited for."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, url: str) -> None:
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait(
            f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})"
        )

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true in the page."""
        end = time.monotonic() + DEADLINE
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                text = self.run("document.body.innerText")
                pytest.fail(f"waited in vain for {condition}: {text} {self.faults}")
            time.sleep(0.05)

    def text(self, css: str) -> str:
        """Return the visible text of the first element that a selector finds."""
        return str(self.run(f"document.querySelector({json.dumps(css)}).innerText"))

    def wait_text(self, css: str, text: str) -> None:
        """Wait until an element has ``text`` in its text, visible or not."""
        found = f"[...document.querySelectorAll({json.dumps(css)})]"
        self.wait(f"{found}.some(one => one.textContent.includes({json.dumps(text)}))")

    # What a user does

    def click(self, css: str) -> None:
        """Click in the middle of an element, once it is there and does not move any more."""
        where = json.dumps(css)
        self.wait(f"document.querySelector({where})?.checkVisibility()")
        place = self.run(
            # What has just come into view may be given its size some frames later.
            f"(async () => {{ for (let before = '', same = 0;;) {{"
            f" const one = document.querySelector({where});"
            " one.scrollIntoView({block: 'center', inline: 'nearest', behavior: 'instant'});"
            " const {x, y, width, height} = one.getBoundingClientRect();"
            " const now = [x, y, width, height].join();"
            " same = now === before ? same + 1 : 0;"
            " if (same === 5) return {x: x + width / 2, y: y + height / 2};"
            " before = now; await new Promise(requestAnimationFrame); } })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **place)

    def type(self, css: str, text: str) -> None:
        """Put text into a field in place of what is there."""
        where = json.dumps(css)
        self.wait(f"document.querySelector({where})?.checkVisibility()")
        self.run(f"(one => {{ one.focus(); one.select(); }})(document.querySelector({where}))")
        self.call("Input.insertText", text=text)

    def choose(self, css: str, value: str) -> None:
        """Choose an option of a list by its value."""
        self.run(
            f"(one => {{ one.value = {json.dumps(value)};"
            " one.dispatchEvent(new Event('change', {bubbles: true})); })"
            f"(document.querySelector({json.dumps(css)}))"
        )

    def press(self, key: str) -> None:
        """Press a key and let it go: one character, or Enter, Tab, Escape or an arrow."""
        text, code = _KEYS.get(key, (key, ord(key[0].upper())))
        more = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call(
            "Input.dispatchKeyEvent", type="keyDown", **more, **({"text": text} if text else {})
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    # What a user sees

    def size(self, width: int, height: int) -> None:
        """Give the page a size in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def scheme(self, name: str) -> None:
        """Let the user prefer ``light`` or ``dark``."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, name: str) -> None:
        """Keep a PNG of the page as it is seen, in :data:`PICTURES`."""
        PICTURES.mkdir(exist_ok=True)
        data = self.call("Page.captureScreenshot")["data"]
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(data))

    @property
    def too_wide(self) -> bool:
        """Whether the page as a whole can be scrolled sideways."""
        return bool(self.run("document.documentElement.scrollWidth > innerWidth"))

    def axe(self) -> list[str]:
        """Return what axe-core finds serious or critical, with the elements."""
        if not self.run("'axe' in window"):
            self.call("Page.setBypassCSP", enabled=True)
            self.run(_axe() + "; null")
        found = self.run(
            f"axe.run({{runOnly: {json.dumps(_AXE_TAGS)}}}).then(result => result.violations"
            ".filter(one => ['serious', 'critical'].includes(one.impact)).map(one =>"
            " `${one.id}: ${one.help}: ${one.nodes.map(node => node.target + ' ' +"
            " (node.any[0]?.message ?? '')).join('; ')}`))"
        )
        return list(found)


def _axe() -> str:
    # The package has the script; what else is in it needs another driver of browsers.
    spec = find_spec("axe_core_python")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
