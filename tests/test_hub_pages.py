"""Does pubsubd-hub(7) say what the hub port does? Its examples are carried out, and more.

In an example, what differs each time is named: ``<uuid>``, ``<hex>``, ``<port>`` inside of texts,
``<ms>``, ``<s>``, ``<n>`` in place of numbers; ``...`` stands for keys or items that are left out.
Each message of the examples, and each that the daemon sends meanwhile, is also checked against the
generated schemas.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from pubsubd import errors
from pubsubd.hub import schema
from pubsubd.hub.signal import REQUESTS
from pubsubd.limits import HubLimits
from tests.daemons import ROOT, Daemon, Line
from tests.hubs import Lines
from tests.running import command_line, environment

PAGE = (ROOT / "man" / "pubsubd-hub.7").read_text(encoding="utf-8")
SCHEMA = json.loads(json.dumps(schema.json_schema()))
MESSAGES = [ref["$ref"].removeprefix("#/$defs/").replace("%20", " ") for ref in SCHEMA["anyOf"]]

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PLACES = {"<uuid>": _UUID, "<hex>": "[0-9a-f]{32}", "<port>": "[0-9]+"}


def blocks() -> list[list[tuple[str, str]]]:
    """Return the examples of the page: who says what, in order."""
    found = []
    for text in re.findall(r"^\.Bd -literal\n(.*?)^\.Ed", PAGE, flags=re.MULTILINE | re.DOTALL):
        lines: list[tuple[str, str]] = []
        for line in text.replace("\\en", "\\n").splitlines():
            if line.startswith("   "):
                who, said = lines.pop()
                lines.append((who, said + line.strip()))
            else:
                who, _, said = line.partition(" ")
                lines.append((who, said))
        found.append(lines)
    return found


BLOCKS = blocks()


def expected(text: str) -> Any:
    """Return what an example shows as a value, with its placeholders as texts."""
    text = re.sub(r":<(ms|s|n)>", r':"<\1>"', text)
    text = text.replace(",...}", ',"...":0}').replace("[...]", '["..."]')
    return json.loads(text)


def same(shown: Any, real: Any) -> bool:
    """Return whether a real value is what is shown."""
    if isinstance(shown, str) and shown in ("<ms>", "<s>", "<n>"):
        return isinstance(real, int if shown != "<n>" else int | float)
    if isinstance(shown, str) and isinstance(real, str):
        pattern = re.escape(shown)
        for place, meaning in _PLACES.items():
            pattern = pattern.replace(re.escape(place), meaning)
        return re.fullmatch(pattern, real) is not None
    if isinstance(shown, dict) and isinstance(real, dict):
        keys = set(shown) - {"..."}
        whole = "..." in shown or keys == set(real)
        return whole and keys <= set(real) and all(same(shown[key], real[key]) for key in keys)
    if isinstance(shown, list) and isinstance(real, list):
        if shown == ["..."]:
            return True
        return len(shown) == len(real) and all(map(same, shown, real))
    return bool(shown == real) and type(shown) is type(real)


REGISTRY = Registry().with_resource("urn:pubsubd:hub", DRAFT202012.create_resource(SCHEMA))


def kinds_of(message: Any, who: str) -> list[str]:
    """Return the definitions that a message satisfies, of those for ``client`` or ``hub``."""
    found = []
    for name in MESSAGES:
        if not name.startswith(who + " "):
            continue
        reference = {"$ref": f"urn:pubsubd:hub#/$defs/{name.replace(' ', '%20')}"}
        validator = jsonschema.Draft202012Validator(
            reference,
            registry=REGISTRY,
            format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
        )
        if validator.is_valid(message):
            found.append(name)
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=[f"{lines[0][1][:40]}" for lines in BLOCKS])
def test_the_examples_are_carried_out(
    shared: Daemon, dial: Callable[..., Line], block: list[tuple[str, str]]
) -> None:
    hub, line = Lines(shared), None
    for who, said in block:
        if who == "C:":
            message = json.loads(said)
            assert kinds_of(message, "client"), said
            hub.say(message)
        elif who == "D:":
            real = hub.hear()
            assert same(expected(said), real), f"{said}\n{json.dumps(real)}"
            assert kinds_of(real, "hub"), real
        else:
            line = line or dial(shared)
            if who == "nc>":
                line.say(said.encode() + b"\n")
                if said.startswith("sub"):
                    assert line.ping() == b""
            else:
                assert who == "nc<"
                name, data = line.hear_frame()
                frame = f"pub {name} {len(data)} {data.decode()}"
                # The length depends on how many digits the port has.
                pattern = re.escape(said).replace(re.escape("<port>"), "[0-9]+")
                pattern = re.sub(r"^pub\\ (\S+)\\ \d+\\ ", r"pub\\ \1\\ \\d+\\ ", pattern)
                assert re.fullmatch(pattern, frame), frame
    if any("hub:disconnect" in said for who, said in block if who == "C:"):
        assert hub.hear_rest() == b""
    else:
        hub.say({"type": "ping"})
        assert hub.hear() == {"type": "pong"}
    hub.close()


def test_the_page_shows_every_message() -> None:
    for name in [*REQUESTS, *schema.REPLIES, *schema.COMMANDS, "__subscribe", "__unsubscribe"]:
        assert name in PAGE, name


def test_the_page_tells_every_reason_for_an_end() -> None:
    section = PAGE.split(".Sh ENDINGS\n")[1].split(".Sh ")[0]
    told = set(re.findall(r"^\.It Li (\S+)", section, flags=re.MULTILINE))
    of_line_only = {"wrong-length", "payload-too-large", "line-too-long", "http-request"}
    assert told == (set(errors.CLOSES) | set(errors.HUB_CLOSES)) - of_line_only - {
        "too-many-connections"
    }


def test_the_page_tells_every_error_code() -> None:
    section = PAGE.split(".Ss Errors\n")[1].split(".Sh ")[0]
    told = set(re.findall(r"^\.It Li (\S+)", section, flags=re.MULTILINE))
    codes = SCHEMA["$defs"]["Error"]["properties"]["code"]["enum"]
    assert told == set(codes)


def test_the_page_names_every_limit_with_its_default() -> None:
    for field in dataclasses.fields(HubLimits):
        flag = f"Fl -hub-{field.name.replace('_', '-')}"
        assert flag in PAGE, flag
    defaults = HubLimits()
    for shown, value in {
        "100 messages at once": defaults.burst,
        "100 a minute": defaults.rate,
        "50,000 actors": defaults.max_actors,
        "every 60 seconds": defaults.heartbeat,
        "holds 300 seconds": defaults.ttl,
        "longer than 3600": defaults.max_ttl,
        "at most 256 characters": defaults.topic_length,
        "Up to 1,000,000": defaults.max_topics,
        "10,000 subscribers of one": defaults.max_topic_subscribers,
        "10,000 wildcard subscriptions": defaults.max_wildcards,
        "100,000 subscribers": defaults.max_subscribers,
        "1000 actors": defaults.page,
    }.items():
        (number,) = re.findall(r"[\d,]+", shown)
        assert int(number.replace(",", "")) == value
        assert shown in " ".join(PAGE.split()), shown


# The schemas


def test_the_schemas_are_schemas_whose_references_lead_somewhere() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for reference in re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(SCHEMA)):
        assert reference.replace("%20", " ") in SCHEMA["$defs"]


def test_the_schemas_cover_every_request_and_reply() -> None:
    for name in REQUESTS:
        assert f"client {name}" in MESSAGES
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "pubsubd/hub/signal").glob("*.py")
    )
    sent = set(re.findall(r'"(hub:[a-z_]+)"', sources)) - set(REQUESTS) | {"hub:disconnect"}
    sent |= {"hub:topic_info"}
    assert sent == set(schema.REPLIES)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "hub:publish", "payload": {"type": "x"}},
        {"type": "hub:publish", "payload": {"topic": 7, "type": "x"}},
        {"type": "hub:publish"},
        {"type": "hub:subscribe", "payload": None},
        {"type": "hub:nothing", "payload": {}},
        {"type": "a", "id": "1"},
        {"type": "a", "id": "1", "payload": 1, "more": 2},
        {"type": "__subscribe", "id": "", "payload": {}},
        {"command": "pubsub.publish", "payload": {"payload": 1}},
        {"command": "pubsub.nothing"},
        {},
        [],
        7,
    ],
)
def test_what_is_no_message_satisfies_no_schema(message: Any) -> None:
    assert kinds_of(message, "client") == []


def run_schema(*words: str) -> Any:
    done = subprocess.run(
        command_line("schema", *words), capture_output=True, check=True, env=environment()
    )
    return json.loads(done.stdout)


def test_the_command_prints_them() -> None:
    assert run_schema() == run_schema("--format", "json-schema") == SCHEMA


def test_the_asyncapi_document_is_whole() -> None:
    document = run_schema("--format=asyncapi")
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(document["info"])
    text = json.dumps(document)
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', text)):
        place = document
        for step in reference.split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")]
    for kind in ("messages", "schemas"):
        for key in document["components"][kind]:
            assert re.fullmatch(r"[a-zA-Z0-9._-]+", key), key
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        assert operation["channel"]["$ref"].startswith("#/channels/")
        for message in operation["messages"]:
            assert message["$ref"].startswith(operation["channel"]["$ref"] + "/messages/")
    said = {entry["name"] for entry in document["components"]["messages"].values()}
    assert {name.partition(" ")[2] for name in MESSAGES} == said
