"""A run of the analysis, from the look at its inputs to the end of Spark.

What is wrong with local inputs is told before anything else is imported. What the analysis and the
report import takes seconds, which pass while Java starts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.exports import check_ending
from pubsubd.topology.failures import explain_failure
from pubsubd.topology.parameters import Job, Outcome, Stage
from pubsubd.topology.preparing import ARCS, Prepared, prepare
from pubsubd.topology.scratch import Scratch
from pubsubd.topology.spark import spark_session

BRIEF = 64 * 2**20
"""Bytes of input, unpacked, up to which a job spends most of its time on starting Java.

Measured on 2 cores, processor time: start and first actions 12.0 s, and 7.1 s without Java's second
compiler; 20 million rows aggregated 110 s, and 244 s without.
"""

LISTED = 1 * 2**20
"""Bytes of lists from which on Spark generates code to read them, though the job is brief.

Measured on 2 cores, processor time: reading a list of 1.8 MB takes 9.3 s without, 7.3 s with that;
one of a few links 2.6 s and 4.1 s. To reconcile reports, there is much more code to generate.
"""

_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
"""Settings with which it does; Spark's own, otherwise."""


def run(job: Job, stage: Stage) -> Outcome:
    """Analyse the inputs and write what ``job`` asks for, replacing an earlier report.

    Raises:
        TopologyError: the analysis cannot go on; the message is one line.
        OSError: a file could not be written.
    """
    for file in (job.json, job.textfile, *job.export):
        if file not in (None, "-"):
            _check_folder(Path(file))
    for path in job.export:
        check_ending(path)
    if isinstance(job.out, Path):
        check_out(job.out)
    with _one_line(), Scratch(job.out) as scratch:
        prepared = prepare(job, scratch, stage)
        stage("starting Spark")
        with spark_session(
            job.master,
            job.log_file,
            heap=job.driver_memory,
            brief=prepared.size < BRIEF,
            archive=True,
            settings=(_COMPILED if is_long_list(prepared) else {}) | dict(job.conf),
            meanwhile=_import,
        ) as spark:
            in_spark = import_module("pubsubd.topology.job")
            outcome: Outcome = in_spark.analyse(spark, job, stage, prepared, scratch)
            return outcome


def is_long_list(prepared: Prepared) -> bool:
    """Tell whether there are only lists of links, but many of them."""
    return prepared.size > LISTED and {"list", ARCS}.issuperset(prepared.files.values())


def _check_folder(file: Path) -> None:
    """Tell before Java starts if a file cannot be written.

    Raises:
        TopologyError: there is no such folder, or it may not be written to.
    """
    folder = file.absolute().parent
    if not folder.is_dir():
        raise TopologyError(f"{file}: there is no directory {folder}")
    if not os.access(file if file.exists() else folder, os.W_OK):
        raise TopologyError(f"{file}: no permission to write it")


def check_out(out: Path) -> None:
    """Check that a directory can be written to, without making it.

    Raises:
        TopologyError: it cannot.
    """
    there = out.absolute()
    while not os.path.lexists(there):
        there = there.parent
    try:
        # Other than a look at rights, this notices what is mounted read-only.
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        raise TopologyError(f"--out {out}: {error.strerror}: {there}") from error


def _import() -> None:
    """Import what takes longest and needs no Spark."""
    with contextlib.suppress(Exception):  # told when it is needed
        import_module("pubsubd.topology.kernel.snapshot")
        import_module("pubsubd.topology.report")


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Tell what is not installed, and how to install it; and that a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TopologyError(explain_failure(error)) from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pubsubd"):
            raise
        raise TopologyError(
            f"the analysis needs {error.name.partition('.')[0]}, which is not installed:"
            " pip install '.[topology]', in a checkout of pubsubd"
        ) from error
