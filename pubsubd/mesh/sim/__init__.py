"""Simulation of a mesh: the real daemons in one process, on a clock of its own."""

from pubsubd.mesh.sim.player import Player
from pubsubd.mesh.sim.results import ActorResults, Delivery, Results
from pubsubd.mesh.sim.script import Action, ScriptError, parse_script
from pubsubd.mesh.sim.simulation import Simulation

__all__ = [
    "Action",
    "ActorResults",
    "Delivery",
    "Player",
    "Results",
    "ScriptError",
    "Simulation",
    "parse_script",
]
