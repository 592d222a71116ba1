"""Attacks on one daemon, by what they are aimed at, for ``scripts/chaos hostile``.

``attack``
    what an attack is, and which there are
``stage``, ``parts``, ``forger``
    what it has to do it with: connections, what is said, and links of a mesh
``bounds``
    what it may make the daemon keep
``requests``, ``commands``, ``receivers``
    the line port: what the daemon answers itself, what is said there, who receives it
``actors``, ``topics``, ``synap``, ``web``, ``texts``
    the hub port: the three dialects, HTTP, and what carries them
``mesh``, ``letters``
    links, adverts and batches; the hub across the mesh
``workers``
    what workers tell each other of what their clients do
``wires``, ``proxies``
    connections, and TLS; what proxies say before and in requests

Importing a module adds its attacks to :data:`~soaklib.attacks.attack.ATTACKS`.
"""

from __future__ import annotations

from . import (
    actors,
    commands,
    letters,
    mesh,
    proxies,
    receivers,
    requests,
    synap,
    texts,
    topics,
    web,
    wires,
    workers,
)
from .attack import ATTACKS

__all__ = [
    "ATTACKS",
    "actors",
    "commands",
    "letters",
    "mesh",
    "proxies",
    "receivers",
    "requests",
    "synap",
    "texts",
    "topics",
    "web",
    "wires",
    "workers",
]
