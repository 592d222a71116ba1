"""Rights as plainly as they can be told, to hold the quick ones to, and helpers for logins."""

from __future__ import annotations

from collections.abc import Iterable

from pubsubd.access import users as stretching
from pubsubd.access.rules import Acl, AclRule
from pubsubd.access.users import Users, hash_password, parse_users
from pubsubd.broker.broker import Broker
from pubsubd.broker.peer import Peer
from tests.model import pattern_matches

PASSWORD = "correct horse"
_HASHES: dict[tuple[str, int], str] = {}


def allows(texts: Iterable[str], name: bytes) -> bool:
    """Whether any of the texts of rules means ``name``, each looked at by itself."""
    return any(means(text, name) for text in texts)


def means(text: str, name: bytes) -> bool:
    exact, body = text.startswith("="), text.removeprefix("=")
    if body.startswith("//fwd/"):
        body = "//" + body.removeprefix("//fwd/")
    if name.startswith(b"//fwd/"):
        name = b"//" + name.removeprefix(b"//fwd/")
    if name.startswith(b"//pubsubd/") and not body.startswith("//pubsubd/"):
        return False
    if exact:
        return name == body.encode()
    levels = body.split("/")
    if "+" in levels or levels[-1] == "#":
        return pattern_matches("/", body, name)
    if "*" in body or body.split(".")[-1] == "#":
        return pattern_matches(".", body, name)
    return name.startswith(body.encode())


def may(rules: Iterable[AclRule], who: str | None, what: str, name: bytes) -> bool:
    """Whether rules let somebody ``publish`` or ``receive`` a name."""
    rules = list(rules)
    return not rules or any(
        allows(getattr(rule, what), name)
        for rule in rules
        if "*" in rule.who or (who is not None and who in rule.who)
    )


def users(**passwords: str) -> Users:
    """Return users with these passwords; each password is hashed once for all tests."""
    lines = []
    for name, secret in passwords.items():
        if secret.startswith("sha256$"):
            lines.append(f"{name}:{secret}")
            continue
        key = secret, stretching.LOG2_N  # which unit tests make small
        if key not in _HASHES:
            _HASHES[key] = hash_password(secret)
        lines.append(f"{name}:{_HASHES[key]}")
    return parse_users("\n".join(lines))


def rules_in(broker: Broker, *rules: AclRule, **passwords: str) -> None:
    """Let rules and users hold in a broker, and nothing else."""
    broker.access.replace(users=users(**passwords), acl=Acl(rules), authority=None)


def say(broker: Broker, peer: Peer, data: bytes) -> None:
    """Let a peer say ``data`` in one read, and do what a session does after it."""
    while broker.receive(peer, data):
        data = b""
        work(peer)


def work(peer: Peer) -> None:
    """Do what a peer waits for, if it waits for anything."""
    if peer.job is not None:
        job, peer.job = peer.job, None
        job.check.run()
        job.finish()
