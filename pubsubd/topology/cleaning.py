"""Layer 1: rows that can be relied on, and those that cannot, with the reason.

Each format is brought to the same columns, :data:`CHECKED`: what is wrong with a row is in its
``reason``, null if nothing is. Reasons, the first that fits being told:

========= ==========================================================================
utf8      the line is not UTF-8
json      the line is no JSON object, such as one that was cut off
short     a column is missing or empty that may not be
long      there are more columns than an edge list has
time      ``ts`` or ``since`` is no time, or not of the years 1970 to 9999
number    ``messages`` or ``bytes`` is no whole number, or ``rtt_ms`` no number, or less than 0
state     ``state`` is neither up nor down
observer  the observer is neither end of the link
self-loop both ends are the same daemon
========= ==========================================================================

A row with a self-loop is told among the rejects and is a good one all the same: its daemon exists.

Times are read and cut in the time zone of the session, which has to be UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pubsubd.mesh.edges import ABOUT, COLUMNS, HEADERS, LATER, OPTIONAL, REQUIRED
from pubsubd.topology.dealing import deal
from pubsubd.topology.formats.tables import PLAIN_TITLES
from pubsubd.topology.inputs import MESH_ENDINGS
from pubsubd.topology.reading import Inputs

ROWS = (
    "ts timestamp, window timestamp, mesh string, observer string, src string, dst string,"
    " state string, since timestamp, rtt_ms double, messages bigint, bytes bigint,"
    " address string, version string, site string, rack string, actors bigint,"
    " hub_connections bigint"
)
"""Good rows. Those of bare lists have no times and no numbers; their observer is ``src``. The last
six columns are the observer's."""

REJECTS = "file string, reason string, line string"
"""Bad rows, with the first :data:`SHOWN` characters of the line, what is not printable replaced."""

CHECKED = (
    "rows bigint, listed boolean, file string, line string, reason string, ts timestamp,"
    " mesh string, observer string, src string, dst string, state string, since timestamp,"
    " rtt_ms double,"
    " messages bigint, bytes bigint, address string, version string, site string, rack string,"
    " actors bigint, hub_connections bigint"
)
"""Rows of all kinds, good and bad; ``listed``: of a bare list. Each stands for so many ``rows`` of
the inputs."""

SHOWN = 200
"""Characters of a line that are kept of a reject."""

SELF_LOOP = "self-loop"

_TEXTS = ", ".join(f"`{name}` string" for name in COLUMNS)
# Not in SQL, which takes Spark a quarter of a second to parse.
_OBJECTS = T.ArrayType(T.StructType([T.StructField(name, T.StringType()) for name in COLUMNS]))
_COMMA = r"(?:[ \t]*,[ \t]*|[ \t]+)"
# Not by lower(), whose first use takes a second: Spark goes through all letters there are then.
_TITLE = (
    r"(?i)^\ufeff?[ \t]*(?:"
    + "|".join(_COMMA.join(ends) for ends in PLAIN_TITLES)
    + rf")(?:{_COMMA}|[ \t\r]*$)"
)
_YEAR = r"^[0-9]{4}-"  # Spark takes a time of day for one of today
_WHOLE = r"^[0-9]{1,19}$"
_HIDDEN = r"[\p{C}\p{Zl}\p{Zp}]"  # controls, marks that turn a line, and the like
_YEARS = (1970, 9999)


def check(inputs: Inputs) -> DataFrame:
    """Return the rows of all inputs, each with what is wrong with it: :data:`CHECKED`."""
    ways = (
        (inputs.arcs, check_arcs),
        (inputs.parquet, check_rows),
        (inputs.jsonl, check_jsonl),
        (inputs.csv, check_csv),
        (inputs.lists, check_lists),
    )
    frames = [frame.transform(way) for frame, way in ways if frame is not None]
    line = F.when(F.col("reason").isNotNull(), F.col("line"))  # nobody asks for a good one
    return reduce(DataFrame.union, frames).withColumn("line", line)


def check_jsonl(lines: DataFrame) -> DataFrame:
    """Return the rows of lines with one JSON object each; empty lines are none.

    What an object has besides an edge list's columns is left alone.
    """
    # As a list, since of a bare object the parser would not see what follows it.
    rows = F.from_json(F.concat(F.lit("["), "line", F.lit("]")), _OBJECTS)
    one = F.when(F.rlike("line", F.lit(r"^\s*\{")) & (F.size(rows) == 1), rows)
    # Without a row there is none to make columns of: all of them are null then.
    parsed = lines.where(F.trim("line") != "").select("file", "line", F.inline_outer(one))
    missing = reduce(Column.__and__, [F.col(name).isNull() for name in REQUIRED])
    return _check_texts(parsed, broken=missing, long=F.lit(False))


def check_csv(lines: DataFrame) -> DataFrame:
    """Return the rows of lines in CSV; empty lines and those with the columns' names are none.

    Quotes are doubled inside quotes, as RFC 4180 has it, but a line feed ends a row in any case.
    """
    named = F.regexp_replace("line", '^\ufeff|[" \\r]', "").isin(*HEADERS)
    # One column more than there should be tells of all that are too many.
    row = F.from_csv("line", f"{_TEXTS}, _more string", {"escape": '"'})
    parsed = lines.where((F.trim("line") != "") & ~named).select("file", "line", _once(row))
    return _check_texts(parsed, broken=F.lit(False), long=F.col("_more").isNotNull())


def _once(row: Column) -> Column:
    """Return the fields of ``row`` as columns.

    The optimizer writes an expression anew wherever a field of it is used, and would parse each
    line as often; what a generator has made it leaves alone.
    """
    return F.inline(F.array(row))


def check_rows(rows: DataFrame) -> DataFrame:
    """Return rows that have an edge list's columns with their types, as Parquet has them.

    What was of a type that could not be converted is null by now.
    """
    values = {name: F.col(name) for name in COLUMNS}
    return rows.select(
        "rows",
        F.lit(False).alias("listed"),
        "file",
        F.to_json(F.struct(*COLUMNS)).alias("line"),
        _first(_faults(values, values, long=F.lit(False))).alias("reason"),
        *COLUMNS,
    )


def check_lists(lines: DataFrame) -> DataFrame:
    """Return the arcs of bare lists, one a line: ``src``, ``dst``, and columns that are ignored.

    Columns are separated by tabs, spaces or a comma. Empty lines, comments (``#``) and a line with
    names that columns usually have (as ``source,target``) are none. The mesh is called as the file
    without its ending is; see :func:`name_mesh`.
    """
    text = F.regexp_replace("line", "^\ufeff?[ \\t]+|^\ufeff|[ \\t\\r]+$", "")
    parts = F.split(text, _COMMA, 3)
    src, dst = F.col("parts")[0], F.get("parts", F.lit(1))
    listed = (
        # As in _once.
        lines.select("file", "line", F.explode(F.array(parts)).alias("parts"))
        .where((F.length("line") > 0) & ~F.startswith(src, F.lit("#")))
        .where(dst.isNotNull() | (src != ""))
        .where(~F.rlike("line", F.lit(_TITLE)))
    )
    reason = _first(
        [
            ("utf8", ~F.is_valid_utf8("line")),
            ("short", dst.isNull() | (src == "") | (dst == "")),
            (SELF_LOOP, src == dst),
        ]
    )
    return _listed(
        listed.select(
            "file",
            "line",
            reason.alias("reason"),
            name_mesh(F.col("file")).alias("mesh"),
            src.alias("src"),
            dst.alias("dst"),
            F.lit(None).cast("double").alias("rtt_ms"),
        )
    )


def check_arcs(rows: DataFrame) -> DataFrame:
    """Return the rows of converted files: :data:`pubsubd.topology.formats.links.ARCS`."""
    loop = F.when(F.col("src") == F.col("dst"), F.lit(SELF_LOOP))
    return _listed(
        rows.select(
            "file",
            F.coalesce("line", F.concat_ws(" ", "src", "dst")).alias("line"),
            F.coalesce("reason", loop).alias("reason"),
            "mesh",
            "src",
            "dst",
            F.col("weight").alias("rtt_ms"),
        )
    )


def _listed(rows: DataFrame) -> DataFrame:
    """Return :data:`CHECKED` of rows that have no times: their observer is ``src``."""
    return rows.select(
        _one(),
        F.lit(True).alias("listed"),
        "file",
        "line",
        "reason",
        F.lit(None).cast("timestamp").alias("ts"),
        "mesh",
        F.col("src").alias("observer"),
        "src",
        "dst",
        F.lit("up").alias("state"),
        F.lit(None).cast("timestamp").alias("since"),
        "rtt_ms",
        F.lit(None).cast("bigint").alias("messages"),
        F.lit(None).cast("bigint").alias("bytes"),
        *(F.lit(None).cast(COLUMNS[name]).alias(name) for name in LATER),
    )


def name_mesh(file: Column) -> Column:
    """Return the mesh's name for a bare list: ``freifunk-ulm`` for freifunk-ulm.edges.tsv."""
    name = F.substring_index(file, "/", -1)
    return F.regexp_replace(name, rf"(?i)(?<=.){MESH_ENDINGS}", "")


def rejects(checked: DataFrame) -> DataFrame:
    """Return the rows that something is wrong with: :data:`REJECTS`."""
    text = F.translate(F.make_valid_utf8("line"), "\t", " ")
    text = F.regexp_replace(text, _HIDDEN, "\ufffd")
    return checked.where(F.col("reason").isNotNull()).select(
        "file", "reason", F.substring(text, 1, SHOWN).alias("line")
    )


def clean(
    checked: DataFrame,
    window: int,
    mesh: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Return the good rows: :data:`ROWS`.

    Args:
        checked: :data:`CHECKED`.
        window: seconds.
        mesh: the one to keep, if not all.
        since: keep what was told then or later.
        until: keep what was told before.
    """
    return (
        checked.transform(_take_good)
        .transform(keep_mesh(mesh))
        .transform(keep_between(since, until))
        .transform(cut(window))
    )


def _take_good(checked: DataFrame) -> DataFrame:
    return checked.where(F.coalesce("reason", F.lit(SELF_LOOP)) == SELF_LOOP).select(*COLUMNS)


def keep_mesh(name: str | None) -> Callable[[DataFrame], DataFrame]:
    """Return the filter for the rows of one mesh, or of all."""

    def keep(rows: DataFrame) -> DataFrame:
        return rows if name is None else rows.where(F.col("mesh") == F.lit(name))

    return keep


def keep_between(
    since: datetime | None, until: datetime | None
) -> Callable[[DataFrame], DataFrame]:
    """Return the filter for rows from ``since`` on and before ``until``.

    Rows without a time stay. Both times have to tell their time zone.
    """

    def keep(rows: DataFrame) -> DataFrame:
        ts = F.col("ts")
        if since is not None:
            rows = rows.where(ts.isNull() | (ts >= _moment(since)))
        if until is not None:
            rows = rows.where(ts.isNull() | (ts < _moment(until)))
        return rows

    return keep


def _moment(at: datetime) -> Column:
    # By its text: py4j would take it for one of this machine's time zone.
    return F.lit(at.isoformat()).cast("timestamp")


def cut(seconds: int) -> Callable[[DataFrame], DataFrame]:
    """Return the step that adds ``window``, the start of the window that ``ts`` is in.

    Windows follow one another without gaps, and one begins with 1970 (UTC).
    """

    def add(rows: DataFrame) -> DataFrame:
        at = F.unix_seconds("ts")
        window = F.timestamp_seconds(at - F.pmod(at, F.lit(seconds)))
        rest = [name for name in COLUMNS if name != "ts"]
        return rows.select("ts", window.alias("window"), *rest)

    return add


def drop_repeats(rows: DataFrame) -> DataFrame:
    """Return each row once: one per observer, link and time.

    Where such rows differ in their numbers, the largest are kept, and of the columns that some
    daemons do not write, what is there.
    """
    keys = ("ts", "window", "mesh", "observer", "src", "dst", "state", "since")
    numbers = [F.max(name).alias(name) for name in ("rtt_ms", "messages", "bytes", *LATER)]
    # What follows groups by these columns and more, so that rows are sent around only once.
    return deal(rows, "mesh", "window", "src", "dst").groupBy(*keys).agg(*numbers)


# What is wrong with a row


def _check_texts(parsed: DataFrame, broken: Column, long: Column) -> DataFrame:
    """Return :data:`CHECKED` of the rows of ``parsed``, whose columns are texts.

    Args:
        parsed: ``file``, ``line``, the columns of an edge list, and others.
        broken: whether the line is no object.
        long: whether it has more columns.
    """
    values = {
        name: (
            F.nullif(F.col(name), F.lit("")) if name in ABOUT else _read(F.col(name), kind)
        ).alias(f"_{name}")
        for name, kind in COLUMNS.items()
    }
    texts = {name: F.col(name) for name in COLUMNS}
    typed = {name: F.col(f"_{name}") for name in COLUMNS}
    faults = [
        ("utf8", ~F.is_valid_utf8("line")),
        ("json", broken),
        *_faults(texts, typed, long),
    ]
    return parsed.select("*", *values.values()).select(
        _one(),
        F.lit(False).alias("listed"),
        "file",
        "line",
        _first(faults).alias("reason"),
        *(column.alias(name) for name, column in typed.items()),
    )


def _read(text: Column, kind: str) -> Column:
    """Return the value of a text, null if it is not of that kind."""
    if kind == "timestamp":
        return F.when(text.rlike(_YEAR), text.try_cast(kind))
    if kind == "bigint":
        return F.when(text.rlike(_WHOLE), text.try_cast(kind))
    return text.try_cast(kind) if kind == "double" else text


def _faults(
    texts: dict[str, Column], values: dict[str, Column], long: Column
) -> list[tuple[str, Column]]:
    """Return the faults that a row's columns may have; the first one found is reported."""
    missing = [
        texts[name].isNull() | (texts[name] == "" if kind == "string" else F.lit(False))
        for name, kind in COLUMNS.items()
        if name not in OPTIONAL
    ]
    times = [
        values[name].isNull() | ~F.year(values[name]).between(*_YEARS)
        for name, kind in COLUMNS.items()
        if kind == "timestamp"
    ]
    counts = [values[name].isNull() | (values[name] < 0) for name in ("messages", "bytes")]
    rtt = values["rtt_ms"]
    measured = texts["rtt_ms"].isNotNull() & (
        rtt.isNull() | F.isnan(rtt) | (rtt < 0) | (rtt == float("inf"))
    )
    ends = (values["src"], values["dst"])
    return [
        ("short", reduce(Column.__or__, missing)),
        ("long", long),
        ("time", reduce(Column.__or__, times)),
        ("number", reduce(Column.__or__, [*counts, measured])),
        ("state", ~values["state"].isin("up", "down")),
        ("observer", ~values["observer"].isin(*ends)),
        (SELF_LOOP, ends[0] == ends[1]),
    ]


def _one() -> Column:
    """Return the number of rows that a row of a text is."""
    return F.lit(1).cast("bigint").alias("rows")


def _first(faults: list[tuple[str, Column]]) -> Column:
    """Return the name of the first fault that is there, or null."""
    return F.coalesce(*(F.when(there, F.lit(name)) for name, there in faults))
