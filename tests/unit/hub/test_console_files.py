"""The files of the console, as they are served: which, as what, and what a browser may do there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from pubsubd.hub import console
from tests.daemons import ROOT
from tests.hubs import Room

FOLDER = ROOT / "pubsubd" / "hub" / "console"
MOST = 100_000


@pytest.fixture
def get() -> Callable[..., tuple[int, dict[str, str], bytes]]:
    room = Room()

    def get_one(
        path: str, *, method: str = "GET", host: str = "localhost:9015"
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of one request."""
        room.join(path)
        room.say_raw(path, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head, _, body = room.heard[path].partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(status.split()[1]), headers, body

    return get_one


@pytest.mark.parametrize(
    ("path", "media_type", "file"),
    [
        ("/", "text/html; charset=utf-8", "index.html"),
        ("/console/main.js", "text/javascript; charset=utf-8", "main.js"),
        ("/console/style.css?v=1", "text/css; charset=utf-8", "style.css"),
        ("/console/icon.svg", "image/svg+xml", "icon.svg"),
    ],
)
def test_each_file_is_served_as_what_it_is(
    get: Callable[..., tuple[int, dict[str, str], bytes]], path: str, media_type: str, file: str
) -> None:
    status, headers, body = get(path)
    assert (status, headers["content-type"], body) == (
        200,
        media_type,
        (FOLDER / file).read_bytes(),
    )
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/",
        "/console/index.html",
        "/console/../console.py",
        "/console/..%2fconsole.py",
        "/console/%2e%2e/web.py",
        "/console//main.js",
        "/console/main.js/",
        "/console/MAIN.JS",
        "/console/main.js%00.css",
        "/main.js",
    ],
)
def test_nothing_else_is_served(
    get: Callable[..., tuple[int, dict[str, str], bytes]], path: str
) -> None:
    assert get(path)[0] == 404


def test_a_head_has_no_body_and_other_methods_are_refused(
    get: Callable[..., tuple[int, dict[str, str], bytes]],
) -> None:
    status, headers, body = get("/console/main.js", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) == (FOLDER / "main.js").stat().st_size
    assert get("/", method="POST")[0] == 405


def test_the_policy_allows_what_this_port_serves_and_nothing_else(
    get: Callable[..., tuple[int, dict[str, str], bytes]],
) -> None:
    policy = get("/")[1]["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self' ws://localhost:9015 wss://localhost:9015;" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "data:" not in policy
    numeric = get("/", host="[::1]:9015")[1]["content-security-policy"]
    assert "connect-src 'self';" in numeric


def test_the_console_loads_nothing_from_elsewhere() -> None:
    for file in FOLDER.iterdir():
        text = file.read_text(encoding="utf-8")
        found = set(re.findall(r"""https?://[^\s"']+""", text))
        assert found <= {"http://www.w3.org/2000/svg"}, file
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)


def test_the_console_is_small_and_whole() -> None:
    served = console.files()
    assert sum(len(file.content) for file in served.values()) < MOST
    assert len(served) == len(list(FOLDER.iterdir()))
    for file in FOLDER.glob("*.js"):
        text = file.read_text(encoding="utf-8")
        for name in re.findall(r'from "\./([\w-]+\.js)"', text):
            assert f"/console/{name}" in served
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    for path in re.findall(r'(?:src|href)="(console/[^"]+)"', index):
        assert f"/{path}" in served


def test_it_is_told_where_the_line_port_is_and_whether_there_are_logins(
    get: Callable[..., tuple[int, dict[str, str], bytes]],
) -> None:
    about = json.loads(get("/console/about.json")[2])
    assert set(about) == {"version", "line", "logins"}
    assert about["logins"] is False
