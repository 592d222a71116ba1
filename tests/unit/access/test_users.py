"""The users file: what is a line, who comes in by it, and that no secret shows."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from pubsubd.access import users as users_module
from pubsubd.access.users import (
    Users,
    check_secret,
    check_user,
    edit,
    hash_password,
    load_users,
    make_token,
    parse_users,
)
from pubsubd.protocol.errors import ConfigError
from tests.footprint import reached

SECRET = "correct horse"
STRENGTH = users_module.LOG2_N
with pytest.MonkeyPatch.context() as patch:
    patch.setattr(users_module, "LOG2_N", 4)  # as little as can be
    LINE = hash_password(SECRET)
TOKEN, TOKEN_LINE = make_token()


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows with each password that is stretched."""
    done: list[int] = []
    stretch = users_module.Password.stretch

    def count(self: users_module.Password, secret: str) -> bytes:
        done.append(1)
        return stretch(self, secret)

    monkeypatch.setattr(users_module.Password, "stretch", count)
    return done


def test_a_password_lets_its_user_in_and_nobody_else() -> None:
    found = parse_users(f"# who comes in\n\n  ann:{LINE}\nbob:{hash_password('another one')}\n")
    assert found.verify("ann", SECRET) == LINE
    assert found.verify("bob", SECRET) is None
    assert found.verify("ann", SECRET + "x") is None
    assert found.verify("zoe", SECRET) is None
    assert found.holds("ann", LINE)
    assert not found.holds("bob", LINE)


def test_a_password_may_be_any_text() -> None:
    for secret in ("ü" * 8, "with a space:and $ signs", "\udcff" + "x" * 8):
        assert parse_users(f"ann:{hash_password(secret)}").verify("ann", secret)


def test_equal_passwords_have_different_hashes() -> None:
    assert hash_password(SECRET) != hash_password(SECRET) != LINE


def test_the_hash_is_scrypt_as_owasp_lists_it() -> None:
    assert LINE.startswith("scrypt$4$8$5$")
    assert STRENGTH == 14


def test_a_token_tells_whose_it_is() -> None:
    found = parse_users(f"ann:{TOKEN_LINE}\nann:{LINE}")
    assert found.find_token(TOKEN) == ("ann", TOKEN_LINE)
    assert found.find_token(TOKEN + "x") is None
    assert len(TOKEN) >= 43
    assert TOKEN not in TOKEN_LINE
    assert parse_users(f"ann:{TOKEN_LINE.upper().replace('SHA', 'sha')}").find_token(TOKEN)


def test_a_name_may_have_several_passwords() -> None:
    other = hash_password("another one")
    found = parse_users(f"ann:{LINE}\nann:{other}\n")
    assert found.verify("ann", SECRET) == LINE
    assert found.verify("ann", "another one") == other


@pytest.mark.parametrize("name", ["ann", "bob", "tom", "zoe", ""])
def test_whoever_is_asked_for_as_many_hashes_are_made(hashes: list[int], name: str) -> None:
    """So that the time tells nobody which users there are."""
    found = parse_users(
        f"ann:{LINE}\nann:{hash_password('another one')}\nbob:{LINE}\ntom:{TOKEN_LINE}"
    )
    del hashes[:]
    assert found.verify(name, "wrong one") is None
    assert len(hashes) == 2


def test_without_any_users_a_hash_is_made_all_the_same(hashes: list[int]) -> None:
    assert Users().verify("ann", SECRET) is None
    assert len(hashes) == 1


def test_what_was_verified_is_found_at_once_and_only_that(hashes: list[int]) -> None:
    found = parse_users(f"ann:{LINE}\nbob:{LINE}")
    assert found.recall("ann", SECRET) is None
    assert found.verify("ann", SECRET) == LINE
    assert len(hashes) == 1
    assert found.verify("ann", SECRET) == found.recall("ann", SECRET) == LINE
    assert len(hashes) == 1
    assert found.recall("bob", SECRET) is found.recall("ann", "x") is None
    assert found.verify("ann", "x") is None
    assert found.recall("ann", "x") is None
    assert parse_users(f"ann:{LINE}").recall("ann", SECRET) is None


def _tells(text: str | bytes) -> bool:
    return SECRET.encode() in (text.encode() if isinstance(text, str) else text)


def test_what_is_remembered_is_bounded_and_holds_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(users_module, "REMEMBERED", 3)
    found = parse_users("".join(f"u{i}:{LINE}\n" for i in range(9)))
    before, sizes = len(list(reached(found))), []
    for i in range(9):
        assert found.verify(f"u{i}", SECRET)
        sizes.append(len(list(reached(found))) - before)
    assert max(sizes) == 3
    assert not [one for one in reached(found) if isinstance(one, str | bytes) and _tells(one)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ann", "NAME:HASH"),
        (f":{LINE}", "missing"),
        (f"a b:{LINE}", "no space"),
        (f"a\x1bb:{LINE}", "control"),
        (f"*:{LINE}", "cannot be called"),
        (f"{'a' * 129}:{LINE}", "128 bytes"),
        ("ann:", "neither"),
        ("ann:correct horse", "neither"),
        ("ann:$6$salt$hash", "neither"),
        ("ann:sha256$00", "64"),
        ("ann:sha256$" + "g" * 64, "fromhex"),
        ("ann:scrypt$14$8$5$AAAA", "neither"),
        ("ann:scrypt$x$8$5$AAAAAAAAAAAAAAAA$AAAA", "no numbers"),
        ("ann:scrypt$0$8$5$AAAAAAAAAAAAAAAA$AAAA", "out of range"),
        ("ann:scrypt$14$8$99$AAAAAAAAAAAAAAAA$AAAA", "out of range"),
        ("ann:scrypt$24$99$1$AAAAAAAAAAAAAAAA$AAAA", "256 MiB"),
        ("ann:scrypt$14$8$5$AAAA$" + "A" * 44, "8 bytes"),
        ("ann:scrypt$14$8$5$AAAAAAAAAAAAAAAA$AAAA", "16 to 64"),
        ("ann:scrypt$14$8$5$!!!$AAAA", "base64"),
        (f"ann:{TOKEN_LINE}\nbob:{TOKEN_LINE}", "same token"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_quoted(line: str, why: str) -> None:
    number = 3 + line.count("\n")
    with pytest.raises(ConfigError, match=why) as caught:
        parse_users(f"# users\n\n{line}\n", "/etc/users")
    assert f"/etc/users, line {number}: " in str(caught.value)
    shown = "".join(traceback.format_exception(caught.value.with_traceback(None)))
    for secret in ("correct horse", LINE[-40:], TOKEN_LINE[-40:], "AAAAAAAA"):
        assert secret not in shown


def test_nothing_secret_shows() -> None:
    found = parse_users(f"ann:{LINE}\nann:{TOKEN_LINE}")
    assert repr(found) == "<Users 1>"


@pytest.mark.parametrize("secret", ["short", "", "x" * 1025, "with\nline feed", "\udcff" * 8])
def test_a_password_that_will_not_do_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="password"):
        check_secret(secret)


def test_names_of_users_may_be_of_any_language() -> None:
    for name in ("ann", "Jürgen", "a.b-c_d@example.org", "愛"):
        check_user(name)


def test_a_file_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "users"
    path.write_text(f"ann:{LINE}\n")
    path.chmod(0o640)
    with caplog.at_level(logging.WARNING, "pubsubd"):
        assert load_users(path).verify("ann", SECRET)
        assert not caplog.records
        path.chmod(0o644)
        assert load_users(path)
    assert caplog.messages == [f"event=readable-users-file path={path} mode=644"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda _path: None, "No such file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.write_bytes(b"\xff"), "UTF-8"),
        (lambda path: path.write_text("ann"), "line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    make(tmp_path / "users")
    with pytest.raises(ConfigError, match=why):
        load_users(tmp_path / "users")


def test_editing_keeps_what_is_not_the_user_s() -> None:
    text = f"# ann:{LINE}\nann:{LINE}\n\nbob:{LINE}\nann:{TOKEN_LINE}\n"
    new = hash_password("another one")
    assert edit(text, "ann", new) == f"# ann:{LINE}\n\nbob:{LINE}\nann:{TOKEN_LINE}\nann:{new}\n"
    _, token = make_token()
    assert edit(text, "ann", token) == text + f"ann:{token}\n"
    assert edit(text, "ann", None) == f"# ann:{LINE}\n\nbob:{LINE}\n"
    assert edit(text, "zoe", None) == text
    assert edit("ann:x", "bob", new) == f"ann:x\nbob:{new}\n"


def test_users_are_equal_if_their_lines_are() -> None:
    one = parse_users(f"ann:{LINE}\nbob:{TOKEN_LINE}")
    assert one == parse_users(f"# x\nbob:{TOKEN_LINE}\nann:{LINE}")
    assert one != parse_users(f"ann:{LINE}")
    assert Users() == parse_users("")
    assert not Users()
    assert one
