"""Answers of the daemon that come in pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from pubsubd.cli.answers import read_answer
from pubsubd.client import Client
from pubsubd.protocol.errors import PubsubdError


class _Page(msgspec.Struct):
    """What pages have in common."""

    following: int | None = msgspec.field(name="next", default=None)


async def ask_pages(client: Client, name: str, lists: Sequence[str]) -> bytes:
    """Return the daemon's answer to a request, all of its pages as one JSON object.

    Args:
        client: is connected to the daemon.
        name: of the request; its data is the number of rows to skip.
        lists: the keys of the object whose lists go on from page to page.

    Raises:
        PubsubdError: the answer is not what it should be.
    """
    what = name.rpartition("/")[2]
    answer = await client.request(name, "0")
    following = read_answer(answer, _Page, what).following
    if following is None:
        return answer
    whole, offset = json.loads(answer), 0
    while following is not None:
        if following <= offset:
            raise PubsubdError(f"the daemon's pages of {what} do not advance")
        offset = following
        answer = await client.request(name, str(offset))
        following = read_answer(answer, _Page, what).following
        page: dict[str, Any] = json.loads(answer)
        for key in lists:
            more = page.get(key, [])
            if not isinstance(more, list):
                raise PubsubdError(f"the daemon's answer has no {what}: {key} is not a list")
            whole[key] = whole.get(key, []) + more
    return json.dumps(whole | {"next": None}).encode()
