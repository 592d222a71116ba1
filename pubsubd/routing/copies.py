"""Names under which other daemons are given messages.

``//x/y`` has the copy ``//fwd/x/y``. A topic of the hub that the settings name has the copy
``//fwd/hub-topics/MESH/TOPIC``, and subscribers of the topic at another daemon are given that as
the topic itself again.
"""

from __future__ import annotations

from pubsubd.protocol.limits import MAX_NAME
from pubsubd.protocol.wire import FORWARD, HUB, TOPICS, copy_name
from pubsubd.routing.wildcards import Pattern

_SLASHES = b"//"


class Copies:
    """The names that have copies.

    Attributes:
        beginnings: of the topics that travel; none at first.
    """

    __slots__ = ("_prefix", "beginnings")

    def __init__(self) -> None:
        self.beginnings: tuple[bytes, ...] = ()
        self._prefix = TOPICS

    def carry(self, mesh: bytes, beginnings: tuple[bytes, ...]) -> None:
        """Let topics with these beginnings travel in a mesh; before anything is subscribed."""
        self._prefix = b"%b%b/" % (TOPICS, mesh)
        self.beginnings = beginnings

    def of(self, name: bytes) -> bytes | None:
        """Return the name of the copy of ``name``; None if it has none, or that is too long."""
        if name.startswith(_SLASHES):
            return copy_name(name)
        if name.startswith(self.beginnings) and len(self._prefix) + len(name) <= MAX_NAME:
            return self._prefix + name
        return None

    def topic_of(self, copy: bytes) -> bytes | None:
        """Return the topic whose copy ``copy`` is; None if it is that of no topic."""
        if not copy.startswith(self._prefix):
            return None
        topic = copy[len(self._prefix) :]
        carried = topic.startswith(self.beginnings) and not topic.startswith(_SLASHES)
        return topic if carried and topic else None

    def original(self, copy: bytes) -> bytes | None:
        """Return the name whose copy ``copy`` is; None if it is none."""
        if not copy.startswith(FORWARD):
            return None
        return self.topic_of(copy) or _SLASHES + copy[len(FORWARD) :]

    # The interests under //fwd/ that a subscription makes a daemon advertise

    def wanted_by_substring(self, substring: bytes) -> tuple[bytes, ...]:
        """Return the interests that a substring is; nobody may ask for what is for the daemons."""
        forwarded = substring.startswith(FORWARD) and not substring.startswith(HUB)
        return (substring,) if forwarded else ()

    def wanted_by_name(self, name: bytes) -> tuple[bytes, ...]:
        """Return the interests that an exact name is."""
        if name.startswith(_SLASHES):
            return self.wanted_by_substring(name)
        copy = self.of(name)
        return () if copy is None else (copy,)

    def wanted_by_pattern(self, pattern: Pattern) -> tuple[bytes, ...]:
        """Return the interests that a wildcard is: what all names that it matches begin with."""
        start = pattern.start
        if start.startswith(_SLASHES) or not self.beginnings:
            return self.wanted_by_substring(start)
        if pattern.rest and start.endswith(pattern.separator):  # a/# matches a as well
            start = start[: -len(pattern.separator)]
        if len(self._prefix) + len(start) > MAX_NAME:
            return ()
        if start.startswith(self.beginnings):
            return (self._prefix + start,)
        longer = [one for one in self.beginnings if one.startswith(start)]
        return tuple(self._prefix + one for one in longer)
