"""Rows that cannot become jobs: each is named with its reason, and the others are written."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import types

from penstock.spark.sink import BatchSink
from tests.spark.frames import APP, arguments_in, jobs_in, schema_of

US = pa.timestamp("us", "Europe/Paris")
FAR = 400_000_000_000_000_000  # in the year 14645
INT, TEXT, DOUBLE = types.IntegerType(), types.StringType(), types.DoubleType()


def rejected(schema: types.StructType, batch: Any, url: str, path: Path, **options: str) -> Any:
    """The reasons of the rows that were rejected, by their place in the column `n`."""
    told = {"task": "mail:send", "url": url, "rejects": str(path), **options}
    sink = BatchSink(schema, told, False)
    sink.create_store()  # as Spark's driver does
    sink.commit([sink.write(iter([batch]))])
    if not path.exists():
        return {}
    found = pyarrow.parquet.read_table(str(path), columns=["n", "penstock_error"]).to_pydict()
    return dict(zip(found["n"], found["penstock_error"], strict=True))


@pytest.mark.parametrize(
    ("kind", "column", "reason"),
    [
        (DOUBLE, pa.array([0.5, float("inf")]), "inf cannot be stored"),
        (types.FloatType(), pa.array([0.5, float("nan")], pa.float32()), "NaN cannot be stored"),
        (types.TimestampType(), pa.array([0, FAR], US), "after 9999"),
        (types.TimestampNTZType(), pa.array([0, FAR], pa.timestamp("us")), "after 9999"),
        (types.DateType(), pa.array([0, -800_000], pa.date32()), "before the year 1"),
        (
            types.ArrayType(DOUBLE),
            pa.array([[0.5], [float("nan")]]),
            r"column x\[0\]: NaN",
        ),
        (
            types.MapType(TEXT, DOUBLE),
            pa.array([[("a", 0.5)], [("a", float("nan"))]], pa.map_(pa.string(), pa.float64())),
            "NaN cannot be stored",
        ),
        (types.ArrayType(types.TimestampType()), pa.array([[0], [FAR]], pa.list_(US)), "x"),
        (TEXT, pa.array(["a", "b" * 300_000]), "the limit is 262,144"),
    ],
)
def test_a_value_without_a_json_form(
    kind: types.DataType, column: Any, reason: str, sqlite_url: str, tmp_path: Path
):
    batch = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "x": column})

    found = rejected(schema_of(n=INT, x=kind), batch, sqlite_url, tmp_path / "rejects")

    assert found.keys() == {2}
    assert re.search(reason, found[2])
    assert [each["n"] for each in arguments_in(sqlite_url)] == [1]


@pytest.mark.parametrize(
    ("role", "kind", "column", "reason"),
    [
        ("task", TEXT, pa.array(["a:b", None]), "name the task"),
        ("task", TEXT, pa.array(["a:b", "no task"]), "letters, digits"),
        ("task", TEXT, pa.array(["a:b", "/tmp/x.py:f"]), "is a path"),
        ("queue", TEXT, pa.array(["mail", "no queue"]), "letters, digits"),
        ("priority", INT, pa.array([5, 200], pa.int32()), "from -100 to 100"),
        ("id", TEXT, pa.array(["a", None]), "name the id"),
        ("key", TEXT, pa.array(["a", "k" * 501]), "1 to 500 characters"),
        ("unique", TEXT, pa.array([None, ""]), "1 to 500 characters"),
        (
            "tags",
            types.MapType(TEXT, TEXT),
            pa.array([None, [("no name", "a")]], pa.map_(pa.string(), pa.string())),
            "letters, digits",
        ),
    ],
)
def test_something_about_a_job_that_cannot_be(  # noqa: PLR0917
    role: str, kind: types.DataType, column: Any, reason: str, sqlite_url: str, tmp_path: Path
):
    batch = pa.record_batch({"n": pa.array([1, 2], pa.int32()), "x": column})
    options = {f"{role}_column": "x", "url": sqlite_url, "rejects": str(tmp_path / "r")}
    if role != "task":
        options["task"] = "mail:send"
    sink = BatchSink(schema_of(n=INT, x=kind), options, False)
    sink.create_store()

    sink.commit([sink.write(iter([batch]))])

    found = pyarrow.parquet.read_table(str(tmp_path / "r")).to_pydict()
    assert found["n"] == [2]
    assert reason in found["penstock_error"][0]
    assert [each["n"] for each in arguments_in(sqlite_url)] == [1]


def test_arguments_in_a_struct_that_is_null(sqlite_url: str, tmp_path: Path):
    struct = pa.struct({"number": pa.int32()})
    batch = pa.record_batch({"n": [1, 2], "call": pa.array([{"number": 7}, None], struct)})
    schema = schema_of(n=types.LongType(), call=schema_of(number=INT))

    found = rejected(schema, batch, sqlite_url, tmp_path / "r", args_column="call")

    assert "holds the arguments" in found[2]
    assert arguments_in(sqlite_url) == [{"number": 7}]


def test_rows_of_a_list_are_looked_at_one_by_one(sqlite_url: str, tmp_path: Path):
    batch = pa.record_batch({"n": [1, 2, 3, 4], "x": [1.0, float("nan"), 3.0, 4.0]})
    options = {"task": "mail:batch", "app": APP, "rows_per_job": "2"}

    found = rejected(
        schema_of(n=types.LongType(), x=DOUBLE), batch, sqlite_url, tmp_path / "r", **options
    )

    assert found.keys() == {2}
    assert sorted(len(each["rows"]) for each in arguments_in(sqlite_url)) == [1, 2]


def test_times_are_in_utc_to_the_microsecond(sqlite_url: str):
    moment = datetime(2026, 11, 15, 11, 0, 0, 1, tzinfo=UTC)
    batch = pa.record_batch({"n": pa.array([moment, None], US)})
    sink = BatchSink(schema_of(n=types.TimestampType()), {"task": "a:b", "url": sqlite_url}, False)
    sink.create_store()

    sink.commit([sink.write(iter([batch]))])

    assert [job.body for job in jobs_in(sqlite_url)] == [
        b'{"args":{"n":"2026-11-15T11:00:00.000001Z"}}',
        b'{"args":{"n":null}}',
    ]
