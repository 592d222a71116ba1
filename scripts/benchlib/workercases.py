"""What several workers carry beside one, and how that is measured; see ``cases``.

On a machine whose cores the generator shares, the rates say little. So each case also tells the
processor time of the busiest process: what limits the daemon where there are cores enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .cases import Case, Target, mixed, new_names, one_name
from .meter import process_seconds
from .runners import Reading, Runner
from .servers import Fleet
from .traffic import KIB, Plan, Rig

_VARIANTS = {"one": "no-hub", "two": "workers"}


class WorkersRunner(Runner):
    """``one``, ``two``: messages published a second, with as many workers.

    ``one_s``, ``two_s``: seconds of the busiest process for a million of them.
    """

    def __init__(self, fleet: Fleet, plan: Plan) -> None:
        self._rigs: dict[str, Rig] = {}
        try:
            for metric, variant in _VARIANTS.items():
                self._rigs[metric] = Rig(fleet.get("pubsubd", variant), plan)
        except BaseException:
            self.close()
            raise
        self.server = self._rigs["two"].server

    def settle(self) -> None:
        for rig in self._rigs.values():
            rig.settle()

    def prepare(self, seconds: float) -> None:
        for rig in self._rigs.values():
            rig.verify()
            rig.run(seconds)

    def run(self, seconds: float) -> Reading:
        values = {}
        cores = None
        for metric, rig in self._rigs.items():
            rig.run(seconds / 10)
            pids = rig.server.pids
            before = [process_seconds(pid) for pid in pids]
            sample = rig.run(seconds)
            used = [process_seconds(pid) - had for pid, had in zip(pids, before, strict=True)]
            values[metric] = sample.rate
            values[f"{metric}_s"] = max(used) / sample.messages * 1e6
            cores = sample.cores
        assert cores is not None
        return Reading(values, cores)

    def close(self) -> None:
        for rig in self._rigs.values():
            rig.close()


def _case(name: str, title: str, plan: Callable[[], Plan]) -> Case:
    def make(fleet: Fleet, _server: str) -> Runner:
        return WorkersRunner(fleet, plan())

    targets = (
        Target("two", None, base="one"),
        Target("two_s", 1 / 1.6, base="one_s", lower=True),
    )
    return Case(name, title, make, targets, ("pubsubd",))


WORKER_CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _case(
            "workers-fan-100",
            "1:100, 128 B, two workers beside one",
            lambda: one_name(128, 100, window=256 * KIB),
        ),
        _case(
            "workers-all-to-all",
            "10:10, 16 B, all to all",
            lambda: one_name(16, 10, publishers=10),
        ),
        _case(
            "workers-mixed",
            "4:1, 64 names x 100 lengths",
            lambda: replace(mixed(), publishers=4),
        ),
        _case(
            "workers-new-names",
            "4:1, every name new",
            lambda: replace(new_names(), publishers=4),
        ),
    )
}
