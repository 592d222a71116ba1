"""Receivers of a name, and waiting for them."""

from __future__ import annotations

import json
import os
from typing import Any

import click
import trio

from pubsubd.client.line import Client
from pubsubd.protocol.wire import escape

_LOOK = 0.05  # seconds between two looks for receivers: a fifth of the requests that are allowed


async def wait_for_receivers(
    client: Client,
    name: str,
    least: int,
    timeout: float | None,  # noqa: ASYNC109  (the commands' own meaning)
) -> dict[str, Any]:
    """Wait until at least ``least`` connections would receive ``name``.

    Returns:
        The daemon's answer to ``//pubsubd/explain``.

    Raises:
        ClickException: that takes longer than ``timeout`` seconds.
    """
    end = float("inf") if timeout is None else trio.current_time() + timeout
    while True:
        answer = await client.request("//pubsubd/explain", os.fsencode(name))
        found: dict[str, Any] = json.loads(answer)
        if found["count"] >= least:
            return found
        if trio.current_time() > end:
            raise click.ClickException(
                f"timed out after {timeout:g} s:"
                f" {found['count']} of {least} would receive {escape(name)}"
            )
        await trio.sleep(_LOOK)
