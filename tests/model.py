"""The daemon as plainly as it can be written, to hold the quick one to.

Bytes are looked at one command at a time, subscriptions are scanned, nothing is cached.
What is heard is a list of ``(name, data)``, an error as ``("error", code)``, help without its text.
Names and wildcards, which no line subscribes, are subscribed by calls.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_LINE = 1088
MAX_TYPED = 65_536


@dataclass
class Listener:
    substrings: list[bytes] = field(default_factory=list)
    names: set[bytes] = field(default_factory=set)
    patterns: set[tuple[str, str]] = field(default_factory=set)
    heard: list[object] = field(default_factory=list)
    rest: bytes = b""
    closed: bool = False

    def wants(self, name: bytes) -> bool:
        """Whether a subscription matches; patterns are a separator and a text."""
        own = name.startswith(b"//pubsubd/")
        return (
            any(text in name for text in self.substrings if not own or starts_own(text))
            or name in self.names
            or any(pattern_matches(*pattern, name) for pattern in self.patterns)
        )


def starts_own(text: bytes) -> bool:
    return text.startswith(b"//pubsubd/")


def pattern_matches(separator: str, text: str, name: bytes) -> bool:
    """Whether a wildcard matches, by an expression that tries everything there is to try."""
    star = "*" if separator == "." else "+"
    if name.startswith(b"//pubsubd/"):
        literal = re.split(
            r"[*]|(?<![^.])#$" if separator == "." else r"(?<![^/])[+#](?![^/])", text
        )
        if not literal[0].startswith("//pubsubd/"):
            return False
    *levels, last = text.split(separator)
    if last != "#":
        levels.append(last)
    one = "[^" + re.escape(separator) + "]*"
    expressions = [
        one.join(map(re.escape, level.split(star)))
        if separator == "." or level == star
        else re.escape(level)
        for level in levels
    ]
    expression = re.escape(separator).join(expressions)
    if last == "#":
        expression += "(" + re.escape(separator) + ".*)?" if levels else ".*"
    return re.fullmatch(expression, name.decode(), re.DOTALL) is not None


class Model:
    def __init__(self, max_payload: int, max_subscriptions: int) -> None:
        self.max_payload = max_payload
        self.max_subscriptions = max_subscriptions
        self.peers: dict[str, Listener] = {}

    def join(self, who: str) -> None:
        self.peers[who] = Listener()

    def leave(self, who: str) -> None:
        del self.peers[who]

    def toggle_name(self, who: str, name: bytes) -> None:
        """Subscribe a name, or undo it."""
        self.peers[who].names ^= {name}

    def toggle_pattern(self, who: str, separator: str, text: str) -> None:
        """Subscribe a wildcard, or undo it."""
        self.peers[who].patterns ^= {(separator, text)}

    def say(self, who: str, data: bytes) -> None:
        peer = self.peers[who]
        peer.rest += data
        while not peer.closed and (step := self._command(peer)):
            peer.rest = peer.rest[step:]

    def _fail(self, peer: Listener, code: str, closes: bool = False) -> None:
        peer.heard.append(("error", code))
        peer.closed = closes

    def _command(self, peer: Listener) -> int:
        """Carry out the first command; return its bytes, or 0 if it is not whole."""
        rest = peer.rest
        end = rest.find(b"\n", 0, MAX_LINE + 1)
        if rest[:4].lower() == b"pub ":
            words = rest[:MAX_LINE].split(b" ", 3)
            if len(words) == 4 and not any(b"\n" in word for word in words[:3]):
                name, digits = words[1], words[2]
                if digits.isdigit() and len(digits) <= 10:
                    return self._publish(peer, name, int(digits), sum(map(len, words[:3])) + 3)
                if digits == b"-":
                    return self._publish_typed(peer, name, sum(map(len, words[:3])) + 3)
                if end >= 0:
                    self._fail(peer, "bad-length")
                    return end + 1
        if end < 0:
            if len(rest) > MAX_LINE:
                self._fail(peer, "line-too-long", closes=True)
            return 0
        line = rest[:end]
        if line.endswith(b"\r"):
            line = line[:-1]
        if line:
            self._line(peer, line)
        return end + 1

    def _line(self, peer: Listener, line: bytes) -> None:
        verb, gap, text = line.partition(b" ")
        verb = verb.lower()
        if line.lower() in (b"help", b"?"):
            peer.heard.append((b"//pubsubd/help", b""))
        elif line.lower() in (b"quit", b"exit"):
            peer.closed = True
        elif verb == b"pub":
            self._fail(peer, "bad-length" if text.split(b" ")[0] else "bad-name")
        elif verb not in (b"sub", b"unsub"):
            if gap and line.endswith((b" HTTP/1.0", b" HTTP/1.1", b" HTTP/2.0")):
                self._fail(peer, "http-request", closes=True)
            else:
                self._fail(peer, "unknown-command")
        elif gap and (fault := name_fault(text)):
            self._fail(peer, fault)
        elif verb == b"unsub":
            if text in peer.substrings:
                peer.substrings.remove(text)
            else:
                self._fail(peer, "not-subscribed")
        elif text not in peer.substrings:
            if len(peer.substrings) >= self.max_subscriptions:
                self._fail(peer, "too-many-subscriptions")
            else:
                peer.substrings.append(text)

    def _publish(self, peer: Listener, name: bytes, size: int, start: int) -> int:
        if size > self.max_payload:
            self._fail(peer, "payload-too-large", closes=True)
            return 0
        rest = peer.rest
        data, after = rest[start : start + size], rest[start + size : start + size + 2]
        if not after or after == b"\r":
            return 0
        if after[:1] != b"\n" and after != b"\r\n":
            self._fail(peer, "wrong-length", closes=True)
            return 0
        self._carry_out(peer, name, data)
        return start + size + (1 if after[:1] == b"\n" else 2)

    def _publish_typed(self, peer: Listener, name: bytes, start: int) -> int:
        most = min(self.max_payload, MAX_TYPED)
        data, gap, _ = peer.rest[start:].partition(b"\n")
        if len(data.removesuffix(b"\r") if gap else data) > most + (0 if gap else 1):
            self._fail(peer, "payload-too-large", closes=True)
        if peer.closed or not gap:
            return 0
        self._carry_out(peer, name, data.removesuffix(b"\r"))
        return start + len(data) + 1

    def _carry_out(self, peer: Listener, name: bytes, data: bytes) -> None:
        if fault := name_fault(name):
            self._fail(peer, fault)
        elif name == b"//pubsubd/ping":
            peer.heard.append((name, data))
        elif name == b"//pubsubd/help":
            peer.heard.append((name, b""))
        elif name.startswith(b"//pubsubd/"):
            self._fail(peer, "unknown-request")
        else:
            self._deliver(name, data)

    def _deliver(self, name: bytes, data: bytes) -> None:
        copy = None
        if name.startswith(b"//") and not name.startswith(b"//fwd/") and len(name) <= 1020:
            copy = b"//fwd/" + name[2:]
        for other in self.peers.values():
            if other.wants(name):
                other.heard.append((name, data))
            elif copy and other.wants(copy):
                other.heard.append((copy, data))


def name_fault(name: bytes) -> str | None:
    if not name:
        return "bad-name"
    if len(name) > 1024:
        return "name-too-long"
    if b" " in name or b"\r" in name or b"\n" in name:
        return "bad-name"
    try:
        name.decode()
    except UnicodeDecodeError:
        return "bad-name"
    return None
