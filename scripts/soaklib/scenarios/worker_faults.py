"""One exception, once each, in every function that has to do with several workers.

As "faults", with a daemon of two workers: it is thrown in the supervisor or in one of them, in the
functions by which they know of each other, and pass connections, links and settings. It has to
cost no more than there, and no worker; but messages from one worker to another may be lost, those
of a read, or of the second in which the two are given another link.
"""

from __future__ import annotations

from soaklib.scenario import Scenario, Setting
from soaklib.scenarios import faults
from soaklib.verdict import Verdict

_PART = ("siblings.*", "daemon.workers.*", "daemon.joined_metrics.*", "hub.listing.*")


def run(setting: Setting, verdict: Verdict) -> None:
    """Do it."""
    faults.run(setting, verdict, 2, _PART)


SCENARIO = Scenario("worker-faults", __doc__ or "", run)
