"""Tells who would receive a name, and by which subscriptions, as JSON for people to read."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any

from pubsubd.broker.peer import Peer
from pubsubd.broker.turn import Steps, Turn
from pubsubd.protocol import wire
from pubsubd.protocol.errors import ProtocolError
from pubsubd.protocol.limits import MAX_EXPLAINED, MAX_REASONS
from pubsubd.routing.explanation import find_reasons
from pubsubd.routing.router import Router
from pubsubd.routing.targets import Receiver


def explain(
    router: Router, turn: Turn, name: bytes, *, without: Container[Receiver] = ()
) -> Steps[dict[str, Any]]:
    """Return who would receive ``name``, in steps: what ``//pubsubd/explain`` answers.

    It is ``{"name", "count", "receivers": [{"connection", "peer", "substrings", "matching",
    "as"}]}``, where ``as`` is the name that the receiver would see, ``matching`` how many of
    its subscriptions match, and ``count`` how many receivers there are, listed or not. For
    those who subscribe the name itself there is also ``"exact": true``, and for those who do
    so by wildcards ``"patterns"``.

    For another daemon of the mesh ``connection`` is null. Receivers in ``without`` are left out.

    Raises:
        ProtocolError: ``bad-request``, if the name is not legal.
    """
    try:
        wire.check_name(name)
    except ProtocolError as error:
        raise ProtocolError("bad-request", error.text) from None
    receivers: list[dict[str, object]] = []
    count = size = 0
    for found in find_reasons(router, name):
        if turn.over():
            yield
        if found is None or found[0] in without:
            continue
        receiver, seen, why = found
        count += 1
        if size < MAX_EXPLAINED:
            entry: dict[str, object] = {
                "connection": receiver.number if isinstance(receiver, Peer) else None,
                "peer": receiver.label,
                "substrings": [s.decode() for s in why.substrings],
                "matching": why.count + why.exact + len(why.patterns),
                "as": seen.decode(),
            }
            if why.exact:
                entry["exact"] = True
            if why.patterns:
                entry["patterns"] = why.patterns[:MAX_REASONS]
            size += len(json.dumps(entry))
            receivers.append(entry)
    return {"name": name.decode(), "count": count, "receivers": receivers}
