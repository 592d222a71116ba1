"""What may be seen after a fault, and what may not."""

from __future__ import annotations

from collections.abc import Iterator

from soaklib.faults.load import Round
from soaklib.faults.residents import Seen

_MOST = 2  # connections that a fault may cost, if one of them receives what the other says


def cost(seen: Round, links: int) -> int:
    """Return how many connections were lost, links between daemons included."""
    return len(seen.lost) + links


def wrong(seen: Round, fired: int, links: int = 0, *, told: bool = False) -> list[str]:
    """Return what is not as it should be.

    Args:
        seen: by the load.
        fired: how many faults there were.
        links: how many links between daemons have ended.
        told: whether the fault is in what workers tell each other: the messages of a frame are lost
            with it, or those of a moment, if the link had to be made again.
    """
    found = []
    lost = cost(seen, links)
    if lost > _MOST * fired:
        found.append(f"{lost} connections were lost: {seen.lost[:4]}")
    # Who waits for one that was lost, or for a message that was, waits in vain.
    if not fired or not (lost or (told and len(seen.wrong) <= _MOST)):
        found += seen.wrong
    found += seen.stuck
    found += [f"no new connection at {door}" for door in seen.shut]
    found += [
        text
        for one in seen.streams
        for text in _wrong_of(one, seen, excused=links > 0, told=told and fired > 0)
    ]
    return found


def _wrong_of(one: Seen, here: Round, *, excused: bool, told: bool) -> Iterator[str]:
    """Yield what is not as it should be of one stream.

    What a link had not delivered is lost with it; and while ways change, a message may overtake
    another one that goes by a longer way. So may one of a connection that its publisher, or a
    worker, has made anew: receivers who are too many for one turn are sent what came by the old one
    a little later.
    """
    anew = any(text.startswith(f"publisher {one.stream}:") for text in here.lost)
    what = f"{one.sub}<{one.stream}"
    if one.lost and not told and not (excused and one.far):
        yield f"{what} misses {one.lost}: {one.samples}"
    if one.doubled:
        yield f"{what} has {one.doubled} twice: {one.samples}"
    if one.late and not one.far and not anew and not told:
        yield f"{what} has {one.late} out of order: {one.samples}"
    if one.changed:
        yield f"{what} has {one.changed} changed: {one.samples}"
