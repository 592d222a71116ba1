"""Attacks on one daemon, by what they are aimed at, for ``scripts/chaos hostile``.

``stage``
    what an attack is, and what it has to do it with
``requests``, ``commands``, ``receivers``
    the line port: what the daemon answers itself, what is said there, who receives it
``actors``, ``topics``, ``synap``, ``web``, ``texts``
    the hub port: the three dialects, HTTP, and what carries them
``mesh``
    links, adverts and batches
``wires``
    connections, and TLS

Importing a module adds its attacks to :data:`~soaklib.attacks.stage.ATTACKS`.
"""

from __future__ import annotations

from . import actors, commands, mesh, receivers, requests, synap, texts, topics, web, wires
from .stage import ATTACKS

__all__ = [
    "ATTACKS",
    "actors",
    "commands",
    "mesh",
    "receivers",
    "requests",
    "synap",
    "texts",
    "topics",
    "web",
    "wires",
]
