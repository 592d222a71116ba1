"""Where frames go: sets of peers, and what the broker remembers of a kind of header.

Equal sets of receivers are the same :class:`Targets`, which is the router's doing, and equal shapes
of frames to them the same :class:`Route`. So ``targets is previous`` tells whether two frames go to
the same peers, and ``route is previous`` that they have the same lengths as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from pubsubd.routing.outbox import Pieces
from pubsubd.routing.wildcards import Pattern

_ROUTES = 16_384  # remembered by their lengths


class Sink(Protocol):
    """A receiver of frames.

    Attributes:
        pending: frames put during the present read.
        messages_out: that it was handed so far.
        render: renders some of what it is sent, or sends it if it is rendered, and returns whether
            it is sent;
            None if it is sent messages as they are.
    """

    pending: list[bytes]
    messages_out: int
    render: Callable[[bytes], bool] | None

    @property
    def end(self) -> Callable[[str, str], None]:
        """Closes its connection, for a code and a text."""

    @property
    def enqueue(self) -> Callable[[bytes], None]:
        """Takes frames; they are sent at the end of the read."""

    @property
    def send(self) -> Callable[[bytes | Pieces], None]:
        """Sends frames at once."""


class ReceiveRight(Protocol):
    """Rights to receive; equal ones are the same object."""

    def may_receive(self, name: bytes) -> bool:
        """Return whether a name may be received."""


class Receiver(Sink, Protocol):
    """A peer as routing sees it.

    Attributes:
        label: its name in answers.
        remote: whether it is another daemon, which is reached over links.
    """

    label: str
    remote: bool
    substrings: set[bytes]
    names: set[bytes] | None
    patterns: set[Pattern] | None

    @property
    def permission(self) -> ReceiveRight | None:
        """Return its rights; None for the right to everything."""


class Far(Sink, Protocol):
    """Several other daemons, as one that takes frames."""

    def count(self, messages: int) -> None:
        """Take note that so many messages were put."""

    def post(self, frame: bytes) -> None:
        """Take a message of the daemon itself, and count it."""


Bundle = Callable[[frozenset[Receiver]], Far]
"""Returns what hands frames to several other daemons at once."""


class Targets:
    """A set of peers that frames go to, in the form the broker needs.

    Attributes:
        members: these peers.
        peers: what hands frames to them: themselves, and one for all that are other daemons.
        far: that one for other daemons, the last of ``peers``; None if there are none.
        enqueue: hands bytes to the only peer; None if there is not exactly one, or it is far.
        enqueues: one call each hands bytes to all peers.
        enqueued: messages put in the present read; the broker's.
        handed: those of the last read that was sent.
        cost: how many calls in ``enqueues``.
        special: whether the broker has to deliver frame by frame; False here.
    """

    __slots__ = (
        "__weakref__",
        "cost",
        "enqueue",
        "enqueued",
        "enqueues",
        "far",
        "handed",
        "members",
        "peers",
        "special",
    )

    def __init__(self, members: Iterable[Receiver], bundle: Bundle | None = None) -> None:
        self.members = tuple(members)
        self.peers: tuple[Sink, ...] = self.members
        self.far: Far | None = None
        if bundle is not None and (far := frozenset(peer for peer in self.members if peer.remote)):
            near = [peer for peer in self.members if not peer.remote]
            self.far = bundle(far)
            self.peers = (*near, self.far)
        self.enqueues = tuple(peer.enqueue for peer in self.peers)
        # What goes to other daemons is dearer, so it is counted as what goes to several peers is.
        self.enqueue = self.enqueues[0] if len(self.enqueues) == 1 and self.far is None else None
        self.cost = len(self.enqueues)
        self.enqueued = self.handed = 0
        self.special = False  # read once a run: a slot takes a tenth of the time of the class's


class CopyTargets:
    """The receivers of one ``//x/y``: those of the name itself, and those of its copy only."""

    __slots__ = ("copies", "copy_name", "direct")

    special = True
    far = None
    members: tuple[Receiver, ...] = ()
    peers: tuple[Sink, ...] = ()
    enqueues: tuple[Callable[[bytes], None], ...] = ()
    enqueue = None
    enqueued = handed = cost = 0

    def __init__(self, direct: Targets, copies: Targets, copy_name: bytes) -> None:
        self.direct = direct
        self.copies = copies
        self.copy_name = copy_name


class Denied:
    """The receivers of what its publisher may not publish: nobody."""

    __slots__ = ()

    special = True
    far = None
    members: tuple[Receiver, ...] = ()
    peers: tuple[Sink, ...] = ()
    enqueues: tuple[Callable[[bytes], None], ...] = ()
    enqueue = None
    enqueued = handed = cost = 0


class Route:
    """Where the frames with one kind of header go.

    Attributes:
        targets: the receivers.
        width: bytes of the header and of the LF before it.
        length: bytes of the whole frame, its own LF included.
        enqueue: the targets' own.
    """

    __slots__ = ("enqueue", "length", "targets", "width")

    def __init__(self, targets: Targets | CopyTargets | Denied, width: int, length: int) -> None:
        self.targets = targets
        self.width = width
        self.length = length
        self.enqueue = targets.enqueue


class Routes:
    """The routes there are, one for each set of receivers and lengths of a frame.

    A set of receivers does not know its routes: both would stay until Python looks for cycles, and
    with them the peers.
    """

    __slots__ = ("_routes", "get")

    def __init__(self) -> None:
        self._routes: dict[tuple[object, int, int], Route] = {}
        self.get = self._routes.get

    def make(self, targets: Targets | CopyTargets | Denied, width: int, size: int) -> Route:
        """Return the route to ``targets`` of frames with a header and data of these lengths."""
        route = self._routes.get((targets, width, size))
        if route is None:
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            route = self._routes[targets, width, size] = Route(targets, width, width + size)
        return route

    def clear(self) -> None:
        """Forget all of them; those in use stay as they are."""
        self._routes.clear()
