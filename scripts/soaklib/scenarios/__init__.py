"""What ``scripts/chaos`` does, a file for each scenario.

Each has a docstring that says what is done and what has to be seen, and a
:class:`~soaklib.scenario.Scenario` that does it.
"""

from __future__ import annotations

from soaklib.scenario import Scenario

from . import (
    clock,
    descriptors,
    draining,
    faults,
    full_disk,
    handshakes,
    hostile,
    killing,
    loris,
    memory_max,
    reloading,
    upgrading,
    worker_faults,
)

SCENARIOS: dict[str, Scenario] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        reloading,
        draining,
        handshakes,
        descriptors,
        killing,
        upgrading,
        full_disk,
        memory_max,
        clock,
        loris,
        hostile,
        faults,
        worker_faults,
    )
}
"""Name -> scenario, in the order in which they are run."""
