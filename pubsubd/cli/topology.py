"""``pubsubd topology``: where the mesh would break, from the links that daemons have exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from pubsubd.cli.progress import Progress
from pubsubd.cli.streams import echo, visible
from pubsubd.cli.values import duration, moment
from pubsubd.topology.formats.tables import Columns
from pubsubd.topology.inputs import local_path
from pubsubd.topology.metrics import METRICS, explain
from pubsubd.topology.parameters import CONDITIONS, Job
from pubsubd.topology.run import run


def _conditions(text: str) -> tuple[str, ...]:
    """Return the conditions in a list with commas."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in CONDITIONS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(CONDITIONS)}")
    return names


_NOTES = 10  # files left out that are named


def _columns(text: str) -> Columns:
    """Return columns by number or name, as in ``src=3,dst=4``."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    columns = {name.strip(): column.strip() for name, _, column in pairs}
    known = {"src", "dst"} <= columns.keys() <= {"src", "dst", "weight"}
    if not known or not all(columns.values()):
        raise click.BadParameter(f"{text!r} is not as src=1,dst=2 or src=1,dst=2,weight=3")
    return Columns(**columns)


def _explain(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Print what a metric is, and be done."""
    if value is None or ctx.resilient_parsing:
        return
    if value not in METRICS:
        raise click.BadParameter(f"{value!r} is none of {', '.join(METRICS)}", ctx, param)
    echo(explain(value))
    ctx.exit()


def _ends(least: int) -> Callable[[str], tuple[str, ...]]:
    """Return a type: two names with a comma between, or, if ``least`` is 1, a single one."""

    def read(text: str) -> tuple[str, ...]:
        names = tuple(name.strip() for name in text.split(","))
        if not least <= len(names) <= 2 or not all(names) or len(set(names)) < len(names):
            wanted = "NAME or NAME,NAME" if least == 1 else "NAME,NAME"
            raise click.BadParameter(f"{text!r} is not {wanted}")
        return names

    return read


def _read_conf(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    """Return the settings of Spark by their names."""
    conf = {}
    for text in values:
        name, equals, value = text.partition("=")
        if not (name.startswith("spark.") and equals):
            raise click.BadParameter(f"{text!r} is not spark.NAME=VALUE", ctx, param)
        conf[name] = value
    return conf


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Directory, or a URL, for the report; is created.  [default: only the summary]",
)
@click.option(
    "--json",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write report.json to this file; - is standard output.",
)
@click.option(
    "--textfile",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the metrics to this file, for the textfile collector of node-exporter.",
)
@click.option(
    "--without",
    type=_ends(1),
    metavar="NAME[,NAME]",
    multiple=True,
    help="Suppose that this daemon, or this link, is lost; may be given several times.",
)
@click.option(
    "--with",
    "added",
    type=_ends(2),
    metavar="NAME,NAME",
    multiple=True,
    help="Suppose that there is this link; may be given several times.",
)
@click.option(
    "--master",
    metavar="URL",
    help="The Spark cluster, such as spark://host:7077.  [default: this machine]",
)
@click.option(
    "--window",
    type=duration,
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="Length of the windows at whose ends the mesh is analysed.",
)
@click.option("--since", type=moment, metavar="TIME", help="Ignore reports before this time.")
@click.option("--until", type=moment, metavar="TIME", help="Ignore reports from this time on.")
@click.option("--mesh", metavar="NAME", help="Analyse this mesh only.")
@click.option(
    "--nodes",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Daemons that exist, one name per line; an address for --peer may follow.",
)
@click.option(
    "--stale",
    type=duration,
    metavar="DURATION",
    help="Greatest age of an end's latest report.  [default: a quarter of a window, 5m at most]",
)
@click.option(
    "--columns",
    type=_columns,
    metavar="src=N,dst=N[,weight=N]",
    help="Columns of tables, by number or name, that have the ends of a link.",
)
@click.option(
    "--export",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Write the mesh as a graph, by the ending .graphml, .gexf, .json (NetJSON) or .dot.",
)
@click.option("--strict", is_flag=True, help="Fail if a row is rejected, or a file vanishes.")
@click.option(
    "--lenient", is_flag=True, help="Read lists with many bad rows, or rows of several widths."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of everything random.",
)
@click.option(
    "--local-edges",
    type=click.IntRange(0),
    metavar="N",
    default=10_000_000,
    show_default=True,
    help="Arcs up to which one worker analyses a window; a link that both ends report has two.",
)
@click.option(
    "--fail-on",
    type=_conditions,
    metavar="CONDITION,...",
    multiple=True,
    help="Exit with status 3 if one holds in the latest window: " + ", ".join(CONDITIONS) + ".",
)
@click.option(
    "--log-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File for Spark's log.  [default: a temporary file, kept if the job fails]",
)
@click.option(
    "--driver-memory",
    metavar="SIZE",
    help="Heap of the Java process, such as 4g.  [default: 2g, at most half of the memory]",
)
@click.option(
    "--conf",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_read_conf,
    help="A setting of Spark, such as spark.executor.memory=4g; may be given several times.",
)
@click.option(
    "--packages",
    metavar="GROUP:NAME:VERSION",
    multiple=True,
    help="A Java library, with those that it needs, as spark-submit takes it.",
)
@click.option("--quiet", is_flag=True, help="Do not print the stages.")
@click.option(
    "--explain",
    metavar="METRIC",
    callback=_explain,
    expose_value=False,
    is_eager=True,
    help="Print what a metric means, and exit.",
)
def command(
    inputs: tuple[str, ...],
    out: str | None,
    fail_on: tuple[tuple[str, ...], ...],
    quiet: bool,
    conf: dict[str, str],
    packages: tuple[str, ...],
    **parameters: Any,
) -> int:
    """Report where the mesh would break.

    INPUT is edge lists that daemons have exported, as JSON lines, CSV or Parquet: files, folders,
    globs, pipes or URLs that Spark can read; "-" is standard input. Graphs in other formats work
    too, from lists of two columns, "src dst", to GraphML.

    Prints a summary. With --out, also writes report.html, report.json, and tables in Parquet and
    CSV.

    \b
    Exit status:
      0    done
      1    failed
      2    wrong usage
      3    done, and a condition of --fail-on holds
      130  interrupted (Ctrl-C)
    """  # noqa: D301  (click wants the character)
    master = parameters["master"]
    if out is None and master is not None and not master.startswith("local"):
        raise click.UsageError("--master needs --out, a directory that all workers see, or a URL")
    if packages:
        conf["spark.jars.packages"] = ",".join(packages)
    here = None if out is None else local_path(out)
    place = Path(here) if here else out
    progress = Progress(quiet)
    try:
        outcome = run(Job(inputs, place, conf=conf, **parameters), progress.stage)
    finally:
        progress.end()
    for line in outcome.summary:
        echo(visible(line), err=outcome.json is not None)
    if outcome.json is not None:
        echo(outcome.json.decode(), nl=False)
    for line in outcome.notes[:_NOTES]:
        echo(visible(f"pubsubd: {line}"), err=True)
    if len(outcome.notes) > _NOTES:
        echo(f"pubsubd: and {len(outcome.notes) - _NOTES:,} more", err=True)
    asked = dict.fromkeys(one for names in fail_on for one in names)
    met = [one for one in asked if one in outcome.conditions]
    if met:
        holds = "the condition holds" if len(met) == 1 else "the conditions hold"
        echo(f"pubsubd: --fail-on {','.join(met)}: {holds}", err=True)
        return 3
    return 0
