"""``pubsubd schema``: it prints the schemas that the package has."""

from __future__ import annotations

import json
from typing import Any

from pubsubd.hub.schema import asyncapi
from tests import forks
from tests.running import command_line, environment
from tests.schemas import SCHEMA


def run_schema(*words: str) -> Any:
    done = forks.run(
        command_line("schema", *words), capture_output=True, check=True, env=environment()
    )
    return json.loads(done.stdout)


def test_the_command_prints_the_json_schema() -> None:
    assert run_schema() == run_schema("--format", "json-schema") == SCHEMA


def test_the_command_prints_the_asyncapi_document() -> None:
    assert run_schema("--format=asyncapi") == json.loads(json.dumps(asyncapi()))
