"""``pubsubd schema``: the messages of the hub port, for programs that check or generate them."""

from __future__ import annotations

import json

import click

from pubsubd.cli.streams import echo
from pubsubd.hub.schema import asyncapi, json_schema

_FORMATS = {"json-schema": json_schema, "asyncapi": asyncapi}


@click.command()
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(_FORMATS)),
    default="json-schema",
    show_default=True,
    help="JSON Schema 2020-12, or AsyncAPI 3.0.",
)
def command(format_: str) -> None:
    """Print the schemas of all messages of the hub port.

    They are generated from the types that read and write the messages.
    """
    echo(json.dumps(_FORMATS[format_](), indent=2))
