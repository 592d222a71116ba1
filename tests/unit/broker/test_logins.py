"""Logins and rights on the line port, without sockets."""

from __future__ import annotations

import json
import weakref
from dataclasses import replace

import pytest

from pubsubd.access import throttle
from pubsubd.access.identity import AuthError, Identity
from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users, make_token
from pubsubd.broker import logins as access_module
from pubsubd.broker.broker import Broker
from pubsubd.broker.listener_state import ListenerState
from pubsubd.broker.logins import origin
from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Turn
from pubsubd.protocol.limits import READ_SIZE, Limits
from pubsubd.protocol.wire import Decoder, frame
from pubsubd.routing.outbox import Pieces
from pubsubd.transport.line import LineProtocol
from tests.footprint import reached
from tests.rights import PASSWORD, rules_in, say, users, work

TOKEN, TOKEN_LINE = make_token()
AUTH = "//pubsubd/auth"


class Hall:
    """A broker whose peers may have to log in, on a clock of the test.

    Attributes:
        now: seconds, of both clocks.
        ended: name -> code, of those that were ended from outside of their input.
    """

    def __init__(self, *, login: bool = True, limits: Limits | None = None) -> None:
        self.now = 1_000.0
        self.broker = Broker(limits or Limits(), clock=lambda: self.now)
        self.broker.wall = lambda: self.now
        self.broker.delivery.turn = Turn(lambda: self.now)
        self.listener = ListenerState("line", limits or Limits(), login=login)
        self.talks: dict[str, LineProtocol] = {}
        self.ended: dict[str, str] = {}
        self._heard: dict[str, bytes] = {}

    def join(self, name: str, label: str = "127.0.0.1:1") -> Peer:
        self._heard[name] = b""

        def send(data: bytes | Pieces) -> None:
            self._heard[name] += data.whole() if isinstance(data, Pieces) else data

        def end(code: str, text: str) -> None:
            assert text
            self.ended[name] = code

        talk = self.talks[name] = LineProtocol(
            self.broker, label, send, end, listener=self.listener
        )
        return talk.peer

    def peer(self, name: str) -> Peer:
        return self.talks[name].peer

    def say(self, name: str, data: bytes) -> None:
        say(self.broker, self.peer(name), data)

    def hears(self, name: str) -> list[tuple[str, str]]:
        """Return what a peer heard since the last call: names and data, an error as its code."""
        heard, self._heard[name] = self._heard[name], b""
        return [
            ("error", data.decode().split(" ")[0])
            if topic == b"//pubsubd/error"
            else (topic.decode(), data.decode("utf-8", "replace"))
            for topic, data in Decoder(1 << 30).feed(heard)
        ]

    def raw(self, name: str) -> bytes:
        heard, self._heard[name] = self._heard[name], b""
        return heard

    def ask(self, name: str, data: bytes) -> list[tuple[str, str]]:
        self.say(name, data)
        return self.hears(name)

    def log_in(self, name: str, words: str) -> list[tuple[str, str]]:
        return self.ask(name, frame(AUTH.encode(), words.encode()))

    def overdue(self, name: str) -> str | None:
        """Look, as a session does each second, whether a peer is overdue; return the reason."""
        found = self.talks[name].overdue(self.now, self.now)
        return None if found is None else found.code


@pytest.fixture
def hall() -> Hall:
    hall = Hall()
    rules_in(hall.broker, ann=PASSWORD, bob="another one", tom=TOKEN_LINE)
    hall.join("ann")
    return hall


# Logging in


def test_a_name_and_a_password_let_in(hall: Hall) -> None:
    assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]
    assert hall.peer("ann").identity == "ann"
    assert hall.ask("ann", b"sub a\npub a 1 x\n") == [("a", "x")]


def test_a_token_lets_in(hall: Hall) -> None:
    assert hall.log_in("ann", TOKEN) == [(AUTH, "ok tom")]
    assert hall.peer("ann").identity == "tom"


def test_a_token_serves_as_the_password_of_its_user_and_of_no_other(hall: Hall) -> None:
    assert hall.log_in("ann", f"bob {TOKEN}") == [("error", "login-failed")]
    assert hall.log_in("ann", f"tom {TOKEN}") == [(AUTH, "ok tom")]


class Authority:
    """Takes tokens that say until when they hold, and whose they are."""

    def verify(self, token: str, now: float) -> Identity:
        until, _, actor = token.partition("/")
        if not until.isdigit() or int(until) <= now:
            raise AuthError("unauthorized", "it has expired")
        return Identity(actor or None, None, float(until))

    def refresh(self, token: str, now: float) -> tuple[str, int]:
        raise NotImplementedError


def test_a_signed_token_lets_in_until_it_expires() -> None:
    hall = Hall()
    hall.broker.access.replace(users=Users(), acl=Acl(), authority=Authority())
    hall.join("ann")
    assert hall.log_in("ann", "1050/@(browser/ann)") == [(AUTH, "ok browser/ann")]
    assert hall.overdue("ann") is None
    hall.now = 1_051
    assert hall.overdue("ann") is None  # it may log in again
    assert hall.log_in("ann", "900/browser/ann") == [("error", "login-failed")]
    assert hall.log_in("ann", "1100/browser/ann") == [(AUTH, "ok browser/ann")]
    hall.now = 1_070
    assert hall.overdue("ann") is None
    hall.now = 1_101
    assert hall.overdue("ann") is None
    hall.now = 1_112
    assert hall.overdue("ann") == "login-timeout"


def test_a_signed_token_that_names_nobody_lets_nobody_in_particular_in() -> None:
    hall = Hall()
    rules = [AclRule(("*",), ("a",), ("a",)), AclRule(("ann",), ("#",), ("#",))]
    hall.broker.access.replace(users=Users(), acl=Acl(rules), authority=Authority())
    hall.join("ann")
    assert hall.log_in("ann", "2000") == [(AUTH, "ok ")]
    assert hall.ask("ann", b"sub a\npub a 1 x\npub b 1 x\n") == [
        ("a", "x"),
        ("error", "not-allowed"),
    ]


def test_rights_end_with_the_token_where_no_login_is_asked_for() -> None:
    hall = Hall(login=False)
    rules = [AclRule(("ann",), ("#",), ("#",))]
    hall.broker.access.replace(users=Users(), acl=Acl(rules), authority=Authority())
    hall.join("ann")
    hall.log_in("ann", "1050/ann")
    assert hall.ask("ann", b"sub a\npub a 1 x\n") == [("a", "x")]
    hall.now = 1_051
    assert hall.overdue("ann") is None
    assert hall.peer("ann").identity is None
    assert hall.ask("ann", b"pub a 1 x\n") == [("error", "not-allowed")]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "ann",
        "ann ",
        "ann wrong one",
        "zoe " + PASSWORD,
        " " + PASSWORD,
        "ann  " + PASSWORD,
        "ann\n" + PASSWORD,
        "x" * 16_000,
        "ann " + "x" * 16_000,
    ],
)
def test_anything_else_does_not(hall: Hall, words: str) -> None:
    assert hall.log_in("ann", words) == [("error", "login-failed")]
    assert hall.peer("ann").identity is None


def test_bytes_that_are_no_text_do_not_either(hall: Hall) -> None:
    for data in (b"\xff", b"ann \xff\xfe", b"\xff " + PASSWORD.encode()):
        hall.peer("ann").failures = 0
        assert hall.ask("ann", frame(AUTH.encode(), data)) == [("error", "login-failed")]


def test_the_error_says_neither_who_there_is_nor_what_was_said(hall: Hall) -> None:
    told = set()
    for words in (b"ann secret-one", b"zoe secret-two", b"secret-three"):
        hall.peer("ann").failures = 0
        hall.say("ann", frame(AUTH.encode(), words))
        told.add(hall.raw("ann"))
    assert len(told) == 1
    assert b"secret" not in told.pop()


def test_what_follows_in_the_same_read_waits_for_the_password(hall: Hall) -> None:
    peer = hall.peer("ann")
    words = f"ann {PASSWORD}".encode()
    speech = b"pub a 1 0\n" + frame(AUTH.encode(), words) + b"sub a\npub a 1 x\npub b 1 y\nsub"
    assert hall.broker.receive(peer, speech)
    assert hall.hears("ann") == [("error", "login-required")]
    assert peer.job is not None
    work(peer)
    assert hall.hears("ann") == [(AUTH, "ok ann")]
    assert not hall.broker.receive(peer, b"")
    assert hall.hears("ann") == [("a", "x")]
    assert peer.halfway


def test_however_the_input_is_cut_the_outcome_is_the_same() -> None:
    words = f"ann {PASSWORD}".encode()
    speech = (
        b"sub x\npub x 1 0\n"
        + frame(AUTH.encode(), TOKEN.encode())
        + b"sub a\npub a 1 1\npub a 1 2\n"
        + frame(AUTH.encode(), words)
        + b"pub a 1 3\nPUB a 1 4\npub b 1 5\n"
        + frame(AUTH.encode(), b"ann x")
        + b"pub a 1 6\n"
    )
    outcomes = set()
    for step in (1, 2, 7, 50, 1_000):
        hall = Hall()
        rule = AclRule(("ann", "tom"), ("a",), ("#",))
        rules_in(hall.broker, rule, ann=PASSWORD, tom=TOKEN_LINE)
        hall.join("ann")
        for at in range(0, len(speech), step):
            hall.say("ann", speech[at : at + step])
        heard = hall.hears("ann")
        required = ("error", "login-required")
        assert set(heard[: heard.index((AUTH, "ok tom"))]) == {required}
        outcomes.add(tuple(one for one in heard if one != required))
    assert outcomes == {
        (
            (AUTH, "ok tom"),
            *(("a", number) for number in "12"),
            (AUTH, "ok ann"),
            *(("a", number) for number in "34"),
            ("error", "not-allowed"),
            ("error", "login-failed"),
            ("a", "6"),
        )
    }


def test_a_password_that_was_good_is_not_stretched_again(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall.log_in("ann", f"ann {PASSWORD}")
    monkeypatch.setattr(Users, "verify", None)
    for number in range(100):
        hall.join(f"again{number}")
        assert hall.log_in(f"again{number}", f"ann {PASSWORD}") == [(AUTH, "ok ann")]


def test_who_has_left_while_its_password_was_checked_is_not_let_in(hall: Hall) -> None:
    peer = hall.peer("ann")
    hall.broker.receive(peer, frame(AUTH.encode(), f"ann {PASSWORD}".encode()))
    peer.ending = access_module.ProtocolError("shutting-down", "")
    work(peer)
    assert peer.identity is None
    assert hall.hears("ann") == []


def test_a_user_who_was_removed_while_the_password_was_checked_is_not_let_in(hall: Hall) -> None:
    peer = hall.peer("ann")
    hall.broker.receive(peer, frame(AUTH.encode(), f"ann {PASSWORD}".encode()))
    rules_in(hall.broker, bob="another one")
    work(peer)
    assert hall.hears("ann") == [("error", "login-failed")]
    assert peer.identity is None


def test_one_may_log_in_again_as_somebody_else(hall: Hall) -> None:
    rules = [AclRule(("ann",), ("a",), ("#",)), AclRule(("tom",), ("t",), ("t",))]
    rules_in(hall.broker, *rules, ann=PASSWORD, tom=TOKEN_LINE)
    hall.log_in("ann", f"ann {PASSWORD}")
    assert hall.ask("ann", b"sub a\nsub t\npub a 1 x\npub t 1 x\n") == [
        ("a", "x"),
        ("error", "not-allowed"),
    ]
    hall.log_in("ann", TOKEN)
    assert hall.ask("ann", b"pub a 1 x\npub t 1 x\n") == [("t", "x"), ("error", "not-allowed")]
    assert hall.log_in("ann", "tom x") == [("error", "login-failed")]
    assert hall.peer("ann").identity == "tom"


# Failures


def test_the_third_failure_ends_the_connection(hall: Hall) -> None:
    for _ in range(2):
        assert hall.log_in("ann", "ann x") == [("error", "login-failed")]
    speech = frame(AUTH.encode(), b"ann x") + frame(AUTH.encode(), TOKEN.encode()) + b"sub a\n"
    assert hall.ask("ann", speech) == [("error", "too-many-failures")]
    ending = hall.peer("ann").ending
    assert ending is not None
    assert ending.code == "too-many-failures"
    assert hall.peer("ann").identity is None
    assert not hall.peer("ann").halfway
    assert hall.broker.counters.errors["login-failed"] == 3
    assert hall.broker.counters.errors["too-many-failures"] == 1


def fail(hall: Hall, count: int, label: str = "192.0.2.1:1") -> list[str]:
    """Fail to log in so often, on connections of their own."""
    codes = []
    for _ in range(count):
        hall.join("eve", label)
        ((_, code),) = hall.log_in("eve", "ann wrong one")
        codes.append(code)
    return codes


def test_ten_failures_a_minute_are_checked_of_one_address(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fail(hall, 10) == ["login-failed"] * 10
    monkeypatch.setattr(Users, "verify", None)
    assert fail(hall, 5) == ["login-throttled"] * 5
    hall.join("eve", "192.0.2.1:7")
    assert hall.log_in("eve", f"ann {PASSWORD}") == [("error", "login-throttled")]
    assert hall.log_in("eve", TOKEN) == [(AUTH, "ok tom")]  # which cannot be guessed
    monkeypatch.undo()
    assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]  # from elsewhere
    hall.now += 7
    assert fail(hall, 2) == ["login-failed", "login-throttled"]
    hall.now += 60
    assert fail(hall, 11) == ["login-failed"] * 10 + ["login-throttled"]


def test_passwords_that_wait_for_their_turn_are_not_checked_after_too_many_failures(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [hall.join(f"eve{number}", "192.0.2.1:1") for number in range(30)]
    for peer in peers:
        hall.broker.receive(peer, frame(AUTH.encode(), b"ann wrong one"))
    checked: list[str] = []
    monkeypatch.setattr(Users, "verify", lambda _self, name, _secret: checked.append(name))
    for peer in peers:
        work(peer)
    codes = [hall.hears(f"eve{number}")[0][1] for number in range(30)]
    assert codes == ["login-failed"] * 10 + ["login-throttled"] * 20
    assert len(checked) == 10


def test_a_password_that_was_right_there_before_is_taken_after_too_many_failures(
    hall: Hall,
) -> None:
    hall.join("ann", "192.0.2.1:1")
    assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]
    assert fail(hall, 20)[-1] == "login-throttled"
    for number in range(3):
        hall.join("ann", f"192.0.2.1:{number}")
        assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]
    # Elsewhere nobody who guesses is told at once what is right.
    assert fail(hall, 11, "192.0.2.2:1")[-1] == "login-throttled"
    hall.join("eve", "192.0.2.2:7")
    assert hall.log_in("eve", f"ann {PASSWORD}") == [("error", "login-throttled")]


def test_who_guesses_on_is_not_even_told_what_was_right_there_before(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    hall.join("ann", "192.0.2.1:1")
    hall.log_in("ann", f"ann {PASSWORD}")
    hall.join("ann")
    hall.log_in("ann", f"ann {PASSWORD}")  # from elsewhere
    monkeypatch.setattr(Users, "verify", lambda *_: None)
    fail(hall, 10 + access_module.GUESSES)
    hall.join("ann", "192.0.2.1:2")
    assert hall.log_in("ann", f"ann {PASSWORD}") == [("error", "login-throttled")]
    hall.join("ann")
    assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]
    hall.now += 1
    hall.join("ann", "192.0.2.1:3")
    assert hall.log_in("ann", f"ann {PASSWORD}") == [(AUTH, "ok ann")]


def test_an_address_is_suspect_for_a_while_after_a_failure(hall: Hall) -> None:
    access = hall.broker.access
    assert not access.suspect("192.0.2.1")
    fail(hall, 1)
    hall.now += access_module.SUSPECT - 1
    assert access.suspect("192.0.2.1")
    assert not access.suspect("192.0.2.2")
    hall.now += 2
    assert not access.suspect("192.0.2.1")


def test_wrong_tokens_are_throttled_as_well(hall: Hall) -> None:
    codes = []
    for _ in range(12):
        hall.join("eve", "192.0.2.1:1")
        ((_, code),) = hall.log_in("eve", "no-token")
        codes.append(code)
    assert codes == ["login-failed"] * 10 + ["login-throttled"] * 2


def test_failures_are_remembered_of_so_many_addresses_only(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(throttle, "ADDRESSES", 3)
    monkeypatch.setattr(Users, "verify", lambda *_: None)
    for number in range(10):
        fail(hall, 1, f"192.0.2.{number}:1")
    kept = {one for one in reached(hall.broker.access) if isinstance(one, str)}
    assert [number for number in range(10) if f"192.0.2.{number}" in kept] == [7, 8, 9]


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("192.0.2.1:5000", "192.0.2.1"),
        ("[2001:db8::1:2:3]:5000", "2001:db8::/64"),
        ("[2001:db8::9]:5000", "2001:db8::/64"),
        ("[::ffff:192.0.2.1]:5000", "192.0.2.1"),
        ("[fe80::1%eth0]:5000", "fe80::/64%eth0"),
        ("unix", "unix/None"),
        ("mesh/a", "mesh/a/None"),
    ],
)
def test_failures_are_counted_by_address(label: str, wanted: str) -> None:
    assert origin(Broker(Limits()).join(label, lambda _: None)) == wanted


# Before the login


@pytest.mark.parametrize(
    "command",
    [
        b"sub a\n",
        b"unsub a\n",
        b"pub a 1 x\n",
        b"PUB a 1 x\n",
        b"pub //a 1 x\n",
        b"pub //fwd/a 1 x\n",
        b"pub //pubsubd/stats 0 \n",
        b"pub //pubsubd/explain 1 a\n",
        b"pub //pubsubd/peers 0 \n",
        b"pub //pubsubd/nothing 0 \n",
    ],
)
def test_before_the_login_nothing_is_done(hall: Hall, command: bytes) -> None:
    bob = hall.join("bob")
    hall.broker.login(bob, "bob")
    hall.say("bob", b"sub a\n")
    assert hall.ask("ann", command) == [("error", "login-required")]
    assert hall.hears("bob") == []
    assert not hall.peer("ann").substrings
    assert hall.broker.counters.messages_in == 0


def test_before_the_login_one_may_ping(hall: Hall) -> None:
    assert hall.ask("ann", b"pub //pubsubd/ping 2 hi\n") == [("//pubsubd/ping", "hi")]


@pytest.mark.parametrize("size", [16 * 1024 + 1, 300_000])
def test_before_the_login_frames_are_small(hall: Hall, size: int) -> None:
    head = b"pub a %d " % size
    assert hall.ask("ann", head + b"x" * READ_SIZE) == [("error", "payload-too-large")]
    assert hall.peer("ann").ending is not None


def test_after_the_login_frames_may_be_large(hall: Hall) -> None:
    hall.log_in("ann", TOKEN)
    assert hall.ask("ann", b"pub a 300000 " + b"x" * 300_000 + b"\n") == []


def test_who_does_not_log_in_is_ended(hall: Hall) -> None:
    hall.join("bob")
    hall.log_in("bob", TOKEN)
    assert hall.overdue("ann") is None
    hall.now += 10
    assert hall.overdue("ann") is None
    hall.now += 0.5
    assert hall.overdue("ann") == "login-timeout"
    assert hall.overdue("bob") is None


def test_the_time_to_log_in_rests_while_the_daemon_has_not_looked(hall: Hall) -> None:
    peer = hall.peer("ann")
    assert hall.overdue("ann") is None
    hall.now += 6
    hall.broker.receive(peer, frame(AUTH.encode(), b"ann wrong one") + b"pub a 10 half")
    begun = hall.now
    for _ in range(10):
        hall.now += 100
        assert hall.overdue("ann") is None
    work(peer)
    hall.talks["ann"].rest(begun, hall.now)
    assert hall.overdue("ann") is None
    hall.now += 3
    assert hall.overdue("ann") is None
    hall.now += 2  # 11 in all
    assert hall.overdue("ann") == "login-timeout"


def test_who_comes_by_a_socket_that_says_who_it_is_is_in(hall: Hall) -> None:
    hall.broker.login(hall.peer("ann"), "daemon")
    assert hall.ask("ann", b"sub a\npub a 1 x\n") == [("a", "x")]


# Publishing


@pytest.fixture
def ruled() -> Hall:
    """Return a hall where everybody may publish a..., and receive all but b..."""
    hall = Hall(login=False)
    hall.broker.access.replace(
        users=Users(),
        acl=Acl([AclRule(("*",), ("a", "//pubsubd/explain"), ("a", "c", "//a", "//pubsubd/"))]),
        authority=None,
    )
    for name in ("ann", "bob"):
        hall.join(name)
    free = hall.join("eve")
    hall.broker.access.trust(free)
    return hall


def test_what_is_not_allowed_is_refused_and_nothing_else(ruled: Hall) -> None:
    ruled.say("eve", b"sub a\nsub b\n")
    speech = b"pub a1 1 0\npub b1 1 1\npub b2 1 2\npub a1 1 3\npub b1 1 4\npub a2 1 5\n"
    ruled.say("ann", speech)
    assert ruled.hears("eve") == [("a1", "0"), ("a1", "3"), ("a2", "5")]
    error = b'not-allowed "b1" and 2 more: no right to publish that'
    assert ruled.raw("ann") == frame(b"//pubsubd/error", error)
    assert ruled.broker.counters.errors["not-allowed"] == 3
    assert ruled.broker.counters.messages_in == 3


def test_a_run_of_refused_messages_is_one_line(ruled: Hall) -> None:
    ruled.say("ann", b"pub b 3 xyz\n" * 5_000)
    assert ruled.raw("ann").count(b"\n") == 1
    ruled.say("ann", b"".join(b"pub b%d 1 x\n" % i for i in range(5_000)))
    assert 1 <= ruled.raw("ann").count(b"\n") < 10  # one for each turn
    ruled.say("ann", b"pub b 1 x\n")
    assert ruled.raw("ann") == frame(
        b"//pubsubd/error", b'not-allowed "b": no right to publish that'
    )
    assert ruled.broker.counters.errors["not-allowed"] == 10_001


def test_the_answer_to_a_ping_comes_behind_what_was_refused_before(ruled: Hall) -> None:
    speech = b"pub b 1 x\npub //pubsubd/ping 1 1\npub b 1 x\npub //pubsubd/ping 1 2\n"
    error, pong = ("error", "not-allowed"), "//pubsubd/ping"
    assert ruled.ask("ann", speech) == [error, (pong, "1"), error, (pong, "2")]


def test_errors_are_told_ten_times_a_second_and_the_rest_together(ruled: Hall) -> None:
    for _ in range(1_000):
        ruled.say("ann", b"pub b 1 x\n")
    assert ruled.hears("ann") == [("error", "not-allowed")] * 100
    ruled.overdue("ann")
    assert ruled.hears("ann") == []
    ruled.now += 1
    ruled.overdue("ann")
    assert b'"b" and 899 more' in ruled.raw("ann")
    ruled.overdue("ann")
    assert ruled.raw("ann") == b""
    assert ruled.broker.counters.errors["not-allowed"] == 1_000


@pytest.mark.parametrize(
    "command",
    [
        b"PUB b 1 x\n",
        b"pub b 1 x\r\n",
        b"pub //fwd/b 1 x\n",
        b"pub //pubsubd/stats 0 \n",
        b"pub //pubsubd/nothing 0 \n",
        b"pub b 600000 " + b"x" * 600_000 + b"\n",
        b"pub b 600000 " + b"x" * 600_000 + b"\r\n",
    ],
)
def test_no_way_of_writing_it_gets_round_that(ruled: Hall, command: bytes) -> None:
    ruled.say("eve", b"sub b\n")
    for step in (1_000_000, 100_000, 17):
        if len(command) > 1_000 and step < 1_000:
            continue
        for at in range(0, len(command), step):
            ruled.say("ann", command[at : at + step])
        assert ruled.hears("ann") == [("error", "not-allowed")]
    assert ruled.hears("eve") == []
    assert ruled.broker.counters.messages_in == 0


def test_large_frames_that_are_allowed_pass(ruled: Hall) -> None:
    ruled.say("bob", b"sub a\n")
    ruled.say("ann", b"pub a 600000 " + b"x" * 600_000 + b"\n")
    assert ruled.hears("bob") == [("a", "x" * 600_000)]
    assert ruled.hears("ann") == []


def test_a_request_that_is_allowed_is_answered_and_tells_of_those_who_may_receive(
    ruled: Hall,
) -> None:
    for name in ("ann", "bob", "eve"):
        ruled.say(name, b"sub b\nsub a\n")
    ((_, data),) = ruled.ask("ann", b"pub //pubsubd/explain 2 b1\n")
    assert [one["connection"] for one in json.loads(data)["receivers"]] == [3]
    ((_, data),) = ruled.ask("ann", b"pub //pubsubd/explain 2 a1\n")
    assert json.loads(data)["count"] == 3


def test_what_is_reserved_needs_the_right_as_well(ruled: Hall) -> None:
    ruled.broker.reserve((b"//peers/m/",), lambda *_: None)
    assert ruled.ask("ann", b"pub //peers/m/x 1 x\n") == [("error", "not-allowed")]
    assert ruled.ask("eve", b"pub //peers/m/x 1 x\n") == []


def test_one_who_floods_with_what_is_refused_harms_nobody(ruled: Hall) -> None:
    ruled.say("bob", b"sub a\n")
    flood = b"".join(b"pub b%d 4 spam\n" % i for i in range(20_000))
    for number in range(20):
        turns = 0
        data = flood
        while ruled.broker.receive(ruled.peer("ann"), data):
            data = b""
            turns += 1
            ruled.say("eve", b"pub a 1 x\n")  # others get their turns
        assert turns > 2
        ruled.say("eve", b"pub a%d 1 y\n" % number)
    heard = ruled.hears("bob")
    assert [one for one in heard if one[1] == "y"] == [(f"a{n}", "y") for n in range(20)]
    assert len(ruled.raw("ann")) < 20_000
    gate = ruled.peer("ann").publish_filter
    assert gate is not None
    assert len(gate.refused) <= 1_024
    assert ruled.broker.counters.errors["not-allowed"] == 400_000


def test_what_is_remembered_of_headers_is_bounded(ruled: Hall) -> None:
    for number in range(12):
        some = b"".join(b"pub a%d 1 x\n" % (number // 3 * 3_000 + i) for i in range(3_000))
        ruled.say("ann", some)
    gate = ruled.peer("ann").publish_filter
    assert gate is not None
    assert 0 < len(gate.allowed) <= 8_192
    ruled.say("ann", b"pub a%b 1 x\npub b%b 1 x\n" % (b"x" * 900, b"x" * 900) * 3)
    ruled.say("ann", b"pub b 1 x\n")
    assert max(map(len, gate.allowed)) < 300
    assert max(map(len, gate.refused)) < 300


# Receiving


def test_no_substring_brings_what_its_owner_may_not_receive(ruled: Hall) -> None:
    ruled.say("bob", b"sub 1\nsub //\n")
    ruled.say("eve", b"pub a1 1 0\npub b1 1 1\npub c1 1 2\npub //a1 1 3\npub //b1 1 4\n" * 3)
    ruled.say("eve", b"pub //fwd/a1 1 5\npub //fwd/b1 1 6\n" * 3)
    assert (
        ruled.hears("bob")
        == [("a1", "0"), ("c1", "2"), ("//a1", "3")] * 3 + [("//fwd/a1", "5")] * 3
    )


def test_a_copy_comes_if_the_message_itself_may(ruled: Hall) -> None:
    ruled.say("bob", b"sub //fwd/\n")
    ruled.say("eve", b"pub //a1 1 3\npub //b1 1 4\n")
    assert ruled.hears("bob") == [("//fwd/a1", "3")]


def test_the_daemon_s_own_names_come_to_those_who_may_receive_them() -> None:
    hall = Hall(login=False)
    hall.broker.access.replace(
        users=Users(), acl=Acl([AclRule(("*",), (), ("#",))]), authority=None
    )
    hall.join("ann")
    hall.broker.login(hall.join("bob"), "bob")
    for name in ("ann", "bob"):
        hall.say(name, b"sub //pubsubd/\n")
    hall.broker.delivery.publish(b"//pubsubd/stats", b"1")
    assert hall.hears("ann") == hall.hears("bob") == []
    rules = [AclRule(("*",), (), ("#",)), AclRule(("bob",), (), ("//pubsubd/st",))]
    hall.broker.access.replace(users=Users(), acl=Acl(rules), authority=None)
    hall.broker.delivery.publish(b"//pubsubd/stats", b"2")
    hall.broker.delivery.publish(b"//pubsubd/events", b"3")
    assert hall.hears("ann") == []
    assert hall.hears("bob") == [("//pubsubd/stats", "2")]


# Reload


def test_other_rules_hold_at_once_for_those_who_are_here(ruled: Hall) -> None:
    ruled.say("bob", b"sub 1\n")
    messages = b"pub a1 1 x\npub b1 1 x\n"
    assert ruled.ask("ann", messages) == [("error", "not-allowed")]
    assert ruled.hears("bob") == [("a1", "x")]
    change = [AclRule(("*",), ("b",), ("b",))]
    ruled.broker.access.replace(users=Users(), acl=Acl(change), authority=None)
    assert ruled.ask("ann", messages) == [("error", "not-allowed")]
    assert ruled.hears("bob") == [("b1", "x")]
    ruled.broker.access.replace(users=Users(), acl=Acl(), authority=None)
    assert ruled.ask("ann", messages) == []
    assert ruled.hears("bob") == [("a1", "x"), ("b1", "x")]
    assert ruled.peer("ann").publish_filter is None
    assert not ruled.broker.router.guarded


def test_a_link_may_do_everything_before_and_after_a_reload(ruled: Hall) -> None:
    ruled.broker.access.replace(
        users=Users(), acl=Acl([AclRule(("*",), ("z",), ("z",))]), authority=None
    )
    assert ruled.peer("eve").permission is None
    assert ruled.ask("eve", b"sub b\npub b 1 x\n") == [("b", "x")]


def test_who_has_come_in_by_what_is_no_longer_there_is_ended() -> None:
    hall = Hall()
    hall.broker.access.replace(
        users=users(ann=PASSWORD, bob="another one", tom=TOKEN_LINE), acl=Acl(), authority=None
    )
    for name, words in (("ann", f"ann {PASSWORD}"), ("bob", "bob another one"), ("tom", TOKEN)):
        hall.join(name)
        assert hall.log_in(name, words) == [(AUTH, f"ok {name}")]
    hall.broker.login(hall.join("sys"), "ann")  # by the system, not by the file
    ended = hall.broker.access.replace(
        users=users(ann=PASSWORD, bob="a new one, bob"), acl=Acl(), authority=None
    )
    assert ended == 2
    assert hall.ended == {"bob": "login-revoked", "tom": "login-revoked"}
    assert hall.peer("bob").identity is None
    assert hall.ask("bob", b"pub a 1 x\n") == [("error", "login-required")]
    assert hall.ask("ann", b"sub a\npub a 1 x\n") == [("a", "x")]


def test_who_has_come_in_by_a_token_of_another_key_is_ended() -> None:
    hall = Hall()
    first, second = Authority(), Authority()
    hall.broker.access.replace(users=Users(), acl=Acl(), authority=first)
    hall.join("ann")
    hall.log_in("ann", "2000/ann")
    hall.broker.access.replace(users=Users(), acl=Acl(), authority=first)
    assert not hall.ended
    hall.broker.access.replace(users=Users(), acl=Acl(), authority=second)
    assert hall.ended == {"ann": "login-revoked"}


def test_who_is_yet_to_log_in_makes_nobody_look_at_what_others_may_receive(hall: Hall) -> None:
    assert hall.peer("ann").publish_filter is not None
    assert not hall.broker.router.guarded
    hall.log_in("ann", TOKEN)
    hall.say("ann", b"sub a\n")
    rules_in(hall.broker, ann=PASSWORD, tom=TOKEN_LINE)
    assert not hall.broker.router.guarded


def test_a_reload_that_changes_nothing_forgets_nothing(hall: Hall) -> None:
    rules = [AclRule(("*",), ("a",), ("a",))]
    rules_in(hall.broker, *rules, ann=PASSWORD)
    hall.log_in("ann", f"ann {PASSWORD}")
    hall.say("ann", b"sub a\n" + b"pub a 1 x\n" * 3)
    permission, routes = hall.peer("ann").permission, len(hall.broker.router.routes)
    assert routes > 0
    rules_in(hall.broker, *rules, ann=PASSWORD)
    assert hall.peer("ann").permission is permission
    assert len(hall.broker.router.routes) == routes
    assert hall.broker.access.users.recall("ann", PASSWORD)


def test_a_listener_that_asks_for_a_login_from_now_on_asks_those_who_are_here(
    ruled: Hall,
) -> None:
    ruled.say("bob", b"sub a\n")
    ruled.listener.login = True
    ruled.broker.access.replace(users=Users(), acl=Acl(), authority=None)
    assert ruled.ask("ann", b"pub a 1 x\n") == [("error", "login-required")]
    ruled.say("eve", b"pub a 1 x\n")
    assert ruled.hears("bob") == []
    assert ruled.overdue("bob") is None
    ruled.now += 11
    assert ruled.overdue("bob") == "login-timeout"
    ruled.listener.login = False
    ruled.broker.access.replace(users=Users(), acl=Acl(), authority=None)
    assert ruled.overdue("bob") is None
    ruled.say("eve", b"pub a 1 x\n")
    assert ruled.hears("bob") == [("a", "x")]


def test_the_limits_of_a_listener_hold_for_the_time_to_log_in(hall: Hall) -> None:
    hall.listener.limits = replace(hall.listener.limits, auth_timeout=2.0)
    assert hall.overdue("ann") is None
    hall.now += 2.5
    assert hall.overdue("ann") == "login-timeout"


def test_rights_that_nobody_has_any_more_are_let_go_of(ruled: Hall) -> None:
    rights = []
    for number in range(20):
        rules = [AclRule(("*",), (f"a{number}",), ("#",))]
        ruled.broker.access.replace(users=Users(), acl=Acl(rules), authority=None)
        rights.append(weakref.ref(ruled.peer("ann").permission))
    assert [one() is None for one in rights] == [True] * 19 + [False]


def rule(who: str, *texts: str) -> AclRule:
    return AclRule((who,), texts, texts)


def test_a_reload_looks_at_those_who_are_here_in_steps_and_misses_nobody(ruled: Hall) -> None:
    access, broker = ruled.broker.access, ruled.broker
    for number in range(5):
        broker.login(ruled.join(f"ann{number}"), "ann")
        ruled.say(f"ann{number}", b"sub a\n")
    acl = Acl([rule("ann", "#", "//pubsubd/"), rule("eve", "b")])
    steps = access.replacing(users=Users(), acl=acl, authority=None, over=lambda: True)
    for _ in range(3):
        next(steps)
    ruled.talks["ann3"].leaving()
    for step in ruled.talks["ann3"].leaving():
        for _ in step():
            pass
    # Somebody who comes meanwhile is held to the new rules, whatever the others may do.
    broker.login(ruled.join("eve"), "eve")
    assert ruled.ask("eve", b"sub a\nsub b\npub a 1 x\n") == [("error", "not-allowed")]
    assert len(list(steps)) >= 3
    ruled.hears("eve")
    for number in (0, 1, 2, 4):
        assert ruled.peer(f"ann{number}").permission is None
        ruled.say(f"ann{number}", b"pub a 1 y\npub b 1 z\n")
    assert ruled.hears("ann4") == [("a", "y")] * 4
    assert ruled.hears("eve") == [("b", "z")] * 4
