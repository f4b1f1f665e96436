"""Options that narrow a table as it is loaded: just the rows that match, or a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import failed, succeeded
from penstock.spark.source.data_source import PenstockSource
from penstock.spark.source.readers import TableReader
from penstock.spark.source.stream import TableStream
from penstock.spark.source.tables import TIMES, columns_of
from penstock.testing.conformance.factories import a_job, begun, claim, settle, some_jobs
from tests.spark.conftest import whatever_the_store
from tests.spark.stored import fill

MICROSECOND = timedelta(microseconds=1)


@pytest.fixture
def broker(store_url: str, clock: Any) -> Iterator[Broker]:
    broker = open_broker(store_url, clock)
    yield broker
    broker.close()


def schema_of(table: str) -> StructType:
    """The columns that options are about."""
    kinds = {"string": StringType(), "timestamp": TimestampType()}
    wanted = ("id", "job", "queue", "task", "state", "kind", TIMES.get(table, "enqueued_at"))
    columns = columns_of(table)
    return StructType([StructField(n, kinds[columns[n]]) for n in wanted if n in columns])


def read(url: str, table: str, **options: str) -> list[dict[str, Any]]:
    """The rows, read by hand in slices: a query of Spark takes a second each."""
    reader = TableReader({"table": table, "url": url, **options}, schema_of(table))
    made = (reader.read(part) for part in reader.partitions())
    rows = [row for batches in made for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=str)


NAMED = {
    "one queue": ({"queue": "mail"}, lambda row: row["queue"] == "mail"),
    "either queue": (
        {"queue": "mail, films"},
        lambda row: row["queue"] in {"mail", "films"},
    ),
    "in JSON": (
        {"queue": '["mail","default"]'},
        lambda row: row["queue"] in {"mail", "default"},
    ),
    "a queue that there is not": ({"queue": "nothing"}, lambda row: False),
    "a task": ({"task": "media:resize"}, lambda row: row["task"] == "media:resize"),
    "states": (
        {"state": "failed,ready,running"},
        lambda row: row["state"] in {"failed", "ready", "running"},
    ),
    "all of them": (
        {"queue": "mail,films", "task": "mail:send", "state": "succeeded"},
        lambda row: (row["queue"], row["state"]) == ("mail", "succeeded"),
    ),
}


@pytest.mark.parametrize("table", ["attempts", "events", "gauges", "jobs", "results"])
def test_they_give_what_all_rows_give_once_filtered(broker, store_url, clock, table):
    fill(broker, clock)
    whole = read(store_url, table)
    assert whole

    for words, (options, fits) in NAMED.items():
        if all(name in columns_of(table) for name in options):
            expected = [row for row in whole if fits(row)]

            assert read(store_url, table, **options) == expected, words


@pytest.mark.parametrize("table", sorted(TIMES))
def test_times_are_to_the_microsecond_and_days_do_not_overlap(broker, store_url, clock, table):
    """`since` is the first moment, `until` the first one that is no more of it."""
    for _ in range(4):
        clock.advance(seconds=60.000_000_4)  # shown as a little more, or a little less, than it is
        fill(broker, clock)
    whole, column = read(store_url, table), TIMES[table]
    shown = sorted({row[column] for row in whole})
    assert len(shown) >= 4
    elsewhere = timezone(timedelta(hours=5, minutes=30))

    for moment in shown:
        for bound in (moment - MICROSECOND, moment, moment + MICROSECOND):
            since = read(store_url, table, since=bound.isoformat())
            until = read(store_url, table, until=str(bound.astimezone(elsewhere)))

            assert since == [row for row in whole if row[column] >= bound], bound
            assert until == [row for row in whole if row[column] < bound], bound
    between = read(store_url, table, since=shown[1].isoformat(), until=shown[2].isoformat())
    assert between == [row for row in whole if row[column] == shown[1]]


@whatever_the_store
def test_names_that_hold_commas_brackets_and_spaces(broker, store_url, clock):
    odd = ["a, b", '["a"]', " c ", 'say "hi"', "é", "a"]
    broker.enqueue([a_job(clock, queue=name) for name in odd])

    for name in odd:
        [row] = read(store_url, "jobs", queue=json.dumps([name]))
        assert row["queue"] == name
    assert len(read(store_url, "jobs", queue=json.dumps(odd))) == len(odd)
    assert [row["queue"] for row in read(store_url, "jobs", queue=" a , b ")] == ["a"]
    assert [row["queue"] for row in read(store_url, "jobs", queue='say "hi"')] == ['say "hi"']


@whatever_the_store
def test_the_store_is_told_what_is_wanted(broker, store_url, clock):
    """So that it need not send the rest."""
    options = {"queue": "mail", "state": "failed,ready", "url": store_url, "table": "attempts"}
    times = {"since": "2026-11-15T00:00Z", "until": "2026-11-16T00:00Z"}
    fill(broker, clock)

    [part] = TableReader(options | times, schema_of("attempts")).partitions()

    asked = part.part.selection
    midnight = datetime(2026, 11, 16, tzinfo=UTC).timestamp()
    assert (asked.queue, asked.task, asked.state) == (("mail",), (), ("failed", "ready"))
    assert asked.since == pytest.approx(midnight - 86_400, abs=2e-6)
    assert midnight - 1e-6 < asked.until < midnight  # of the next day nothing has to be read


@whatever_the_store
def test_a_frame_of_spark_and_a_filter_on_top(spark, broker, clock):
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    broker.enqueue(some_jobs(clock, 4, "media:resize", queue="films"))
    reader = spark.read.format("penstock").option("table", "jobs")

    films = reader.option("Queue", "films").option("state", '["ready","failed"]').load()

    assert films.count() == 4
    assert films.where("task = 'mail:send'").count() == 0
    assert films.count() == 4


def test_a_stream_can_be_narrowed_too(broker, store_url, clock):
    broker.enqueue(some_jobs(clock, 6))
    for number, job in enumerate(claim(broker, limit=6)):
        clock.advance(seconds=1)
        settle(broker, job, begun(failed("x") if number % 2 else succeeded(), clock.now()))
    since = datetime.fromtimestamp(clock.now() - 2.5, UTC).isoformat()
    options = {"table": "attempts", "url": store_url, "state": "failed", "since": since}
    stream = TableStream(options, schema_of("attempts"))

    start = stream.initialOffset()
    parts = stream.partitions(start, stream.latestOffset(start))
    rows = [row for part in parts for batch in stream.read(part) for row in batch.to_pylist()]

    assert [row["state"] for row in rows] == ["failed"] * 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"state": "faild"}, "'faild' is no state; the states are waiting, ready, running"),
        ({"state": "failed,"}, "'' is no state"),
        ({"state": "Failed"}, "'Failed' is no state"),
        ({"queue": ""}, "option 'queue': '': a name has 1 to"),
        ({"queue": "a,,b"}, "option 'queue': '': a name has 1 to"),
        ({"task": "a\nb"}, "none of them a control character"),
        ({"queue": "[]"}, r"'\[\]'\) is empty: leave it out"),
        ({"queue": "['a', 'b']"}, 'a JSON list of strings, as \\["a","b"\\]'),
        ({"queue": "[1]"}, "a JSON list of strings"),
        ({"since": "yesterday"}, "'yesterday'\\) is not a time: write 2026-11-15T08:00Z"),
        ({"since": "20261115"}, "has no time zone"),
        ({"since": "2026-11-15T08:00"}, "has no time zone: write 2026-11-15T08:00Z"),
        ({"until": "2026-11-15"}, "has no time zone"),
        ({"until": "2026-13-15T08:00Z"}, "is not a time"),
        ({"since": "2026-11-15T08:00Z", "until": "0" * 20}, "for a position use until_position"),
        (
            {"since": "2026-11-15T08:00Z", "until": "2026-11-15T09:00+01:00"},
            "must be earlier than until",
        ),
        ({"table": "gauges", "task": "a"}, "the table gauges has no task, only queue"),
        ({"table": "gauges", "state": "ready"}, "the table gauges has no state, only queue"),
        ({"table": "jobs", "since": "2026-11-15T08:00Z"}, "'since' is for attempts, events and"),
        ({"table": "results", "until": "2026-11-15T08:00Z"}, "'until' is for attempts, events"),
        ({"table": "jobs", "until_position": "7"}, "is a position of the history"),
        ({"stat": "failed"}, "'stat' is not an option of the source; there is state"),
    ],
    ids=str,
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(options, says):
    """There is no store here at all."""
    options = {"table": "attempts", "url": "sqlite:////nowhere/at.db", **options}

    with pytest.raises(Refused, match=says):
        TableReader(options, schema_of(options["table"]))


@pytest.mark.parametrize("option", ["queue", "state", "since", "app"])
def test_counts_are_not_narrowed(option):
    source = PenstockSource({"table": "counts", option: "mail"})

    with pytest.raises(Refused, match=f"{option!r} is not for the table counts"):
        source.reader(StructType([]))
