"""A headless Chromium that is told what to do through its debugging protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.daemons import DEADLINE, wait_until

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


class Browser:
    """One browser with one page; a context manager that ends it, by its own process group."""

    def __init__(self, directory: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.fail("chromium is missing: apt-get install chromium (scripts/setup-test-tools)")
        self._profile = directory / "profile"
        self._log = directory / "chromium.log"
        environment = os.environ | {"HOME": str(directory), "no_proxy": "127.0.0.1,localhost"}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self._calls = 0
        self._stack = contextlib.ExitStack()
        port_file = self._profile / "DevToolsActivePort"
        try:
            wait_until(
                lambda: self._ended() or (port_file.exists() and port_file.read_text()),
                "chromium's debugging port",
            )
            port = int(port_file.read_text().splitlines()[0])
            url = f"http://127.0.0.1:{port}/json/list"
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            pages: list[Any] = []

            def seen() -> bool:
                with opener.open(url, timeout=DEADLINE) as answer:
                    pages[:] = [one for one in json.load(answer) if one["type"] == "page"]
                return bool(pages)

            wait_until(seen, "chromium's page")
            self._socket = self._stack.enter_context(
                connect(
                    pages[0]["webSocketDebuggerUrl"],
                    max_size=None,
                    open_timeout=DEADLINE,
                    close_timeout=0,
                    proxy=None,
                )
            )
            self.call("Page.enable")
            self.call("Runtime.enable")
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

    def call(self, method: str, **params: Any) -> Any:
        """Call a method of the debugging protocol and return its result."""
        self._calls += 1
        self._socket.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=DEADLINE))
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer
                return answer["result"]

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
                pytest.fail(
                    f"waited in vain for {condition}: {self.run('document.body.innerText')}"
                )
            time.sleep(0.02)

    def picture(self, path: Path) -> None:
        """Write a PNG of the page."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
