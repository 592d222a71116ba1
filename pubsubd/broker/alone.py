"""A message that comes alone, as most do where few are sent: without the hot loop and its state.

It is at its subscriber up to a tenth earlier.
"""

from __future__ import annotations

from pubsubd.broker.delivery import Delivery
from pubsubd.broker.peer import Peer

MOST = 1_024
"""Bytes of one."""

_FEW = 8  # receivers that take far less than a turn
_LF = 10
_NOTHING = [b"\n"]  # is left of earlier input


def pass_on(delivery: Delivery, peer: Peer, data: bytes) -> bool:
    """Send what ``peer`` has said to its receivers, if it is one frame that is known, for a few.

    Nothing is done, and False returned, if anything is left of earlier input, or to be looked at.
    """
    # Hot path: scripts/bench latency.
    route = delivery.router.routes.get(b"\n" + data[: peer.width - 1])
    if route is None or route.length != len(data) or data[-1] != _LF or peer.parts != _NOTHING:
        return False
    targets = route.targets
    if (
        targets.special
        or targets.far is not None
        or targets.cost > _FEW
        or peer.publish_filter is not None
        or delivery.touched
        or delivery.outbound
        or delivery.siblings
        or delivery.sampler is not None
    ):
        return False
    delivery.counters.messages_in += 1
    peer.expected = 0
    delivery.hand(targets.peers, data, 1, None if peer.echo else peer)
    return True
