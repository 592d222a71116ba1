"""Edge lists: rows as JSON lines, CSV and Parquet."""

from __future__ import annotations

import csv
import io
import json
import sys
from datetime import datetime
from typing import Any

import pytest

from pubsubd.mesh.edges import (
    COLUMNS,
    OPTIONAL,
    EdgesError,
    write_csv,
    write_jsonl,
    write_parquet,
)
from tests.rows import row

ROWS = [row(), row(observer="b", rtt_ms=None, messages=2**63 - 1), row(state="down", rtt_ms=1.0)]


def written(write: Any, rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    write(iter(rows), file)
    assert not file.closed
    return file.getvalue()


# Formats


def test_a_row_is_one_line_of_json_with_the_columns_in_order() -> None:
    lines = written(write_jsonl, ROWS).splitlines()
    assert [json.loads(line) for line in lines] == ROWS
    assert all(list(json.loads(line)) == list(COLUMNS) for line in lines)


def test_json_has_the_columns_and_no_others_in_any_order_of_the_row() -> None:
    mixed = dict(reversed(row(more=1).items()))
    assert written(write_jsonl, [mixed]) == written(write_jsonl, [row()])


def test_json_is_ascii_without_controls() -> None:
    hostile = row(mesh="é\x1b[31m\x7f\x9b\n\ud800")
    line = written(write_jsonl, [hostile])
    assert all(32 <= byte < 127 for byte in line[:-1])
    assert json.loads(line) == hostile


def test_csv_has_a_header_and_the_same_columns() -> None:
    text = written(write_csv, ROWS).decode()
    assert text.splitlines()[0] == ",".join(COLUMNS)
    assert "\r" not in text
    found = list(csv.DictReader(io.StringIO(text)))
    assert found == [
        {key: "" if value is None else str(value) for key, value in one.items()} for one in ROWS
    ]


def test_csv_quotes_what_would_break_it() -> None:
    hostile = row(mesh='a,"b"\nc')
    (found,) = csv.DictReader(io.StringIO(written(write_csv, [hostile]).decode(), newline=""))
    assert found["mesh"] == hostile["mesh"]


def test_parquet_has_types(parquet: Any) -> None:
    table = parquet.read_table(io.BytesIO(written(write_parquet, ROWS)))
    assert {field.name: str(field.type) for field in table.schema} == {
        name: {"bigint": "int64", "timestamp": "timestamp[ms, tz=UTC]"}.get(kind, kind)
        for name, kind in COLUMNS.items()
    }
    assert {field.name for field in table.schema if field.nullable} == OPTIONAL
    times = {"ts", "since"}
    assert table.to_pylist() == [
        {k: datetime.fromisoformat(v) if k in times else v for k, v in one.items()} for one in ROWS
    ]


@pytest.mark.usefixtures("parquet")
def test_a_time_that_is_none_has_no_place_in_parquet() -> None:
    with pytest.raises(EdgesError, match="'yesterday' is not a time"):
        written(write_parquet, [row(ts="yesterday")])


def test_without_rows_the_columns_are_still_told() -> None:
    assert written(write_jsonl, []) == b""
    assert written(write_csv, []).decode() == ",".join(COLUMNS) + "\n"


def test_an_empty_parquet_file_has_its_columns(parquet: Any) -> None:
    table = parquet.read_table(io.BytesIO(written(write_parquet, [])))
    assert (table.num_rows, table.column_names) == (0, list(COLUMNS))


def test_without_pyarrow_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdgesError, match=r"pip install '\.\[parquet\]'"):
        written(write_parquet, ROWS)
