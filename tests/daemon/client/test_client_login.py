"""Clients that say who they are: to the real daemon where one will do, else to a peer in memory."""

from __future__ import annotations

import base64
import pickle
import random
import re
import time
import traceback
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import jwt
import pytest
import trio
import trio.testing

import pubsubd.client.reconnect
from pubsubd.access.rules import AclRule
from pubsubd.access.users import hash_password, make_token
from pubsubd.client import (
    ConnectError,
    DaemonError,
    DisconnectedError,
    Login,
    LoginError,
    Message,
    TlsError,
    Token,
    open_client,
    open_hub_client,
)
from pubsubd.protocol.errors import PubsubdError
from pubsubd.protocol.limits import HubLimits, Limits
from pubsubd.settings.config import Config
from tests.daemons import DEADLINE
from tests.running import Ports, run_until_stopped, running

SECRET = "correct horse battery staple"
KEY = "0123456789abcdef0123456789abcdef"
ANN = Login("ann", SECRET)
HELLO = b"pub //pubsubd/auth 32 ann %b\n" % SECRET.encode()
WELCOME = b"pub //pubsubd/auth 6 ok ann\n"


@pytest.fixture(autouse=True)
def _quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hashes of passwords cost little: that a check takes its time is tested elsewhere."""
    monkeypatch.setattr("pubsubd.access.users.LOG2_N", 4)


class Peer:
    """The other end of a client's connections, in memory: each connection is a new stream.

    Attributes:
        answers: what is said to each connection, one after another, then nothing.
        times: of the attempts to connect.
    """

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.streams: list[trio.StapledStream[Any, Any]] = []
        self.times: list[float] = []

    async def connect(self) -> trio.abc.Stream:
        self.times.append(trio.current_time())
        ours, theirs = trio.testing.memory_stream_pair()
        self.streams.append(ours)
        if self.answers:
            await ours.send_all(self.answers.pop(0))
        return theirs

    async def read(self, size: int) -> bytes:
        """Return what the client sends on its present connection, up to so many bytes."""
        heard = b""
        while len(heard) < size:
            part = await self.streams[-1].receive_some()
            assert part, heard
            heard += bytes(part)
        return heard

    async def say(self, data: bytes) -> None:
        await self.streams[-1].send_all(data)


def fault(code: str, text: str = "because") -> bytes:
    said = f"{code} {text}".encode()
    return b"pub //pubsubd/error %d %b\n" % (len(said), said)


def config(directory: Path, *rules: AclRule, **more: Any) -> Config:
    """Return the settings of a daemon with the users that are there, else with ann."""
    users = directory / "users"
    if not users.exists():
        write_users(users, "ann")
    return Config(
        **{"port": 0, "hub_port": 0} | more,
        users_file=str(users),
        acl=rules,
        hub_limits=HubLimits(rate=0.0),
    )


def write_users(path: Path, name: str, *lines: str) -> None:
    path.write_text("".join(f"{name}:{one}\n" for one in (hash_password(SECRET), *lines)))
    path.chmod(0o600)


def serving(directory: Path, *rules: AclRule, **more: Any) -> AbstractAsyncContextManager[Ports]:
    return running(config(directory, *rules, **more))


@pytest.fixture
def token(tmp_path: Path) -> Token:
    """A token of ann's, who has a password as well."""
    text, line = make_token()
    write_users(tmp_path / "users", "ann", line)
    return Token(text)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect again without waiting."""
    monkeypatch.setattr(pubsubd.client.reconnect, "BACKOFF_MAX", 0.0)


async def refused(call: Awaitable[Any]) -> DaemonError:
    with pytest.raises(DaemonError) as caught, trio.fail_after(DEADLINE):
        await call
    return caught.value


async def never(open_one: Any, **more: Any) -> PubsubdError:
    """Return why there is no client."""
    with pytest.raises(PubsubdError) as caught:
        async with open_one(**more):
            raise AssertionError
    return caught.value


# What is said


async def test_the_login_is_the_first_thing_said_and_nothing_else_until_it_is_taken(
    at_once: None,
) -> None:
    peer = Peer()
    opened = trio.Event()

    async def use() -> None:
        async with open_client(connect=peer.connect, login=ANN) as client:
            opened.set()
            await client.subscribe("chat/")
            await client.publish("n", b"x")
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(use)
        await trio.testing.wait_all_tasks_blocked()
        assert await peer.read(1) == HELLO
        await trio.testing.wait_all_tasks_blocked()
        assert not opened.is_set()
        await peer.say(WELCOME)
        heard = await peer.read(1)
        assert heard.startswith(b"sub chat/\n")
        await peer.streams[-1].aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await peer.read(1) == HELLO
        await trio.testing.wait_all_tasks_blocked()
        await peer.say(WELCOME)
        assert (await peer.read(1)).startswith(b"sub chat/\n")
        nursery.cancel_scope.cancel()
    assert len(peer.streams) == 2


async def test_a_token_is_one_word() -> None:
    peer = Peer(b"pub //pubsubd/auth 6 ok bob\n")
    async with open_client(connect=peer.connect, login=Token("abc")):
        pass
    assert await peer.read(1) == b"pub //pubsubd/auth 3 abc\n"


async def test_who_needs_no_login_says_nothing_of_it() -> None:
    peer = Peer()
    async with open_client(connect=peer.connect):
        await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(AssertionError, match="b''"):
        await peer.read(1)


# With the real daemon


async def test_a_password_and_a_token_let_a_client_in(tmp_path: Path, token: Token) -> None:
    async with (
        serving(tmp_path) as found,
        open_client(port=found["line"], login=ANN) as ann,
        open_client(port=found["line"], login=token) as bob,
    ):
        await ann.subscribe("chat/")
        await bob.publish("chat/x", b"hello")
        assert await anext(ann) == Message("chat/x", b"hello")


@pytest.mark.parametrize("login", [Login("ann", "wrong horse"), Login("bob", SECRET), Token("no")])
async def test_a_login_that_is_not_good_is_told_at_once(
    login: Login | Token, tmp_path: Path
) -> None:
    async with serving(tmp_path) as found:
        error = await never(open_client, port=found["line"], login=login)
        assert isinstance(error, LoginError)
        assert error.code == "login-failed"
        error = await never(open_hub_client, port=found["hub"], login=login)
        assert isinstance(error, LoginError)
        assert error.code == "unauthorized"


async def test_too_many_failures_throttle_an_address(tmp_path: Path) -> None:
    async def outcome(open_one: Any, port: int, login: Login | Token) -> str:
        try:
            async with open_one(port=port, login=login):
                return "let in"
        except LoginError as error:
            return error.code

    tries = 0
    async with serving(tmp_path) as found:
        for open_one, port in ((open_client, found["line"]), (open_hub_client, found["hub"])):
            with trio.fail_after(DEADLINE):
                while True:  # a failure is forgotten every six seconds
                    while await outcome(open_client, found["line"], Token("no")) == "login-failed":
                        tries += 1
                    if await outcome(open_one, port, ANN) == "login-throttled":
                        break
    assert tries >= 10


async def test_what_needs_a_login_is_refused_where_it_is_asked_for(tmp_path: Path) -> None:
    async with (
        serving(tmp_path) as found,
        open_client(port=found["line"]) as client,
    ):
        assert (await refused(client.subscribe("a", "b"))).code == "login-required"
        assert client.statistics().subscriptions == 0
        assert (await refused(client.request("//pubsubd/stats"))).code == "login-required"
        await client.publish("n", b"x")
        assert (await refused(client.flush())).code == "login-required"
        assert await client.ping() > 0


async def test_what_is_not_allowed_is_raised_where_it_is_asked_for(tmp_path: Path) -> None:
    rule = AclRule(("ann",), ("chat/",), ("chat/",))
    async with (
        serving(tmp_path, rule) as found,
        open_client(port=found["line"], login=ANN) as client,
    ):
        await client.subscribe("chat/")
        for request in ("//pubsubd/stats", "//pubsubd/explain"):
            error = await refused(client.request(request, b"x"))
            assert error.code == "not-allowed"
            assert request in error.text
        await client.flush()
        await client.publish("chat/x", b"1")
        await client.publish("other", b"2")
        await client.publish("chat/x", b"3")
        error = await refused(client.flush())
        assert error.code == "not-allowed"
        assert "other" in error.text
        assert [message.data for message in await client.receive()] == [b"1", b"3"]
        await client.flush()


async def test_each_of_many_requests_that_are_not_allowed_ends(tmp_path: Path) -> None:
    """Though the daemon does not tell each of so many; the rest it tells in one line, later."""
    codes: list[str] = []
    told = 0

    def hear(error: DaemonError) -> None:
        nonlocal told
        assert error.code == "not-allowed"
        if error.text.startswith('"//pubsubd/stats"'):
            told += 1 + int("0" + re.sub(r".* and (\d+) more:.*|.*", r"\1", error.text))

    async def ask() -> None:
        error = await refused(client.request("//pubsubd/stats"))
        codes.append(error.code)
        hear(error)

    rule = AclRule(("ann",), ("chat/",), ("chat/",))
    async with (
        serving(tmp_path, rule) as found,
        open_client(port=found["line"], login=ANN) as client,
    ):
        async with trio.open_nursery() as nursery:
            for _ in range(500):
                nursery.start_soon(ask)
        with trio.fail_after(DEADLINE):
            while told < 500:
                try:
                    await client.flush()
                except DaemonError as error:
                    hear(error)
        await client.publish("chat/x", b"1")
    assert codes == ["not-allowed"] * 500
    assert told == 500


async def test_a_client_that_ought_to_have_logged_in_ends(tmp_path: Path, at_once: None) -> None:
    limits = Limits(auth_timeout=0.01)
    reasons: list[PubsubdError] = []
    async with serving(tmp_path, limits=limits) as found:
        with pytest.raises(LoginError, match="login-timeout"):  # noqa: PT012
            async with open_client(port=found["line"], on_disconnect=reasons.append) as client:
                with trio.fail_after(DEADLINE):
                    await anext(client)
    assert len(reasons) == 1


async def test_a_request_to_log_in_is_one_like_others(tmp_path: Path) -> None:
    async with serving(tmp_path) as found, open_client(port=found["line"]) as client:
        assert (await refused(client.request("//pubsubd/auth", "ann no"))).code == "login-failed"
        assert await client.request("//pubsubd/auth", f"ann {SECRET}") == b"ok ann"
        await client.subscribe("n")


# Refusals


@pytest.mark.parametrize(
    "code",
    ["login-failed", "login-throttled", "too-many-failures", "login-timeout", "unknown-request"],
)
async def test_each_refusal_of_a_login_is_a_login_error(code: str) -> None:
    peer = Peer(fault(code))
    error = await never(open_client, connect=peer.connect, login=ANN)
    assert isinstance(error, LoginError)
    assert (error.code, error.text) == (code, "because")
    assert len(peer.times) == 1


async def test_other_reasons_to_refuse_are_what_they_are() -> None:
    for answer, kind, text in (
        (fault("shutting-down"), DaemonError, "shutting-down: because"),
        (WELCOME + fault("shutting-down"), DaemonError, "shutting-down: because"),
        (fault("tls-required"), TlsError, "it speaks TLS, and we do not"),
        (b"\x15\x03\x01\x00\x02\x02\x46", TlsError, "it speaks TLS, and we do not"),
        (b"220 smtp\r\n", DisconnectedError, "the peer does not speak this protocol"),
    ):
        error = await never(open_client, connect=Peer(answer).connect, login=ANN)
        assert type(error) is kind
        assert text in str(error)


async def test_an_error_that_has_come_in_part_is_waited_for() -> None:
    said = fault("shutting-down")
    for at in range(1, len(said)):
        peer = Peer(WELCOME + said[:at])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(say_later, peer, said[at:])
            error = await never(open_client, connect=peer.connect, login=ANN)
        assert str(error) == "shutting-down: because"


async def say_later(peer: Peer, data: bytes) -> None:
    await trio.testing.wait_all_tasks_blocked()
    await peer.say(data)


async def test_a_daemon_that_does_not_answer_is_given_up(
    autojump_clock: trio.testing.MockClock,
) -> None:
    peer = Peer()
    error = await never(open_client, connect=peer.connect, login=ANN)
    assert str(error).endswith("no answer in 60 s")
    assert isinstance(error, ConnectError)
    assert not isinstance(error, TlsError)
    assert trio.current_time() == 60
    assert await peer.read(1) == HELLO
    assert await peer.streams[0].receive_some() == b""  # it was closed


async def test_a_daemon_that_closes_is_no_connection() -> None:
    async def connect() -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        await ours.send_stream.aclose()
        return theirs

    error = await never(open_client, connect=connect, login=ANN)
    assert str(error).endswith("the daemon closed the connection")
    assert isinstance(error, ConnectError)


# Reconnecting


async def use_again(peer: Peer, *answers: bytes) -> None:
    """Open a client, break its connection, and publish once there is another one; break that."""
    peer.answers = [WELCOME, *answers]
    async with open_client(connect=peer.connect, login=ANN) as client:
        await peer.streams[-1].aclose()
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1000):
            await client.publish("n", b"x")
        assert not peer.answers
        assert await peer.read(len(HELLO) + 1) == HELLO + b"pub n 1 x\n"
        await peer.streams[-1].aclose()


async def test_a_login_that_fails_later_ends_a_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for code in ("login-failed", "too-many-failures"):
        peer = Peer()
        with pytest.raises(LoginError, match=code):
            await use_again(peer, fault(code))
        assert len(peer.times) == 2


async def test_what_passes_is_tried_again_with_growing_waits(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "uniform", lambda _least, most: most)
    peer = Peer()
    passing = [fault("login-throttled"), fault("login-timeout"), fault("shutting-down")]
    with pytest.raises(DisconnectedError):  # nobody has confirmed what was published
        await use_again(peer, *passing, WELCOME)
    waits = [later - sooner for sooner, later in zip(peer.times, peer.times[1:], strict=False)]
    assert waits[:4] == [0.5, 1, 2, 4]


@pytest.mark.parametrize("kind", ["line", "hub"])
async def test_a_client_whose_user_is_gone_ends(kind: str, tmp_path: Path, at_once: None) -> None:
    open_one: Any = open_client if kind == "line" else open_hub_client
    async with trio.open_nursery() as nursery:
        ports, stop = await nursery.start(run_until_stopped, config(tmp_path))
        port = ports[kind]
        with pytest.raises(LoginError):  # noqa: PT012
            async with open_one(port=port, login=ANN) as client:
                await client.subscribe("n")
                await stop()
                write_users(tmp_path / "users", "bob")
                where = {"port" if kind == "line" else "hub_port": port}
                _, stop = await nursery.start(run_until_stopped, config(tmp_path, **where))
                with trio.fail_after(DEADLINE):
                    while True:
                        await anext(client)
        await stop()


# The hub port


async def test_a_password_and_a_token_let_a_hub_client_in(tmp_path: Path, token: Token) -> None:
    async with (
        serving(tmp_path) as found,
        open_hub_client(port=found["hub"], login=ANN) as ann,
        open_hub_client(port=found["hub"], login=token) as bob,
        open_hub_client(port=found["hub"], token=token.text) as carol,
    ):
        await ann.subscribe("chat/x")
        for client in (bob, carol):
            await client.publish("chat/x", "t", "hello")
            assert (await anext(ann)).data == "hello"


async def test_a_hub_client_without_a_login_is_told_that_it_needs_one(tmp_path: Path) -> None:
    async with serving(tmp_path) as found:
        error = await never(open_hub_client, port=found["hub"])
        assert isinstance(error, LoginError)
        assert error.code == "unauthorized"


async def test_a_signed_token_is_renewed_for_later_connections(
    tmp_path: Path, at_once: None
) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    now = int(time.time()) + 100
    text = jwt.encode({"sub": "python/ann", "iss": "signal-hub", "exp": now}, KEY, "HS256")
    async with (
        serving(tmp_path, hub_auth=str(key)) as found,
        open_hub_client(port=found["hub"], login=Token(text)) as client,
    ):
        await client.refresh_token()
        shown = client.token
        assert shown not in (None, text)
        async with open_hub_client(port=found["hub"], login=Token(shown)) as other:
            await other.publish("n", "t")


async def test_what_a_hub_client_may_not_do_is_refused_where_it_is_asked_for(
    tmp_path: Path,
) -> None:
    rule = AclRule(("ann",), ("chat/",), ("chat/",))
    async with (
        serving(tmp_path, rule) as found,
        open_hub_client(port=found["hub"], login=ANN) as client,
    ):
        await refused(client.publish("other", "t"))
        await refused(client.subscribe("other"))
        await client.subscribe("chat/x")
        assert await client.publish("chat/x", "t") == 1


def test_what_is_sent_in_the_header() -> None:
    assert ANN.header() == b"Basic " + base64.b64encode(b"ann:" + SECRET.encode())
    assert Token("abc").header() == b"Bearer abc"


# Secrets


async def test_no_text_tells_a_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wrong = Login("ann", "hush-hush")
    texts = [repr(wrong), str(wrong), repr(Token("hush-hush"))]
    async with serving(tmp_path) as found:
        for open_one, port in ((open_client, found["line"]), (open_hub_client, found["hub"])):
            error = await never(open_one, port=port, login=wrong)
            told = traceback.TracebackException.from_exception(error, capture_locals=False)
            texts += [repr(error), str(error), *told.format(), repr(error.args)]
    texts.append(caplog.text)
    assert not [text for text in texts if "hush" in text]
    assert repr(ANN) == "Login(name='ann')"
    assert repr(Token("abc")) == "Token()"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Login, ("", "hush-hush")),
        (Login, ("a b", "hush-hush")),
        (Login, ("a:b", "hush-hush")),
        (Login, ("a\n", "hush-hush")),
        (Login, ("ann", "")),
        (Login, ("ann", "hush\nhush")),
        (Login, ("ann", "hush\udcff")),
        (Token, ("",)),
        (Token, ("hush hush",)),
        (Token, ("hush\u00e9",)),
        (Token, ("hush\x00",)),
    ],
)
def test_what_cannot_be_sent_is_refused_and_not_quoted(make: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"to log in with is|a token is not") as caught:
        make(*words)
    assert "hush" not in "".join(traceback.format_exception(caught.value))


def test_logins_are_values() -> None:
    assert Login("ann", "x") == Login("ann", "x") != Login("ann", "y")
    assert pickle.loads(pickle.dumps(ANN)) == ANN
