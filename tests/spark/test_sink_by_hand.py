"""The sink's writers called as Spark calls them, where a session would only be in the way."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import types

from penstock.errors import Refused
from penstock.spark.sink import BatchSink, StreamSink
from penstock.spark.sink.column_types import Fit, fit
from tests.spark.frames import APP, arguments_in, jobs_in, numbers_in, schema_of
from tests.spark.sink_tasks import Line

NOWHERE = "sqlite:////nowhere/at.db"


INT, TEXT = types.IntegerType(), types.StringType()
NUMBER = schema_of(number=INT)
REAL = schema_of(x=types.DoubleType())
CALL = schema_of(number=INT, text=TEXT)


def _batch(*numbers: int) -> Any:
    return pa.record_batch({"number": pa.array(numbers, pa.int32())})


def _planned(schema: Any, options: dict[str, str]) -> BatchSink:
    """As the driver makes it, and hands it to its executors."""
    sink = BatchSink(schema, options, False)
    sink.create_store()
    return sink


def _sink(url: str, **options: str) -> BatchSink:
    return _planned(NUMBER, {"task": "mail:send", "url": url, **options})


def test_of_two_attempts_at_the_same_rows_one_counts(store_url: str):
    """Issue 5: speculation; both attempts run to their end, and a third after the commit."""
    sink = _sink(store_url)
    first = sink.write(iter([_batch(1, 2), _batch(3)]))
    twin = sink.write(iter([_batch(3, 2), _batch(1)]))
    other = sink.write(iter([_batch(4)]))

    sink.commit([twin, other])
    zombie = sink.write(iter([_batch(1, 2, 3)]))

    assert len({part.name for part in (first, twin, other, zombie)}) == 4
    assert numbers_in(store_url) == Counter([1, 2, 3, 4])


@pytest.mark.parametrize("columns", [{}, {"id_column": "number"}], ids=["staged", "with an id"])
def test_an_executor_on_another_machine_makes_no_file_of_its_own(tmp_path: Path, columns: Any):
    """The rows would be in a file that nobody knows of."""
    url = f"sqlite:///{tmp_path / 'elsewhere.db'}"
    sink = BatchSink(NUMBER, {"task": "mail:send", "url": url, **columns}, False)

    with pytest.raises(Refused, match="there is no store at"):
        sink.write(iter([_batch(1, 2)]))

    assert list(tmp_path.iterdir()) == []


def test_a_commit_whose_answer_was_lost_is_made_again(store_url: str):
    sink = _sink(store_url)
    part = sink.write(iter([_batch(1, 2)]))

    sink.commit([part])
    sink.commit([part])
    sink.abort([part])

    assert numbers_in(store_url) == Counter([1, 2])


def test_a_write_that_is_made_again_in_other_partitions(store_url: str):
    """Issue 5: a changed partition count, after a driver that died before its commit."""
    _sink(store_url, write="import-7").write(iter([_batch(1, 2, 3)]))
    again = _sink(store_url, write="import-7")

    again.commit([again.write(iter([_batch(3)])), again.write(iter([_batch(2, 1)])), None])

    assert numbers_in(store_url) == Counter([1, 2, 3])


def test_an_aborted_write_leaves_neither_jobs_nor_rejects(store_url: str, tmp_path: Path):
    options = {"task": "a:b", "url": store_url, "rejects": str(tmp_path / "rejects")}
    sink = _planned(REAL, options)
    part = sink.write(iter([pa.record_batch({"x": [1.0, float("nan")]})]))
    hidden = [path.name for path in (tmp_path / "rejects").iterdir()]

    sink.abort([part, None])

    assert [name[0] for name in hidden] == ["_"]
    assert list((tmp_path / "rejects").iterdir()) == []
    assert jobs_in(store_url) == []


def test_rejects_of_attempts_that_lost_or_died_go_with_the_commit(store_url: str, tmp_path: Path):
    rejects = tmp_path / "rejects"
    options = {"task": "a:b", "url": store_url, "rejects": str(rejects), "write": "import-7"}
    sink = _planned(REAL, options)
    other = _planned(REAL, {**options, "write": "import"})
    rows = pa.record_batch({"x": [1.0, float("nan")]})
    won, lost, beside = (each.write(iter([rows])) for each in (sink, sink, other))
    (rejects / "_import-7-0-0-0badcafe.parquet").write_bytes(b"PAR1")  # its task was killed

    sink.commit([won])

    assert lost.rejects is not None
    assert {path.name for path in rejects.iterdir()} == {won.rejects, f"_{beside.rejects}"}


def test_an_abort_that_finds_no_store_does_not_hide_why_the_write_failed(tmp_path: Path):
    rejects = tmp_path / "a file"
    rejects.touch()
    options = {"task": "a:b", "url": "sqlite:////dev/null/at.db", "rejects": str(rejects)}
    sink = BatchSink(REAL, options, False)

    with pytest.raises(Refused, match="cannot be opened"):
        sink.write(iter([pa.record_batch({"x": [1.0]})]))
    sink.abort([None])


def test_rejects_that_cannot_be_kept_end_the_write_with_a_sentence(sqlite_url: str, tmp_path: Path):
    (tmp_path / "a file").touch()
    options = {"task": "a:b", "url": sqlite_url, "rejects": str(tmp_path / "a file" / "rejects")}

    with pytest.raises(Refused, match=r"rejects='.*a file/rejects' cannot be written"):
        _planned(REAL, options).write(iter([pa.record_batch({"x": [float("nan")]})]))


def test_a_row_may_have_no_arguments_at_all(sqlite_url: str):
    sink = _sink(sqlite_url, id_column="number", arguments="")

    sink.commit([sink.write(iter([_batch(1, 2)]))])

    assert arguments_in(sqlite_url) == [{}, {}]


def test_a_time_to_run_that_no_calendar_has_makes_a_bad_row(sqlite_url: str):
    schema = schema_of(number=INT, at=types.TimestampType())
    options = {"task": "a:b", "url": sqlite_url, "at_column": "at"}
    last = pa.array([253_402_300_799_999_999, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))

    with pytest.raises(Refused, match=r"row 1 .*column at: a time .* after 9999"):
        _planned(schema, options).write(
            iter([pa.record_batch({"number": pa.array([1, 2], pa.int32()), "at": last})])
        )


@pytest.mark.parametrize(
    ("schema", "options", "sentence"),
    [
        (NUMBER, {"app": APP}, "no column for 'text'"),
        (schema_of(), {}, "the frame has no column"),
        (schema_of(number=INT, text=TEXT, more=INT), {"app": APP}, "has no argument 'more'"),
        (schema_of(number=TEXT, text=TEXT), {"app": APP}, "column number is string.*takes int"),
        (CALL, {"app": APP, "task": "mail:sent"}, "did you mean mail:send"),
        (NUMBER, {"key_colum": "n"}, "did you mean key_column"),
        (NUMBER, {"key_column": "m"}, "no such column; there are number"),
        (NUMBER, {"key_column": "number"}, "number is int; key_column must be a string"),
        (NUMBER, {"task": ""}, "task ''"),
        (NUMBER, {"task_column": "number"}, "task and task_column exclude each other"),
        (NUMBER, {"priority": "high"}, "'high': a whole number"),
        (NUMBER, {"rows_per_job": "0"}, "from 1 up"),
        (NUMBER, {"rows_per_job": "5", "id_column": "number"}, "leave out id_column"),
        (NUMBER, {"unique_until": "started"}, "need unique_column"),
        (schema_of(n=types.VariantType()), {}, "variant has no JSON form"),
        (
            schema_of(n=types.MapType(types.DateType(), INT)),
            {},
            "keys of a JSON object are strings",
        ),
        (schema_of(n=types.ArrayType(types.CalendarIntervalType())), {}, r"n\[\]: interval has no"),
    ],
)
def test_what_cannot_be_is_refused_before_any_row(
    schema: types.StructType, options: dict[str, str], sentence: str
):
    """Issue 5: schema errors before the write; no store is opened."""
    with pytest.raises(Refused, match=sentence):
        BatchSink(schema, {"task": "mail:send", "url": NOWHERE, **options}, False)


def test_a_task_must_be_named():
    with pytest.raises(Refused, match="no task"):
        BatchSink(NUMBER, {"url": NOWHERE}, False)


def test_only_appending_is_possible():
    for sink in (BatchSink, StreamSink):
        with pytest.raises(Refused, match='mode\\("append"\\)'):
            sink(NUMBER, {"task": "a:b"}, True)


def test_a_stream_names_its_writes_itself():
    with pytest.raises(Refused, match="leave out the option write"):
        StreamSink(NUMBER, {"task": "a:b", "write": "mine"}, False)


FIT = [
    (types.LongType(), int, True),
    (types.LongType(), float, True),
    (types.LongType(), str, False),
    (types.DoubleType(), int, False),
    (types.DoubleType(), float | None, True),
    (types.DecimalType(10, 2), Decimal, True),
    (types.DecimalType(10, 2), float, False),
    (types.StringType(), UUID, True),
    (types.StringType(), bool, False),
    (types.TimestampType(), datetime, True),
    (types.TimestampType(), date, False),
    (types.DateType(), date, True),
    (types.BinaryType(), bytes, True),
    (types.ArrayType(types.LongType()), list[int], True),
    (types.ArrayType(types.LongType()), list[str], False),
    (types.MapType(TEXT, INT), dict[str, int], True),
    (types.MapType(TEXT, TEXT), dict[str, int], False),
    (schema_of(name=TEXT, price=types.DecimalType(10, 2)), Line, True),
    (schema_of(name=TEXT), Line, False),
    (schema_of(name=TEXT), Any, True),
]


@pytest.mark.parametrize(("kind", "annotation", "good"), FIT, ids=lambda value: str(value)[:40])
def test_a_column_fits_an_annotation_or_is_refused(
    kind: types.DataType, annotation: Any, good: bool
):
    assert (fit(kind, annotation) is not Fit.NO) is good
