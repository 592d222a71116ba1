"""The messages of the hub port as JSON Schemas, and as an AsyncAPI document.

Strategy: the payloads are generated from the types that read and write them; around them stands
what every message of its dialect has. Each message is a definition of its own, named after who
sends it and what it is: ``client_hub_publish``, ``daemon_hub_published``.

A message of a client that satisfies a schema is one that the daemon reads; whether it carries it
out depends on its settings, and on what there is. Every message of the daemon satisfies one.
Nothing else of the package needs these modules.
"""

from pubsubd.hub.schema.asyncapi import asyncapi
from pubsubd.hub.schema.definitions import json_schema

__all__ = ["asyncapi", "json_schema"]
