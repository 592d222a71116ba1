"""Adverts sent and received, without I/O.

This daemon advertises at once when its links change, after a pause when its interests change, and
otherwise now and then. A newer advert of another daemon is passed on at once, any other to nobody.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from pubsubd import __version__
from pubsubd.broker.broker import Broker
from pubsubd.broker.turn import Steps
from pubsubd.mesh.adverts import (
    MAX_INCARNATION,
    MAX_LINKS,
    Advert,
    AdvertError,
    format_advert,
    parse_advert,
    read_stamp,
)
from pubsubd.mesh.directory import Directory
from pubsubd.mesh.forwarding import Forwarding
from pubsubd.mesh.interests import MAX_INTEREST_BYTES, MAX_INTERESTS, generalising
from pubsubd.mesh.letters import LETTERS
from pubsubd.mesh.link import Link
from pubsubd.mesh.linkstate import MAX_DAEMONS
from pubsubd.mesh.news import News
from pubsubd.mesh.remote_interests import RemoteInterests
from pubsubd.mesh.state import State
from pubsubd.protocol.limits import MAX_NAME

_SETTLE = 0.02  # seconds in which changes of the graph are gathered

PACE = 0.1
"""Seconds between two adverts, but for those of links."""

_ADVERT_RATE = 50_000.0  # bytes a second that large adverts may come to

REFRESH = 10.0
"""Seconds between two adverts if nothing changes, in a small mesh."""

REFRESH_RATE = 3_000.0
"""Bytes a second that all adverts together may come to for one daemon."""

_CLAIMS = 3  # adverts of our own id by somebody else within CLAIM_TIME: it runs twice

CLAIM_TIME = 10.0
"""Seconds in which adverts of this daemon's id by another one are counted."""


class Advertising:
    """The sender of this daemon's adverts, and the receiver of all others'.

    Args:
        state: the daemon's.
        broker: the daemon's.
        forwarding: batches of messages.
        news: the adverts as they are sent.
        remote_interests: the subscriptions of other daemons.
        directory: the claims of all daemons.
        rng: for jitter.
        wake: called with a time at which something has to be done.
        withdraw: called when another daemon has this one's id, and this one has to give way.

    Attributes:
        settle_at: when the paths through a changed graph are to be found.
    """

    def __init__(
        self,
        state: State,
        broker: Broker,
        forwarding: Forwarding,
        news: News,
        remote_interests: RemoteInterests,
        directory: Directory,
        *,
        rng: random.Random,
        wake: Callable[[float], None],
        withdraw: Callable[[], None],
    ) -> None:
        self._state = state
        self._broker = broker
        self._forwarding = forwarding
        self._news = news
        self._remote_interests = remote_interests
        self._directory = directory
        self._rng = rng
        self._wake = wake
        self._withdraw = withdraw
        self.settle_at = float("inf")
        self._number = 0
        self._begun = self._sent = 0  # adverts of this process
        self._interests_size = 0  # bytes of the interests in the last advert
        self._version = 0  # of the graph that was acted on
        self._changed_at = float("inf")  # when the next advert is due because of a change
        self._advertised = float("-inf")
        self._jitter = 1.0
        self._refresh_at = state.now()
        self._claims: list[float] = []

    # Out

    @property
    def due(self) -> float:
        """The time at which this daemon's next advert is to be sent."""
        return min(self._changed_at, self._refresh_at)

    @property
    def progress(self) -> tuple[int, int]:
        """Which advert has, or will have, all interests of now; and which was sent last.

        They are numbered from 1 in this process.
        """
        return self._begun + (self._changed_at < float("inf")), self._sent

    def links_changed(self) -> None:
        """Advertise at once."""
        self._changed_at = min(self._changed_at, self._state.now())

    def interests_changed(self, cost: float) -> None:
        """Advertise after a pause: of ``cost`` seconds at least, and longer after large adverts."""
        self._forwarding.look_closely()
        pace = max(PACE, cost, self._interests_size / _ADVERT_RATE)
        at = max(self._state.now(), self._advertised + pace)
        self._changed_at = min(self._changed_at, at)
        self._wake(self._changed_at)

    def _refresh_period(self) -> float:
        """Return the seconds between two adverts if nothing changes."""
        links = max(1, len(self._state.links))
        return max(REFRESH, self._news.size * links / REFRESH_RATE)

    def advertise(self) -> Steps[bool]:
        """Send an advert if one is due, in steps; return whether one was sent."""
        now = self._state.now()
        if now < self.due:
            return False
        # What a refresh costs may have changed since it was planned.
        self._refresh_at = self._advertised + self._refresh_period() * self._jitter
        if now < self.due:
            return False
        self._advertised, self._changed_at = now, float("inf")
        self._begun += 1
        try:
            yield from self._advertising(now)
        except Exception:
            self._changed_at = now  # the others have not been told
            raise
        return True

    def _advertising(self, now: float) -> Steps[None]:
        state = self._state
        self._jitter = self._rng.uniform(0.75, 1.0)
        self._refresh_at = now + self._refresh_period() * self._jitter
        forwarded = self._broker.router.forwarded
        interests = yield from generalising(
            forwarded, MAX_INTERESTS - LETTERS, MAX_INTEREST_BYTES - LETTERS * MAX_NAME
        )
        interests = (*interests, *self._directory.letters.interests)
        self._interests_size = sum(map(len, interests))
        self._forwarding.note_advertised(interests)
        self._number += 1
        ready = [link for link in state.links.values() if link.ready][:MAX_LINKS]
        advert = Advert(
            state.node,
            state.config.host,
            state.config.port,
            state.incarnation,
            self._number,
            state.start,
            tuple(link.report() for link in ready),
            interests,
            version=__version__,
            site=state.config.site,
            rack=state.config.rack,
            hub=self._directory.report(),
        )
        data = format_advert(advert)
        state.table.put(advert)
        self._news.keep(advert.node, self._news.frame(advert.node, data))
        self._note_graph()
        yield from self._news.announcing(advert.node)
        self._sent = self._begun
        self._news.publish(advert.node, data)

    # In

    def take(self, link: Link, node: str, data: bytes) -> None:
        """Take an advert from ``link``."""
        state, table, news = self._state, self._state.table, self._news
        state.counters.adverts_in += 1
        state.counters.advert_bytes_in += len(data)
        try:
            stamp = read_stamp(data)
            known = table.adverts.get(node)
            if known is not None and stamp <= known.stamp:
                if stamp[0] < known.incarnation:  # somebody still believes in an earlier one
                    news.send(link, node)
                return
            if known is None and len(table.adverts) >= MAX_DAEMONS:
                raise AdvertError(f"there are {MAX_DAEMONS} daemons already")
            advert = parse_advert(node, data)
            if node != state.node and not table.has_room(advert):
                raise AdvertError("the table of all adverts has no room for it")
        except AdvertError as error:
            state.refuse("bad-advert", str(error), link.address)
            return
        if node == state.node:
            self._claim(advert)
            return
        if known is not None and known.incarnation != advert.incarnation:
            self._forwarding.forget(node)  # batches of the earlier incarnation are not taken now
        news.keep(node, news.frame(node, data))
        try:
            table.put(advert)
            self._directory.note(node)
            self._note_graph()
            news.announce(node, link)  # at once: adverts go before the batches that rest on them
            if known is None or known.interests != advert.interests:
                self._remote_interests.reconcile(node)
                self._wake(state.now())
            if not news.publish(node, data):
                self._wake(state.now())
        except Exception:
            table.drop(node)  # so that it is taken in whole when it comes again, by whichever link
            news.forget(node)
            self._note_graph()
            raise

    def _claim(self, advert: Advert) -> None:
        """Act on an advert of this daemon's id that is newer than its own.

        It is left from an earlier start, or another daemon has the same id and is alive. Of two
        such, the one that started later withdraws.
        """
        state, now = self._state, self._state.now()
        state.incarnation = min(MAX_INCARNATION, max(state.incarnation, advert.incarnation) + 1)
        if state.incarnation == advert.incarnation:
            self._number = max(self._number, advert.sequence)
        self._claims = [at for at in self._claims if now - at < CLAIM_TIME]
        if advert.start < state.start:
            self._claims.append(now)
        if len(self._claims) >= _CLAIMS:
            self._claims.clear()
            self._withdraw()
        self._changed_at = now
        self._wake(now)

    def _note_graph(self) -> None:
        """Act on a change of the graph, if there was one."""
        state = self._state
        if state.table.version != self._version:
            self._version = state.table.version
            self._forwarding.flood()
            if self.settle_at == float("inf"):
                self.settle_at = state.now() + _SETTLE
                self._wake(self.settle_at)
