"""All messages, of all dialects, and one JSON Schema document of them."""

from __future__ import annotations

from pubsubd import __version__
from pubsubd.hub import messages
from pubsubd.hub.schema import signal, synap
from pubsubd.hub.schema.parts import ANY, TEXT, Schema, payloads, record

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> Schema:
    """Return a document with a definition for each message, and one for any of them."""
    place = "#/$defs/"
    spoken, others = definitions(place)
    return {
        "$schema": DIALECT,
        "$id": "urn:pubsubd:hub",
        "title": "Messages of pubsubd's hub port",
        "description": f"pubsubd {__version__}; see pubsubd-hub(7)",
        "anyOf": [{"$ref": f"{place}{name}"} for name in spoken],
        "$defs": spoken | others,
    }


def definitions(place: str) -> tuple[dict[str, Schema], dict[str, Schema]]:
    """Return the messages by name, and then what they refer to, and what only HTTP has.

    Args:
        place: where the references to the latter lead, for example ``#/$defs/``.
    """
    of_hub, hub_payloads = payloads(signal.TYPES, "Hub", place)
    of_synap, synap_payloads = payloads(synap.TYPES, "Synap", place)
    of_envelopes, envelope_payloads = payloads([messages.Topic], "Envelope", place)
    spoken = (
        signal.requests(of_hub)
        | signal.replies(of_hub)
        | signal.deliveries()
        | synap.commands(of_synap)
        | synap.answers(of_synap)
        | synap.pushes()
        | _envelopes(of_envelopes[messages.Topic])
        | {
            "client_ping": record("A sign of life", {"type": {"const": "ping"}}, closed=True),
            "daemon_pong": record("The answer to a ping", {"type": {"const": "pong"}}, closed=True),
        }
    )
    return spoken, (hub_payloads | synap_payloads | envelope_payloads | synap.over_http(of_synap))


def _envelopes(topic: Schema) -> dict[str, Schema]:
    part = {"type": "string", "pattern": messages.WORD}
    kind = part | {"minLength": 1, "not": {"pattern": "^(__|hub:)"}}
    found = {
        f"client{kind}": record(
            f"An envelope that asks to {kind.strip('_')}",
            {"type": {"const": kind}, "id": TEXT, "payload": topic},
            closed=True,
        )
        for kind in ("__subscribe", "__unsubscribe")
    }
    found["client_envelope"] = record(
        "An envelope, whose topic is type:id",
        {"type": kind, "id": part, "payload": ANY},
        closed=True,
    )
    found["daemon_envelope"] = record(
        "An envelope of another connection, or what came otherwise on its topic",
        {"type": TEXT, "id": TEXT, "payload": ANY},
        closed=True,
    )
    return found
