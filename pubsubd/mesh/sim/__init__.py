"""The real daemons on a clock of their own, for meshes that are too large for one machine."""

from pubsubd.mesh.sim.player import Player
from pubsubd.mesh.sim.results import Delivery, Results
from pubsubd.mesh.sim.script import Action, ScriptError, parse_script
from pubsubd.mesh.sim.simulation import Simulation

__all__ = ["Action", "Delivery", "Player", "Results", "ScriptError", "Simulation", "parse_script"]
