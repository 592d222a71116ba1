"""When registrations at other workers of the daemon expire.

They are renewed without telling anybody, so a list of actors asks for it.
"""

from __future__ import annotations

from msgspec.msgpack import decode, encode

from pubsubd.broker.turn import Steps
from pubsubd.hub.core import HubCore
from pubsubd.hub.federation import is_near
from pubsubd.hub.mirrors import FoundInMesh

EXPIRIES = b"hub-expiries"
"""The question for it."""


def find_expiries(hub: HubCore, page: FoundInMesh) -> Steps[dict[str, int]]:
    """Return when actors of other workers expire, in epoch milliseconds, by their keys; in steps.

    Those of workers that do not answer are left out.
    """
    keys = [actor.key for node, actor in page.actors if node is not None and is_near(node)]
    found: dict[str, int] = {}
    if keys and hub.elsewhere is not None:
        for text in (yield from hub.elsewhere(EXPIRIES, encode(keys))):
            found |= decode(text, type=dict[str, int])
    return found


def answer_expiries(hub: HubCore, data: bytes) -> bytes:
    """Answer another worker."""
    now, get = hub.ticks(), hub.registry.get
    actors = [get(key, now) for key in decode(data, type=list[str])]
    return encode({one.key: hub.date(one.expires_at) for one in actors if one is not None})
