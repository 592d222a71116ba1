"""The schemas of ``pubsubd schema``, to hold messages against them."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from pubsubd.hub.schema import json_schema

SCHEMA = json.loads(json.dumps(json_schema()))
"""The JSON Schema document, as a reader of its text has it."""

DEFINITIONS = [ref["$ref"].removeprefix("#/$defs/") for ref in SCHEMA["anyOf"]]
"""The definitions of messages."""

_REGISTRY = Registry().with_resource(SCHEMA["$id"], DRAFT202012.create_resource(SCHEMA))


@cache
def validator(name: str) -> Any:
    """Return what validates by one definition."""
    kind = jsonschema.Draft202012Validator
    return kind(
        {"$ref": f"{SCHEMA['$id']}#/$defs/{name}"},
        registry=_REGISTRY,
        format_checker=kind.FORMAT_CHECKER,
    )


def kinds_of(message: Any, who: str) -> list[str]:
    """Return the definitions that a message of ``client`` or ``daemon`` satisfies."""
    return [
        name
        for name in DEFINITIONS
        if name.startswith(f"{who}_") and validator(name).is_valid(message)
    ]
