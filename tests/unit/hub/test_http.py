"""HTTP of the hub port, with h11 and wsproto as the other side."""

from __future__ import annotations

from typing import Any

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto import WSConnection
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, TextMessage
from wsproto.events import Request as Upgrade

from pubsubd.hub.browsers import check_host, check_origin, cors_headers
from pubsubd.hub.frames import Closed, Send
from pubsubd.hub.http import MAX_HEADER, Event, HttpError, HttpReader, Request

MOST = 1_000  # bytes of a body, in these tests
CONTINUE = Send(b"HTTP/1.1 100 Continue\r\n\r\n")
LAST = Closed(1000, "", b"")

cuts = st.lists(st.integers(1, 300), max_size=20)


def ask(first: str, *headers: str, body: bytes = b"") -> bytes:
    """Return a request as it is written, with a Host unless ``headers`` have one."""
    lines = [first, *headers]
    if not any(line.lower().startswith("host:") for line in headers):
        lines.append("Host: localhost")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def read(stream: bytes, sizes: list[int], reader: HttpReader | None = None) -> list[Event]:
    """Return what a reader finds in a stream that comes in pieces of these sizes, then the rest."""
    reader = reader or HttpReader(MOST)
    found = []
    for size in sizes:
        found += reader.receive(stream[:size])
        stream = stream[size:]
    return found + reader.receive(stream)


def read_anyhow(stream: bytes) -> list[Event]:
    """Return what a reader finds, which must be the same whole, bytewise and in pieces."""
    whole = read(stream, [])
    for size in (1, 2, 37, 1_000):
        assert read(stream, [size] * (len(stream) // size)) == whole
    return whole


def answers(method: str, *replies: bytes) -> list[tuple[Any, bytes]]:
    """Return the answers to requests of one method and their bodies, as h11 reads them."""
    side = h11.Connection(h11.CLIENT)
    found = []
    for reply in replies:
        side.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        side.send(h11.EndOfMessage())
        side.receive_data(reply)
        response = side.next_event()
        assert isinstance(response, h11.Response)
        body = b""
        while isinstance(event := side.next_event(), h11.Data):
            body += event.data
        assert isinstance(event, h11.EndOfMessage)
        found.append((response, body))
        assert not side.trailing_data[0]
        if side.our_state is h11.DONE:
            side.start_next_cycle()
    return found


def header(response: h11.Response, name: bytes) -> bytes | None:
    return dict(response.headers).get(name)


# Requests


def test_a_request_is_told_with_all_that_matters() -> None:
    stream = ask(
        "POST /pubsub/caf%C3%A9%20a/publish?topics=a,b.*,c.%23&x=&x=1+2 HTTP/1.1",
        "Accept: a",
        "X-Name:  caf\xe9 ",
        "accept: b",
        "Content-Length: 4",
        body=b"body",
    )
    (request,) = read_anyhow(stream)
    assert request == Request(
        "POST",
        "/pubsub/café a/publish",
        {"topics": ["a,b.*,c.#"], "x": ["", "1 2"]},
        {"accept": "a, b", "x-name": "café", "content-length": "4", "host": "localhost"},
        b"body",
        False,
    )


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/", "/"),
        ("//x/y", "//x/y"),
        ("/a;b=c:d", "/a;b=c:d"),
        ("/100%", "/100%"),
        ("/%2F%0a", "//\n"),
        ("http://localhost/ws?x", "/ws"),
        ("*", "*"),
    ],
)
def test_a_path_is_decoded_once(target: str, path: str) -> None:
    (request,) = read_anyhow(ask(f"OPTIONS {target} HTTP/1.1"))
    assert isinstance(request, Request)
    assert request.path == path


requests = st.tuples(
    st.sampled_from(["GET", "POST", "HEAD"]),
    st.binary(max_size=60),
    st.sampled_from([0, 1, 3, 100]),  # size of chunks, 0 for a Content-Length
    st.booleans(),
)


@given(st.lists(requests, max_size=5), cuts)
def test_requests_may_come_one_behind_the_other_and_in_any_pieces(
    todo: list[tuple[str, bytes, int, bool]], sizes: list[int]
) -> None:
    stream = b""
    expected: list[Any] = []
    side = h11.Connection(h11.CLIENT)
    for number, (method, body, size, expects) in enumerate(todo):
        headers = [("Host", "x")] + [("Expect", "100-continue")] * expects
        headers.append(("Transfer-Encoding", "chunked") if size else ("Content-Length", len(body)))
        target = f"/{number}"
        headers = [(name, str(value)) for name, value in headers]
        stream += side.send(h11.Request(method=method, target=target, headers=headers))
        for at in range(0, len(body), size or MOST):
            stream += side.send(h11.Data(data=body[at : at + (size or MOST)]))
        stream += side.send(h11.EndOfMessage())
        side = h11.Connection(h11.CLIENT)
        if expects and (size or body):
            expected.append(CONTINUE)
        expected.append((method, target, body))
    reader = HttpReader(MOST)
    found = [
        (event.method, event.path, event.body) if isinstance(event, Request) else event
        for event in read(stream, sizes, reader)
    ]
    assert found == expected
    assert not reader.halfway


def test_empty_lines_before_a_request_are_ignored() -> None:
    get = ask("GET / HTTP/1.1")
    assert len(read_anyhow(b"\r\n\n" + get + b"\r\n" + get)) == 2


def test_a_reader_is_halfway_in_the_middle_of_a_request() -> None:
    stream = ask("POST / HTTP/1.1", "Content-Length: 2", body=b"ab")
    reader = HttpReader(MOST)
    states = []
    for at in range(len(stream)):
        reader.receive(stream[at : at + 1])
        states.append(reader.halfway)
    assert states == [True] * (len(stream) - 1) + [False]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_that_is_to_be_the_last_one_is(version: str) -> None:
    close = ["Connection: x, Close"] if version == "1.1" else []
    stream = ask(f"GET /a HTTP/{version}", *close) + ask("GET /b HTTP/1.1")
    request, last = read_anyhow(stream)
    assert (request.path, last) == ("/a", LAST)
    reader = HttpReader(MOST)
    reader.receive(stream)
    ((response, _),) = answers("GET", reader.respond(200))
    assert header(response, b"connection") == b"close"
    assert reader.ended


def test_an_old_client_is_not_told_to_continue() -> None:
    stream = ask("POST / HTTP/1.0", "Expect: 100-continue", "Content-Length: 1", body=b"x")
    request, last = read_anyhow(stream)
    assert (request.body, last) == (b"x", LAST)


# Faults

FAULTS = {
    "no HTTP": (400, b"hello there\r\n\r\n"),
    "TLS": (400, b"\x16\x03\x01\x02\0\x01" + bytes(200) + b"\r\n\r\n"),
    "no Host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two Hosts": (400, ask("GET / HTTP/1.1", "Host: a", "Host: b")),
    "a header without a colon": (400, ask("GET / HTTP/1.1", "evil<script>")),
    "a space before the colon": (400, ask("GET / HTTP/1.1", "Evil : x")),
    "a control character": (400, ask("GET / HTTP/1.1", "X: evil\0")),
    "two lengths": (400, ask("GET / HTTP/1.1", "Content-Length: 1", "Content-Length: 2")),
    "no length": (400, ask("GET / HTTP/1.1", "Content-Length: evil")),
    "length and chunks": (
        400,
        ask(
            "POST / HTTP/1.1", "Content-Length: 1", "Transfer-Encoding: chunked", body=b"0\r\n\r\n"
        ),
    ),
    "an unknown coding": (501, ask("POST / HTTP/1.1", "Transfer-Encoding: evil")),
    "a chunk that is none": (
        400,
        ask("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"evil\r\nx"),
    ),
    "a chunk that is longer": (
        400,
        ask("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"1\r\nxevil"),
    ),
    "HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a path that is not UTF-8": (400, ask("GET /evil%ff HTTP/1.1")),
    "a query that is not UTF-8": (400, ask("GET /?evil=%ff HTTP/1.1")),
    "a target that is no URL": (400, ask("GET http://[evil HTTP/1.1")),
    "a long target": (431, ask(f"GET /{'x' * MAX_HEADER} HTTP/1.1")),
    "many headers": (431, ask("GET / HTTP/1.1", *["X: " + "x" * 500] * 40)),
    "a header that never ends": (431, b"GET / HTTP/1.1\r\nX: " + b"x" * MAX_HEADER),
    "a body that is too large": (
        413,
        ask("POST / HTTP/1.1", f"Content-Length: {MOST + 1}", "Expect: 100-continue"),
    ),
    "chunks that are too many": (
        413,
        ask("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=b"5\r\nxxxxx\r\n" * 201),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_told_after_what_came_before_and_ends_the_connection(fault: str) -> None:
    status, stream = FAULTS[fault]
    stream = ask("GET /before HTTP/1.1") + stream
    before, error = read_anyhow(stream)
    assert isinstance(before, Request)
    assert isinstance(error, HttpError)
    assert (error.status, bool(error.text)) == (status, True)
    assert error.text.isprintable()
    assert "evil" not in error.text
    assert "bytearray" not in error.text
    reader = HttpReader(MOST)
    reader.receive(stream)
    assert reader.receive(ask("GET / HTTP/1.1")) == []
    assert not reader.halfway
    first, (last, body) = answers(
        "GET", reader.respond(200), reader.respond(status, b"{}", close=True)
    )
    assert header(first[0], b"connection") is None
    assert (last.status_code, header(last, b"connection"), body) == (status, b"close", b"{}")


@pytest.mark.parametrize("over", [0, 1])
def test_a_header_block_may_have_so_many_bytes_and_no_more(over: int) -> None:
    stream = ask("GET / HTTP/1.1", "X: ")
    stream = stream.replace(b"X: ", b"X: " + b"x" * (MAX_HEADER - len(stream) + over))
    assert len(stream) == MAX_HEADER + over
    (found,) = read_anyhow(stream)
    assert isinstance(found, HttpError) is bool(over)


@pytest.mark.parametrize("over", [0, 1])
def test_a_body_may_have_so_many_bytes_and_no_more(over: int) -> None:
    body = b"x" * (MOST + over)
    (whole,) = read_anyhow(ask("POST / HTTP/1.1", f"Content-Length: {len(body)}", body=body))
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    (chunked,) = read_anyhow(ask("POST / HTTP/1.1", "Transfer-Encoding: chunked", body=chunks))
    for found in (whole, chunked):
        assert isinstance(found, HttpError) if over else found.body == body


@given(st.lists(st.sampled_from([*FAULTS.values(), (0, ask("GET / HTTP/1.1"))])), st.data())
def test_mangled_requests_are_read_alike_wherever_they_are_cut(
    parts: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    stream = b"".join(part for _, part in parts)[:3_000]
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(stream)))
        stream = stream[:at] + data.draw(st.binary(max_size=3)) + stream[at + 1 :]
    found = read(stream, data.draw(cuts))
    assert found == read(stream, [])
    for event in found:
        assert not isinstance(event, HttpError) or event.text.isprintable()


# Answers


def test_an_answer_has_its_length_and_what_was_asked_for() -> None:
    reader = HttpReader(MOST)
    reader.receive(ask("GET / HTTP/1.1"))
    reply = reader.respond(200, b"page", content_type="text/html", headers=[("Allow", "GET")])
    ((response, body),) = answers("GET", reply)
    assert (response.status_code, response.reason, body) == (200, b"OK", b"page")
    assert response.headers == [
        (b"content-type", b"text/html"),
        (b"content-length", b"4"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"allow", b"GET"),
    ]
    assert not reader.ended


@pytest.mark.parametrize(("status", "length"), [(204, None), (304, b"4")])
def test_some_answers_have_no_body(status: int, length: bytes | None) -> None:
    reader = HttpReader(MOST)
    reader.receive(ask("GET / HTTP/1.1"))
    ((response, body),) = answers("GET", reader.respond(status, b"page"))
    assert (header(response, b"content-length"), body) == (length, b"")


def test_an_answer_to_head_is_the_one_to_get_without_its_body() -> None:
    reader = HttpReader(MOST)
    reader.receive(ask("HEAD / HTTP/1.1") + ask("GET / HTTP/1.1"))
    head, get = reader.respond(200, b"page"), reader.respond(200, b"page")
    assert head + b"page" == get
    assert answers("HEAD", head)[0][1] == b""


def test_answers_are_those_of_the_requests_in_their_order() -> None:
    reader = HttpReader(MOST)
    reader.receive(ask("GET / HTTP/1.1") + ask("HEAD / HTTP/1.1"))
    reader.receive(ask("GET / HTTP/1.1", "Connection: close"))
    replies = [reader.respond(200, b"x") for _ in range(3)]
    assert [reply.endswith(b"x") for reply in replies] == [True, False, True]
    assert [b"Connection: close" in reply for reply in replies] == [False, False, True]


def test_a_connection_that_has_asked_nothing_can_be_answered() -> None:
    ((response, body),) = answers("GET", HttpReader(0).respond(503, b"{}", close=True))
    assert (response.status_code, body) == (503, b"{}")


def test_an_answer_that_closes_is_the_last_one() -> None:
    reader = HttpReader(MOST)
    reader.receive(ask("GET / HTTP/1.1"))
    reader.respond(200, close=True)
    assert reader.ended
    assert reader.receive(ask("GET / HTTP/1.1")) == []


@pytest.mark.parametrize(
    ("name", "value"), [("X", "a\r\nb"), ("X\n", "a"), ("X:", "a"), ("X", "é")]
)
def test_a_header_that_would_be_two_is_not_written(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="not a header"):
        HttpReader(MOST).respond(200, headers=[(name, value)])


REASONS = {
    200: "OK",
    401: "Unauthorized",
    413: "Content Too Large",
    421: "Misdirected Request",
    422: "Unprocessable Content",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    505: "HTTP Version Not Supported",
    299: "",  # which nobody has named
}


@pytest.mark.parametrize("status", REASONS)
def test_a_status_is_sent_with_its_name_in_rfc_9110(status: int) -> None:
    ((response, _),) = answers("GET", HttpReader(0).respond(status))
    assert response.reason == REASONS[status].encode()


# Upgrades


def upgrade(*more: str, **changed: str | None) -> bytes:
    """Return a request for a WebSocket; ``changed`` headers are replaced, or left out if None."""
    headers = {
        "Connection": "keep-alive, Upgrade",
        "Upgrade": "websocket",
        "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "SGVsbG8sIHdvcmxkIQ==",
    } | changed
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
    return ask("GET /ws HTTP/1.1", *lines, *more)


def test_a_client_gets_its_websocket_with_the_frames_it_sent_behind_its_request() -> None:
    side = WSConnection(ConnectionType.CLIENT)
    stream = bytes(side.send(Upgrade(host="localhost", target="/ws?topics=a")))
    reader = HttpReader(MOST)
    (request,) = read(stream, [5, 5], reader)
    assert isinstance(request, Request)
    assert (request.path, request.query, request.upgrade) == ("/ws", {"topics": ["a"]}, True)
    side.receive_data(reader.accept())
    assert isinstance(next(side.events()), AcceptConnection)
    assert side.send(TextMessage("x"))


@given(cuts)
def test_what_comes_behind_an_upgrade_is_kept_and_not_read(sizes: list[int]) -> None:
    behind = ask("GET / HTTP/1.1") * 3
    reader = HttpReader(MOST)
    before, request = read(ask("GET /1 HTTP/1.1") + upgrade() + behind, sizes, reader)
    assert isinstance(before, Request)
    assert isinstance(request, Request)
    assert (before.upgrade, request.upgrade) == (False, True)
    assert not reader.halfway
    assert b"200 OK" in reader.respond(200)
    assert reader.accept().startswith(b"HTTP/1.1 101 ")
    assert reader.trailing == behind


@pytest.mark.parametrize(
    "stream",
    [
        upgrade(Connection="keep-alive"),
        upgrade(Connection=None),
        upgrade(Upgrade="h2c"),
        upgrade(Upgrade=None),
        upgrade(Sec_WebSocket_Version="8"),
        upgrade(Sec_WebSocket_Version=None),
        upgrade(Sec_WebSocket_Key=None),
        upgrade("Sec-WebSocket-Protocol: \xe9"),
        upgrade().replace(b"GET", b"POST"),
        upgrade().replace(b"GET", b"CONNECT"),
    ],
)
def test_an_upgrade_that_is_wrong_is_a_request_like_any_other(stream: bytes) -> None:
    first, second = read_anyhow(stream + ask("GET / HTTP/1.1"))
    assert isinstance(first, Request)
    assert not first.upgrade
    assert isinstance(second, Request)


def test_an_upgrade_may_have_a_subprotocol_and_extensions_that_are_not_taken_up() -> None:
    reader = HttpReader(MOST)
    offers = ["Sec-WebSocket-Protocol: a, b", "Sec-WebSocket-Extensions: permessage-deflate"]
    (request,) = reader.receive(upgrade(*offers))
    assert isinstance(request, Request)
    assert request.upgrade
    assert b"Sec-WebSocket-Extensions" not in reader.accept()


def test_an_upgrade_that_is_refused_ends_the_connection() -> None:
    reader = HttpReader(MOST)
    reader.receive(upgrade() + b"frames")
    ((response, body),) = answers("GET", reader.respond(403, b"{}"))
    assert (response.status_code, header(response, b"connection"), body) == (403, b"close", b"{}")
    assert reader.ended
    assert reader.receive(ask("GET / HTTP/1.1")) == []
    assert reader.trailing == b""


# Browsers

ALLOWED = frozenset(["hub.example.org", "Other.example:9015", ""])


@pytest.mark.parametrize(
    "host",
    [
        None,
        "localhost",
        "localhost:9015",
        "LOCALHOST.",
        "a.localhost:1",
        "127.0.0.1:9015",
        "10.1.2.3",
        "[::1]",
        "[fe80::1:2]:9015",
        "[fe80::1%eth0]:9015",
        "hub.example.org",
        "HUB.example.org.:80",
        "other.example:9015",
    ],
)
def test_a_host_that_is_nobody_elses_name_is_served(host: str | None) -> None:
    assert check_host(host, ALLOWED)


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":9015",
        "evil.example",
        "evil.example:9015",
        "other.example",
        "localhost.evil.example",
        "evillocalhost",
        "hub.example.org.evil.example",
        "127.0.0.1.evil.example",
        "127.1",
        "0x7f.0.0.1",
        "localhost:x",
        "x@localhost",
        "localhost/",
        "localhost, evil.example",
        "localhost\n",
        "[evil.example]",
        "[127.0.0.1",
        "::1",
        "[fe80::1%]",
        "[fe80::1%a]b]",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    assert not check_host(host, ALLOWED)


def test_any_name_is_served_where_all_are_allowed() -> None:
    assert check_host("any.example:9015", frozenset("*"))
    assert not check_host("x@localhost", frozenset("*"))


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "a.example"),
        ("http://a.example", "a.example"),
        ("https://A.example:9015", "a.example:9015"),
        ("http://a.example", "a.example:80"),
        ("http://a.example:80", "a.example"),
        ("https://a.example", "a.example:443"),
        ("http://[::1]:9015", "[::1]:9015"),
        ("https://friend.example", "a.example"),
        ("HTTPS://friend.example", "a.example"),
        ("chrome-extension://abcdef", "a.example"),
    ],
)
def test_a_page_of_this_host_or_of_a_friend_is_served(origin: str | None, host: str) -> None:
    friends = frozenset(["https://Friend.example/", "chrome-extension://abcdef"])
    assert check_origin(origin, host, friends)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "a.example",
        "http://",
        "http://a.example:9015",
        "http://a.example.evil.example",
        "http://evil.example",
        "https://a.example:80",
        "ws://a.example",
        "http://a.example, http://evil.example",
        "http://a.example\r\nX: y",
        "http://a.example/",
        "http://x@a.example",
    ],
)
def test_a_page_of_any_other_origin_is_refused(origin: str) -> None:
    assert not check_origin(origin, "a.example", frozenset())
    assert not check_origin(origin, "", frozenset())


def test_all_origins_may_be_allowed_but_null_by_its_name_only() -> None:
    anyone = frozenset(["*"])
    assert check_origin("https://evil.example", "a.example", anyone)
    assert not check_origin("null", "a.example", anyone)
    assert check_origin("null", "a.example", frozenset(["null"]))


@given(st.text(st.characters(codec="latin-1"), max_size=30).map("http://{}".format))
def test_an_origin_that_is_served_can_be_answered(origin: str) -> None:
    if check_origin(origin, "a.example", frozenset(["*"])):
        reply = HttpReader(MOST).respond(204, headers=cors_headers(origin))
        ((response, _),) = answers("OPTIONS", reply)
        assert header(response, b"access-control-allow-origin") == origin.encode()
        assert header(response, b"vary") == b"Origin"


def test_a_preflight_allows_what_the_port_understands() -> None:
    headers = dict(cors_headers("https://friend.example"))
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert "Content-Type" in headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in headers
