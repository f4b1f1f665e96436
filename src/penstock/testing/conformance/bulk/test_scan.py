"""Scan: rows in bulk, each as `history` and `get` show it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.slice import Selection
from penstock.broker.views import Note
from penstock.enqueue.ids import Ids
from penstock.job import Lane, Parcel, failed, succeeded, try_again
from penstock.testing.conformance.factories import (
    a_job,
    begun,
    claim,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.needs("bulk")

ROWS = 12_000  # more than one record batch
SECRET = b'{"args":{"who":"ada","pin":"1234-secret"},"secret":["pin"]}'


def scanned(broker: Any, table: str, **wanted: Any) -> list[dict[str, Any]]:
    """All rows of a table."""
    selection = Selection(table=table, **wanted)
    return [
        row
        for part in broker.slices(selection, at_most=3)
        for batch in broker.scan(part)
        for row in batch.to_pylist()
    ]


def in_rows(value: Any) -> Any:
    """A field of an event or a job as a scan gives it."""
    if isinstance(value, float):
        return datetime.fromtimestamp(round(value * 1e6) / 1e6, UTC)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return msgspec.json.encode(value).decode() if value else None
    return value


def some_history(broker: Any, clock: Any) -> None:
    """Attempts that led to every state, events and a gauge."""
    broker.enqueue(some_jobs(clock, 3, queue="mail"))
    broker.enqueue([a_job(clock, "media:resize", key="k", tags={"tenant": "a", "x": 'q"\n,'})])
    for number, job in enumerate(claim(broker, limit=4)):
        clock.advance(seconds=1)
        outcome = [succeeded(b'{"n":"\\u00e9,\\n"}'), failed('Traceback\n  "x", y\n'), succeeded()]
        settle(broker, job, begun([*outcome, try_again("", clock.now())][number], clock.now()))
    taken = enqueue_and_claim(broker, clock, queue="films", priority=7)
    broker.note(taken, Note("progress", "half", b"0.5"))
    broker.act("cancel", [taken.id], "ada", "too late")
    broker.gauge()


@pytest.mark.parametrize(
    ("table", "kinds"),
    [("attempts", {"attempt"}), ("events", {"progress", "cancel"}), ("gauges", {"gauge"})],
)
@pytest.mark.needs("one place")
def test_every_column_of_the_history_is_as_history_shows_it(broker, clock, table, kinds):
    some_history(broker, clock)
    rows = scanned(broker, table)

    expected = [event for event in broker.history() if event.kind in kinds]
    assert {event.kind for event in expected} == kinds
    assert len(rows) == len(expected)
    for row, event in zip(sorted(rows, key=lambda row: row["position"]), expected, strict=True):
        assert row == {name: in_rows(getattr(event, name)) for name in row}


@pytest.mark.needs("order across buckets")
def test_every_column_of_a_job_is_as_get_shows_it(broker, clock):
    some_history(broker, clock)
    broker.enqueue(some_jobs(clock, 4))
    broker.enqueue([a_job(clock, run_at=clock.now() + 60)])
    claim(broker, limit=2)
    rows = scanned(broker, "jobs")

    ids = ids_of(broker.find(Filter(), limit=100).jobs)
    assert sorted(row["id"] for row in rows) == sorted(ids)
    for row in rows:
        job = broker.get(row["id"])
        assert row == {name: in_rows(getattr(job, name)) for name in row}


@pytest.mark.needs("order across buckets")
def test_results_are_the_jobs_that_ended(broker, clock):
    some_history(broker, clock)
    ended = {"succeeded", "failed", "cancelled"}

    rows = scanned(broker, "results")

    jobs = [job for job in broker.find(Filter(), limit=100).jobs if job.state in ended]
    assert sorted(row["id"] for row in rows) == sorted(ids_of(jobs))
    assert len(rows) == 3


@pytest.mark.parametrize(
    "wanted",
    [
        {"queue": ("mail",)},
        {"queue": ("mail", "films"), "task": ("mail:send",)},
        {"state": ("succeeded",)},
        {"state": ("failed", "ready"), "queue": ("mail",)},
        {"task": ("nothing",)},
    ],
)
@pytest.mark.parametrize("table", ["attempts", "jobs", "results"])
@pytest.mark.needs("order across buckets")
def test_a_narrower_selection_gives_what_fits(broker, clock, table, wanted):
    """Filters are the store's to apply: the same rows as all of them, looked through."""
    some_history(broker, clock)
    key = "position" if table == "attempts" else "id"

    narrowed = {row[key] for row in scanned(broker, table, **wanted)}

    assert narrowed == {
        row[key]
        for row in scanned(broker, table)
        if all(row[name] in values for name, values in wanted.items())
    }


@pytest.mark.needs("one place")
def test_a_span_of_time_gives_what_happened_in_it(broker, clock):
    some_history(broker, clock)
    attempts = [row for row in broker.history() if row.kind == "attempt"]
    since, until = attempts[1].at, attempts[2].at

    rows = scanned(broker, "attempts", since=since, until=until)

    assert sorted(row["position"] for row in rows) == [row.position for row in attempts[1:3]]


@pytest.mark.parametrize("table", ["attempts", "events", "jobs"])
@pytest.mark.needs("order across buckets")
def test_without_bodies_all_else_is_the_same(broker, clock, table):
    """Whoever wants times and counts need not carry what jobs carried."""
    some_history(broker, clock)
    key = "id" if table == "jobs" else "position"

    light = sorted(scanned(broker, table, bodies=False), key=lambda row: row[key])

    for row, whole in zip(
        light, sorted(scanned(broker, table), key=lambda row: row[key]), strict=True
    ):
        assert {**row, "body": whole["body"], "result": whole["result"]} == whole


def test_declared_secrets_are_hidden(broker, clock):
    """Packed, in a row of its own, running and ended."""
    broker.enqueue([a_job(clock, body=SECRET), a_job(clock, body=SECRET)])
    broker.enqueue([a_job(clock, body=SECRET, key="a"), a_job(clock, body=SECRET, key="b")])
    first, *_ = claim(broker, limit=2)
    settle(broker, first, succeeded())

    rows = scanned(broker, "jobs") + scanned(broker, "attempts")

    assert len(rows) == 5
    assert all("1234" not in row["body"] and '"pin":"***"' in row["body"] for row in rows)


def test_a_row_may_be_wide(broker, clock):
    broker.enqueue(some_jobs(clock, 2))
    wide = msgspec.json.encode("x" * 6_000_000)
    for job in claim(broker, limit=2):
        settle(broker, job, succeeded(wide))

    assert [row["result"] for row in scanned(broker, "attempts")] == [wide.decode()] * 2


@pytest.mark.needs("scan as one look", "one place")
def test_all_rows_of_a_slice_are_as_they_were_at_one_moment(broker, clock):
    lane, ids = Lane("default", "mail:send"), Ids(clock)
    parcels = [Parcel(ids.first(), lane, [b'{"args":{}}'] * 128) for _ in range(ROWS // 128 + 1)]
    broker.enqueue(parcels)
    [part] = broker.slices(Selection(table="jobs"))

    batches = broker.scan(part)
    rows = next(batches).to_pylist()
    broker.settle([(job, succeeded()) for job in claim(broker, limit=1000)])
    broker.act("cancel", parcels[-1].ids(), "ada")
    rows += [row for batch in batches for row in batch.to_pylist()]

    assert sorted(row["id"] for row in rows) == [one for parcel in parcels for one in parcel.ids()]
    assert {row["state"] for row in rows} == {"ready"}


@pytest.mark.needs("one place")
def test_whoever_stops_half_way_leaves_the_store_as_it_was(broker, clock):
    broker.enqueue(some_jobs(clock, 50))
    broker.settle([(job, succeeded()) for job in claim(broker, limit=50)])
    [part] = broker.slices(Selection(table="attempts"))

    next(broker.scan(part))

    assert broker.enqueue(some_jobs(clock, 1)).known == frozenset()
    assert sum(batch.num_rows for batch in broker.scan(part)) == 50
