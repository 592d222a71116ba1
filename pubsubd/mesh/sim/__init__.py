"""Simulation of a mesh: the real daemons in one process, on a clock of its own."""

from pubsubd.mesh.sim.daemon import Connection, Daemon, End
from pubsubd.mesh.sim.player import Player
from pubsubd.mesh.sim.results import Delivery, Results
from pubsubd.mesh.sim.script import Action, ScriptError, parse_script
from pubsubd.mesh.sim.simulation import Simulation
from pubsubd.mesh.sim.world import World

__all__ = [
    "Action",
    "Connection",
    "Daemon",
    "Delivery",
    "End",
    "Player",
    "Results",
    "ScriptError",
    "Simulation",
    "World",
    "parse_script",
]
