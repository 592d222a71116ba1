"""Access rules: who may publish and receive which names, without I/O.

Rules name who they are for, and texts: the beginning of names, ``=`` and one name, or a wildcard.
Without rules everybody may do everything; with rules, nobody may do what none of them allows.

``//fwd/x/y`` is the same message as ``//x/y``: rights are those of the latter, in rules and names.
Names of the daemon's own, under ``//pubsubd/``, are meant by texts only that begin so themselves.

Invariants:

- Equal rights are the same :class:`Permission`, so ``permission is previous`` tells whether rights
  have changed, and what is remembered of names is remembered once for all who have them.
- A permission never changes; other rules are another :class:`Acl` with permissions of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pubsubd.protocol.errors import ConfigError, ProtocolError
from pubsubd.protocol.wire import FORWARD, OWN, TOPICS, check_name, escape
from pubsubd.routing.wildcards import Pattern, WildcardIndex

EVERYBODY = "*"
"""In ``who``: everybody, logged in or not."""

_ALL = "#"  # everything but the daemon's own names
_REMEMBERED = 2_048  # names of each kind, for one set of rights
_SHORT = 256  # bytes of a name that is remembered


@dataclass(frozen=True, slots=True)
class AclRule:
    """One rule: rights that its users have in addition to those of other rules.

    Attributes:
        who: identities, or ``*`` for everybody, logged in or not.
        publish: what they may publish, as texts.
        receive: what they may receive, as texts.
    """

    who: tuple[str, ...]
    publish: tuple[str, ...] = ()
    receive: tuple[str, ...] = ()


class _Names:
    """A set of names, given by texts; what was asked is remembered."""

    __slots__ = (
        "_all",
        "_exact",
        "_own_prefixes",
        "_prefixes",
        "_wildcards",
        "everything",
        "known",
    )

    def __init__(self, texts: Collection[str]) -> None:
        self._exact: set[bytes] = set()
        self._wildcards: WildcardIndex[None] = WildcardIndex()
        prefixes = []
        for text in texts:
            if text == _ALL:
                continue
            what = _read(text)
            if isinstance(what, Pattern):
                if what not in self._wildcards.values:
                    self._wildcards.add(what, None)
            elif text.startswith("="):
                self._exact.add(what)
            else:
                prefixes.append(what)
        self._prefixes = tuple(prefixes)
        self._own_prefixes = tuple(one for one in prefixes if one.startswith(OWN))
        self._all = _ALL in texts
        self.everything = self._all and OWN in prefixes
        self.known: dict[bytes, bool] = {}

    def has(self, name: bytes) -> bool:
        """Return whether ``name`` is one of them."""
        known = self.known.get(name)
        if known is None:
            if len(self.known) >= _REMEMBERED:
                self.known.clear()
            known = self._find(_plain(name))
            if known and name.startswith(TOPICS):  # the copy of a topic needs that right as well
                known = self._find(name[len(TOPICS) :].partition(b"/")[2])
            if len(name) <= _SHORT:
                self.known[name] = known
        return known

    def _find(self, name: bytes) -> bool:
        own = name.startswith(OWN)
        return (
            (self._all and not own)
            or name.startswith(self._own_prefixes if own else self._prefixes)
            or name in self._exact
            or (bool(self._wildcards.values) and bool(self._wildcards.find(name)))
        )


class Permission:
    """Rights: the names that may be published and received.

    Attributes:
        code: of the error for what is not allowed.
        may_publish, may_receive: tell of a legal name whether that is allowed.
    """

    __slots__ = ("__weakref__", "_publish", "_receive", "code", "may_publish", "may_receive")

    def __init__(
        self,
        publish: Collection[str] = (),
        receive: Collection[str] = (),
        code: str = "not-allowed",
    ) -> None:
        self._publish, self._receive = _Names(publish), _Names(receive)
        self.may_publish = self._publish.has
        self.may_receive = self._receive.has
        self.code = code

    @property
    def unlimited(self) -> bool:
        """Whether there is nothing that it does not allow."""
        return self._publish.everything and self._receive.everything


OUTSIDE = Permission(code="login-required")
"""The rights before a required login: none."""


class Acl:
    """Rules, and the rights that they lead to.

    Args:
        rules: see :class:`AclRule`; none at all for no limits.

    Raises:
        ConfigError: a text of a rule cannot be used.
    """

    def __init__(self, rules: Iterable[AclRule] = ()) -> None:
        self.rules = tuple(rules)
        self._for: dict[str, list[int]] = {}  # who -> which rules
        self._permissions: dict[tuple[int, ...], Permission | None] = {}
        self._equal: dict[tuple[frozenset[str], frozenset[str]], Permission | None] = {}
        for number, rule in enumerate(self.rules):
            if not rule.who:
                raise ConfigError("a rule of the access list says who for nobody")
            for who in dict.fromkeys(rule.who):
                if not who:
                    raise ConfigError("a rule of the access list is for an empty name")
                self._for.setdefault(who, []).append(number)
            for text in (*rule.publish, *rule.receive):
                _read(text)

    def permission(self, identity: str | None) -> Permission | None:
        """Return the rights of somebody, None if that is everything.

        Args:
            identity: who it is; None for one who has not logged in.
        """
        if not self.rules:
            return None
        numbers = set(self._for.get(EVERYBODY, ()))
        if identity is not None:
            numbers.update(self._for.get(identity, ()))
        key = tuple(sorted(numbers))
        if key not in self._permissions:
            rules = [self.rules[number] for number in key]
            texts = (
                frozenset(text for rule in rules for text in rule.publish),
                frozenset(text for rule in rules for text in rule.receive),
            )
            if texts not in self._equal:
                made = Permission(*texts)
                self._equal[texts] = None if made.unlimited else made
            self._permissions[key] = self._equal[texts]
        return self._permissions[key]


def _plain(name: bytes) -> bytes:
    """Return the name whose rights ``name`` has."""
    return b"//" + name[len(FORWARD) :] if name.startswith(FORWARD) else name


def _read(text: str) -> bytes | Pattern:
    """Return what a text means: a wildcard, or a name or a beginning of names."""
    exact = text.startswith("=")
    body = text[1:] if exact else text
    start = FORWARD.decode()
    if body.startswith(start):
        body = "//" + body[len(start) :]
    try:
        name = body.encode()
        check_name(name, "text")
        if not exact:
            levels = body.split("/")
            if "+" in levels or "#" in levels:
                return Pattern.slashes(body)
            if "*" in body or "#" in body.split("."):
                return Pattern.dots(body)
    except (ProtocolError, ValueError) as error:
        why = error.text if isinstance(error, ProtocolError) else str(error)
        shown = escape(text.encode("utf-8", "backslashreplace"), 64)
        raise ConfigError(f"the access list has '{shown}': {why}") from None
    return name
