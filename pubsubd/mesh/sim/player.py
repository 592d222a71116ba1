"""The player of scripts in a simulation."""

from __future__ import annotations

from collections.abc import Iterable

from pubsubd.mesh.sim.script import (
    Action,
    ScriptError,
    read_seconds,
    read_share,
    read_skew,
    read_times,
)
from pubsubd.mesh.sim.simulation import Simulation


class Player:
    """Carries out the actions of a script."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim

    def play(self, actions: Iterable[Action]) -> None:
        """Schedule the actions of a script.

        Raises:
            ScriptError: one of them names an unknown daemon or link.
        """
        for action in actions:
            if action.verb in ("cut", "swallow", "heal"):
                self._sim.find_pair(*action.args)
            elif action.verb == "actors":
                pass
            elif not action.args[0].endswith("%") and action.args[0] not in ("all", "any"):
                self._sim.find(action.args[0])
            self._sim.schedule(action.at, self._act, action)

    def _act(self, action: Action) -> None:
        """Carry out an action; raise :class:`ScriptError` if that is impossible."""
        verb, args = action.verb, action.args
        try:
            if verb in ("kill-random", "vanish-random"):
                self._sim.kill_random(read_share(args[0]), silent=verb == "vanish-random")
            elif verb in ("cut", "swallow", "heal"):
                getattr(self._sim, verb)(*args)
            elif verb == "publish":
                self._publish(args[0], args[1], read_times(*args[2:3]), read_seconds(*args[3:]))
            elif verb == "actors":
                rate = read_seconds(args[1]) if len(args) > 1 else 0.0
                self._sim.register(read_times(args[0]), rate)
            elif verb == "start" and args[0] == "all":
                self._sim.start_all()
            else:
                for node in self._nodes(args[0]):
                    if verb in ("kill", "vanish"):
                        self._sim.kill(node, silent=verb == "vanish")
                    elif verb == "skew":
                        self._sim.daemons[node].skew = read_skew(args[1])
                    else:
                        getattr(self._sim, verb)(node, *args[1:])
        except ScriptError as error:
            raise ScriptError(f"at {action.at:g} {action}: {error}") from None

    def _publish(self, whom: str, name: str, left: int, pause: float) -> None:
        for node in self._nodes(whom):
            self._sim.publish(node, name)
        if left > 1:
            self._sim.schedule(self._sim.now + pause, self._publish, whom, name, left - 1, pause)

    def _nodes(self, whom: str) -> list[str]:
        """Return the daemons that a word of a script stands for."""
        if whom in self._sim.daemons:
            return [whom]
        living = [daemon.node for daemon in self._sim.living()]
        if whom == "all":
            return living
        if whom == "any":
            return [self._sim.rng.choice(living)] if living else []
        if whom.endswith("%"):
            return self._sim.choose(read_share(whom))
        return [self._sim.find(whom).node]
