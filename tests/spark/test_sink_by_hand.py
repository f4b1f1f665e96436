"""The sink's writers called as Spark calls them, where a session would only be in the way."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import types

from penstock.brokers import open_broker
from penstock.errors import Refused, WrongUrl
from penstock.spark.sink import BatchSink, StreamSink
from penstock.spark.sink.column_types import Fit, fit
from penstock.spark.sink.rejects import set_aside
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

    with pytest.raises(WrongUrl, match="there is no store at"):
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


BAD_ROWS = pa.record_batch({"x": [1.0, float("nan")]})


def _shown(folder: Path) -> int:
    """How many rejected rows a reader of the folder sees."""
    return sum(
        pyarrow.parquet.read_metadata(path).num_rows
        for path in folder.glob("*.parquet")
        if not path.name.startswith("_")
    )


# REQUIREMENTS S3
@pytest.mark.parametrize("step", ["set aside", "committed", "half shown", "shown"])
def test_rejects_of_a_write_that_comes_again_are_there_once(
    store_url: str, tmp_path: Path, step: str
):
    """S2: the driver died after this step of its commit; the write comes in other partitions."""
    rejects = tmp_path / "rejects"
    options = {"task": "a:b", "url": store_url, "rejects": str(rejects), "write": "june/1"}
    first = _planned(REAL, options)
    parts = [first.write(iter([BAD_ROWS])) for _ in range(2)]
    if step == "shown":
        first.commit(parts)
    else:
        set_aside(str(rejects), "0123", [part.rejects or "" for part in parts])
    if step in {"committed", "half shown"}:
        broker = open_broker(store_url)
        broker.commit_write("june/1", {part.name: part.jobs for part in parts}, "0123")
        broker.close()
    if step == "half shown":
        (rejects / f"_0123.{parts[0].rejects}").rename(rejects / (parts[0].rejects or ""))

    for _ in range(2):
        again = _planned(REAL, options)
        again.commit([again.write(iter([BAD_ROWS])), again.write(iter([BAD_ROWS])), None])

    assert _shown(rejects) == 2
    assert [path.name for path in rejects.glob("_*")] == []
    assert len(jobs_in(store_url)) == 2


def test_rejects_of_two_drivers_at_the_same_write_are_there_once(sqlite_url: str, tmp_path: Path):
    """S2: both have put theirs aside before one of them commits."""
    rejects = tmp_path / "rejects"
    options = {"task": "a:b", "url": sqlite_url, "rejects": str(rejects), "write": "june"}
    one, two = _planned(REAL, options), _planned(REAL, options)
    parts = [one.write(iter([BAD_ROWS])), two.write(iter([BAD_ROWS]))]
    set_aside(str(rejects), "0123", [parts[1].rejects or ""])

    one.commit([parts[0]])
    two.commit([parts[1]])

    assert [path.name for path in rejects.iterdir()] == [parts[0].rejects]


def test_rejects_of_rows_with_an_id_are_those_of_the_last_time(sqlite_url: str, tmp_path: Path):
    """S2: such a write may come again with more rows; each bad row is there once."""
    rejects = tmp_path / "rejects"
    options = {"task": "a:b", "url": sqlite_url, "rejects": str(rejects), "write": "june"}
    schema = schema_of(x=types.DoubleType(), n=INT)
    for rows in (2, 3):
        numbers = {"x": [1.0, float("nan"), float("inf")], "n": pa.array([1, 2, 3], pa.int32())}
        sink = _planned(schema, {**options, "id_column": "n"})
        sink.commit([sink.write(iter([pa.record_batch(numbers).slice(0, rows)]))])

    assert _shown(rejects) == 2
    assert len(jobs_in(sqlite_url)) == 1


def test_an_abort_that_finds_no_store_does_not_hide_why_the_write_failed(tmp_path: Path):
    rejects = tmp_path / "a file"
    rejects.touch()
    options = {"task": "a:b", "url": "sqlite:////dev/null/at.db", "rejects": str(rejects)}
    sink = BatchSink(REAL, options, False)

    with pytest.raises(WrongUrl, match="there is no store at"):
        sink.write(iter([pa.record_batch({"x": [1.0]})]))
    sink.abort([None])


def test_rejects_that_cannot_be_kept_end_the_write_with_a_sentence(sqlite_url: str, tmp_path: Path):
    (tmp_path / "a file").touch()
    options = {"task": "a:b", "url": sqlite_url, "rejects": str(tmp_path / "a file" / "rejects")}

    with pytest.raises(Refused, match=r"rejects='.*a file/rejects' cannot be written"):
        _planned(REAL, options).write(iter([pa.record_batch({"x": [float("nan")]})]))


def _ids_and_texts(url: str, rows: dict[int, str], **options: str) -> dict[int, list[str]]:
    """Write rows with an id; the texts that are enqueued for each of them."""
    sink = _planned(CALL, {"task": "a:b", "url": url, "id_column": "number", **options})
    batch = {"number": pa.array(list(rows), pa.int32()), "text": list(rows.values())}
    sink.commit([sink.write(iter([pa.record_batch(batch)]))])
    found: dict[int, list[str]] = {}
    for job in jobs_in(url):
        arguments = msgspec.json.decode(job.body)["args"]
        found.setdefault(arguments["number"], []).append(arguments["text"])
    return {number: sorted(texts) for number, texts in found.items()}


def test_a_row_with_an_id_and_other_arguments_is_refused_or_as_it_was_asked_for(
    store_url: str, tmp_path: Path
):
    """S13: it was dropped without a word."""
    options = {"arguments": "number,text"}
    _ids_and_texts(store_url, {1: "a", 2: "b"}, **options)

    with pytest.raises(Refused, match="number=2 was enqueued with other arguments"):
        _ids_and_texts(store_url, {1: "a", 2: "c", 3: "d"}, **options)
    kept = _ids_and_texts(store_url, {2: "c"}, on_change="keep", **options)
    rejects = str(tmp_path / "rejects")
    rejected = _ids_and_texts(store_url, {2: "c", 4: "e"}, rejects=rejects, **options)
    again = _ids_and_texts(store_url, {2: "c"}, on_change="again", **options)
    once_more = _ids_and_texts(store_url, {2: "c", 1: "a"}, **options)
    named = _ids_and_texts(store_url, {1: "a"}, write="june", **options)

    assert kept == {1: ["a"], 2: ["b"]}  # all or nothing: 3 was not stored
    assert rejected == {**kept, 4: ["e"]}
    assert _shown(Path(rejects)) == 1
    assert again == once_more == {**rejected, 2: ["b", "c"]}
    assert named == {**again, 1: ["a", "a"]}


@pytest.mark.parametrize("on_change", ["refuse", "again", "keep"])
def test_a_row_that_another_write_stores_meanwhile_is_compared_too(store_url: str, on_change: str):
    """S14: both have looked before either has stored anything."""
    options = {"task": "a:b", "url": store_url, "id_column": "number", "on_change": on_change}
    options["arguments"] = "number,text"
    texts = ["a", "b", "b"]
    sinks = [_planned(CALL, options) for _ in texts]
    rows = [{"number": pa.array([1, n + 2], pa.int32()), "text": [texts[n], "x"]} for n in range(3)]
    # The third is a second partition of the second write.
    parts = [sinks[min(n, 1)].write(iter([pa.record_batch(rows[n])])) for n in range(3)]
    sinks[0].commit([parts[0]])

    if on_change == "refuse":
        with pytest.raises(Refused, match="1 rows were left out: at the same time another write"):
            sinks[1].commit(parts[1:])
    else:
        sinks[1].commit(parts[1:])

    stored = sorted((job["number"], job["text"]) for job in arguments_in(store_url))
    more = [(1, "b")] if on_change == "again" else []
    assert stored == sorted([(1, "a"), (2, "x"), (3, "x"), (4, "x"), *more])


def test_two_rows_with_one_id_and_other_arguments_are_refused(sqlite_url: str):
    sink = _planned(CALL, {"task": "a:b", "url": sqlite_url, "id_column": "number"})
    rows = {"number": pa.array([1, 1, 1], pa.int32()), "text": ["a", "a", "b"]}

    with pytest.raises(Refused, match=r"row 0 .*number=1 was enqueued with other arguments, in a"):
        sink.write(iter([pa.record_batch(rows)]))


def test_a_secret_argument_is_in_no_hash(sqlite_url: str):
    """A short one could be guessed from it."""
    task = {"task": "mail:send", "app": APP, "url": sqlite_url, "id_column": "number"}
    schema = schema_of(number=INT, text=TEXT, token=TEXT)
    found: list[Any] = []
    for token in ("1234", "5678"):
        rows = {"number": pa.array([1], pa.int32()), "text": ["a"], "token": [token]}
        sink = _planned(schema, {**task, "arguments": "number,text,token", "write": token})
        sink.commit([sink.write(iter([pa.record_batch(rows)]))])
        found = [msgspec.json.decode(job.body)["headers"] for job in jobs_in(sqlite_url)]

    assert len(found) == 2
    assert found[0]["penstock-arguments"] == found[1]["penstock-arguments"]


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
        (NUMBER, {"on_change": "keep"}, "on_change is for rows with an id"),
        (NUMBER, {"id_column": "number", "on_change": "no"}, "one of refuse, again, keep"),
        (NUMBER, {"write": "stream/1"}, "are for Spark's sink"),
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
