"""Tables of a report: each one a Parquet file and a CSV file with the same rows.

A table is written sorted, by Spark in as many parts as it likes, to a scratch directory; the parts
are then copied in their order to one file each. So the bytes depend on the rows alone, not on how
many partitions there were, and memory on neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from pubsubd.topology.errors import TopologyError
from pubsubd.topology.store import Rows, Store

_ROWS = 65_536  # in a row group: also what is held in memory of a table


@dataclass(frozen=True)
class Table:
    """A table that is written.

    Attributes:
        name: of the files, without an ending.
        rows: the rows.
        keys: columns to sort by; together they tell all rows apart, or equal rows are equal.
    """

    name: str
    rows: Rows
    keys: Sequence[str]


def write_table(table: Table, store: Store, out: Path) -> None:
    """Write ``table`` to ``out``.

    Raises:
        TopologyError: the executors write to another file system than this one.
        OSError: a file could not be written.
    """
    parts = store.write(table.rows, table.keys, table.name)
    files = sorted(parts.glob("part-*.parquet"))
    if not files:  # there is one even for a table without rows
        raise TopologyError(
            f"the executors do not write to what is {str(out)!r} here: give an --out on a file"
            " system that all of them share"
        )
    schema = pq.read_schema(files[0])
    _copy(parts, out / table.name, schema, {one: one for one in schema.names})


def write_kinds(
    rows: Rows,
    schema: pa.Schema,
    kinds: Mapping[str, tuple[str, Mapping[str, str]]],
    store: Store,
    out: Path,
) -> None:
    """Write a table for each kind of row, in one pass.

    Args:
        rows: with a column ``kind``; they are sorted by that and then by the other columns as they
            come.
        schema: of the rows.
        kinds: kind -> name of its table, and the columns to keep -> their names there.
        store: where the rows are kept.
        out: where the tables go.

    Raises:
        OSError: a file could not be written.
    """
    keys = ["kind", *(name for name in schema.names if name != "kind")]
    parts = store.write(rows, keys, "kinds", by="kind")
    for kind, (name, columns) in kinds.items():
        _copy(parts / f"kind={kind}", out / name, schema, columns)


def _copy(parts: Path, target: Path, schema: pa.Schema, columns: Mapping[str, str]) -> None:
    """Copy the parts, if there are any, to ``target`` with the endings of both formats."""
    plain = pa.schema(
        [pa.field(name, _plain(schema.field(column).type)) for column, name in columns.items()]
    )
    csv_options = pa.csv.WriteOptions(quoting_style="needed")
    with (
        _named(target.with_name(target.name + ".parquet")) as parquet,
        _named(target.with_name(target.name + ".csv")) as text,
        pq.ParquetWriter(parquet, plain, compression="zstd") as rows,
        pa.csv.CSVWriter(text, plain, write_options=csv_options) as lines,
    ):
        for batch in _batches(sorted(parts.glob("part-*.parquet")), list(columns)):
            table = batch.rename_columns(plain.names).cast(plain, safe=False)
            rows.write_table(table, row_group_size=_ROWS)
            lines.write_table(table)


def _batches(files: Sequence[Path], columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows in tables of the same size, however they were cut into files."""
    held: list[pa.Table] = []
    count = 0
    for file in files:
        with pq.ParquetFile(file) as reader:
            for batch in reader.iter_batches(_ROWS, columns=columns):
                table = pa.Table.from_batches([batch])
                while table.num_rows:
                    taken = table.slice(0, _ROWS - count)
                    table = table.slice(taken.num_rows)
                    held.append(taken)
                    count += taken.num_rows
                    if count == _ROWS:
                        yield pa.concat_tables(held).combine_chunks()
                        held, count = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type that a column has in the copy: times are UTC with milliseconds."""
    return pa.timestamp("ms", "UTC") if pa.types.is_timestamp(kind) else kind


@contextmanager
def _named(path: Path) -> Iterator[Any]:
    """Open ``path``; errors name it."""
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def read_table(out: Path, name: str, where: Mapping[str, Any] | None = None) -> pa.Table:
    """Return the rows of a written table whose columns have the given values."""
    terms = None
    for column, value in (where or {}).items():
        field = pc.field(column)
        term = field.is_null() if value is None else field == value
        terms = term if terms is None else terms & term
    return pq.read_table(out / f"{name}.parquet", filters=terms)
