"""Parts that schemas are put together from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
OBJECT_OR_NULL: Schema = {"type": ["object", "null"]}
INTEGER: Schema = {"type": "integer"}
NULL: Schema = {"type": "null"}
ANY: Schema = {}


def record(
    description: str,
    properties: Mapping[str, Schema],
    *,
    needed: Iterable[str] | None = None,
    closed: bool = False,
) -> Schema:
    """Return the schema of an object.

    Args:
        description: one line for a person.
        properties: key -> the schema of its value.
        needed: keys that it has to have; None for all.
        closed: whether it has no others.
    """
    schema: Schema = {
        "description": description,
        "type": "object",
        "properties": dict(properties),
        "required": list(properties if needed is None else needed),
    }
    if closed:
        schema["additionalProperties"] = False
    return schema


def has(*path: str) -> Schema:
    """Return the schema of objects with a value, not null, at the end of a path of keys."""
    key, *rest = path
    inner = has(*rest) if rest else {"not": NULL}
    return {"type": "object", "required": [key], "properties": {key: inner}}


def payloads(
    types: Iterable[type[Struct]], prefix: str, place: str
) -> tuple[Refs, dict[str, Schema]]:
    """Return references to the schemas of types, and these schemas by their names.

    Args:
        types: any number of times each.
        prefix: with which their names begin.
        place: where the references lead, for example ``#/$defs/``.
    """
    types = list(dict.fromkeys(types))
    found, components = msgspec.json.schema_components(
        types, ref_template=f"{place}{prefix}{{name}}"
    )
    named = {f"{prefix}{name}": schema for name, schema in components.items()}
    for schema in named.values():
        del schema["title"]  # the name again
        schema["description"] = _plain(schema["description"])
    return dict(zip(types, found, strict=True)), named


Refs = dict[type[Struct], Schema]


def summary(kind: type[Struct]) -> str:
    """Return the first sentence about a type."""
    return _plain(kind.__doc__ or kind.__name__)


def _plain(docstring: str) -> str:
    """Return the summary of a docstring, without its markup."""
    return " ".join(docstring.partition("\n\n")[0].replace("``", "").split()).rstrip(".")
