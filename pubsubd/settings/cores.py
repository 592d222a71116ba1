"""How many cores this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")


def usable_cores(process: Path = _PROCESS, groups: Path = _GROUPS) -> int:
    """Return how many cores this process may use, at least 1.

    These are the ones that it may run on (see sched_setaffinity(2)), but no more than the quotas of
    its control groups give it, rounded up: systemd's ``CPUQuota=`` and ``docker --cpus`` set these.

    Args:
        process: the file that says which control group this process is in; see cgroups(7).
        groups: where control groups of version 2 are mounted.
    """
    cores = len(os.sched_getaffinity(0))
    return max(1, min([cores, *map(math.ceil, _quotas(process, groups))]))


def _quotas(process: Path, groups: Path) -> Iterator[float]:
    """Yield the quotas, in cores, of the control group of this process and of those around it."""
    try:
        lines = process.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        if line.startswith("0::/"):  # version 2
            # In a container, the path may be that of the host, of which the container sees a part,
            # and "/.." stands for what is above that; see cgroup_namespaces(7).
            inner = Path(os.path.normpath(groups / line.removeprefix("0::/")))
            for group in {groups, inner, *inner.parents}:
                if group.is_relative_to(groups):
                    yield from _quota(group / "cpu.max")


def _quota(file: Path) -> Iterator[float]:
    """Yield the quota of one control group, if it has one."""
    try:
        quota, period = file.read_text().split()  # microseconds; "max" for no quota
        yield int(quota) / int(period)
    except (OSError, ValueError):
        return
