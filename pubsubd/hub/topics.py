"""Topics as dialects spell them: which are legal, and which are wildcards.

A topic is a line name, whichever dialect it came through. Each dialect restricts names further, and
spells wildcards in its own way.
"""

from __future__ import annotations

import re

from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError, PubsubdError
from pubsubd.routing.wildcards import Pattern

_KNOWN = 256  # names that are remembered: a mebibyte, if they are as long as can be
_HUB_RULE = "^[a-zA-Z0-9/_-]+$"
_is_hub_topic = re.compile(r"[a-zA-Z0-9/_-]+").fullmatch
_is_hub_pattern = re.compile(r"[a-zA-Z0-9/_+#-]+").fullmatch


class TopicError(PubsubdError):
    """A topic that cannot be used.

    Attributes:
        text: why, in one line for a person; anything quoted in it is escaped already.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ForbiddenError(TopicError):
    """A topic that the connection has no right to."""


def check_hub_topic(
    topic: object, any_name: bool, max_length: int, *, publishing: bool = True
) -> bytes:
    """Return the name of a ``hub:*`` topic; raise :class:`TopicError` unless it is legal.

    Args:
        topic: as it came, None if it did not.
        any_name: whether it may be any name of the line protocol.
        max_length: characters.
        publishing: whether it must not be one of the daemon's own names.
    """
    text = _check_hub_text(topic, max_length)
    if not any_name and not _is_hub_topic(text):
        raise TopicError(f"topic {shown(text)} must match {_HUB_RULE}")
    return _check_name(text, publishing)


def hub_pattern(topic: object, any_name: bool, max_length: int) -> Pattern | None:
    """Return the pattern that a ``hub:*`` topic is, or None if it is a name.

    It is one if a level of it, between slashes, is ``+`` or ``#``. Raises :class:`TopicError`
    unless it is legal; of names nothing is checked but that and the length.
    """
    text = _check_hub_text(topic, max_length)
    levels = text.split("/")
    if "+" not in levels and "#" not in levels:
        return None
    if not any_name and not _is_hub_pattern(text):
        raise TopicError(f"topic {shown(text)} must match {_HUB_RULE}, besides + and #")
    _check_name(text, publishing=False)
    try:
        return Pattern.slashes(text)
    except ValueError as error:
        raise TopicError(str(error)) from None


def check_synap_topic(topic: str, *, publishing: bool = True) -> bytes:
    """Return the name of a Synap topic; raise :class:`TopicError` unless it is legal."""
    if not topic:
        raise TopicError("Topic cannot be empty")
    return _check_name(topic, publishing)


def synap_pattern(topic: str) -> Pattern | None:
    """Return the pattern that a Synap topic is, or None if it is a name.

    It is one if it has a ``*``, or if a level of it, between dots, is ``#``. Raises
    :class:`TopicError` unless it is legal.
    """
    levels = topic.split(".")
    if "*" not in topic and "#" not in levels:
        return None
    if "#" in levels[:-1]:
        raise TopicError("# wildcard must be at the end of pattern")
    _check_name(topic, publishing=False)
    try:
        return Pattern.dots(topic)
    except ValueError as error:
        raise TopicError(str(error)) from None


def check_envelope_topic(topic: str) -> bytes | None:
    """Return the name of an envelope's topic, or None unless it is legal and not the daemon's."""
    try:
        return _check_name(topic, publishing=True)
    except TopicError:
        return None


def _check_hub_text(topic: object, max_length: int) -> str:
    if topic is None or topic == "":
        raise TopicError("topic is required")
    if not isinstance(topic, str):
        raise TopicError("topic must be a string")
    if len(topic) > max_length:
        raise TopicError(f"topic has {len(topic)} characters, over {max_length}")
    return topic


class _Names(dict[str, bytes]):
    """Names by their texts; each is checked once, and some are remembered."""

    def __missing__(self, text: str) -> bytes:
        try:
            name = text.encode()
            wire.check_name(name, "topic")
        except UnicodeEncodeError:
            raise TopicError(f"topic {shown(text)} is not Unicode") from None
        except ProtocolError as error:
            raise TopicError(error.text) from None
        if len(self) >= _KNOWN:
            self.clear()
        self[text] = name
        return name


_names = _Names()


def _check_name(text: str, publishing: bool) -> bytes:
    name = _names[text]
    if publishing and name.startswith(wire.OWN):
        raise TopicError(f"topic {shown(text)} is one of the daemon's own")
    return name


def shown(name: bytes | str) -> str:
    """Return a name for a line that a person reads, in quotes."""
    return f"'{wire.escape(name, 64)}'"
