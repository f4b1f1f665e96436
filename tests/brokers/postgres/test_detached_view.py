"""The view penstock.detached: queue and history in one list, by a plain read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from penstock.broker.views import Note, WorkerRow
from penstock.brokers.postgres import PostgresBroker
from penstock.job import DETACHED, Job, failed, succeeded
from penstock.testing.conformance.factories import claim_for

ROW = WorkerRow(id="its-own", tasks={"travel": 1}, host="ant", pid=17)


@pytest.fixture
def broker(postgres_url: str) -> Iterator[PostgresBroker]:
    """On the server's own clock, as the view is."""
    broker = PostgresBroker(postgres_url)
    yield broker
    broker.close()


@pytest.fixture
def connection(broker: PostgresBroker, postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, row_factory=dict_row) as connection:
        yield connection


def viewed(connection: psycopg.Connection[Any]) -> dict[str, dict[str, Any]]:
    rows = connection.execute("select * from penstock.detached").fetchall()
    return {str(row["id"]): row for row in rows}


def travel() -> Job[Any]:
    return Job(task="travel", tags=DETACHED)


def test_it_lists_what_waits_runs_and_has_ended(broker, connection):
    """A15, A17, A18, A21, A24: from before any worker to after the end."""
    done, wrong, running, waiting = jobs = [travel() for _ in range(4)]
    broker.enqueue([*jobs, Job(task="travel")])
    assert {row["state"] for row in viewed(connection).values()} == {"ready"}
    connection.rollback()
    claimed = {job.id: job for job in [claim_for(broker, ROW)[0] for _ in range(3)]}
    broker.settle([(claimed[done.id], succeeded()), (claimed[wrong.id], failed("ValueError: no"))])

    rows = viewed(connection)

    assert len(rows) == 4
    assert {id: row["state"] for id, row in rows.items()} == {
        done.id: "succeeded",
        wrong.id: "failed",
        running.id: "running",
        waiting.id: "ready",
    }
    held = rows[running.id]
    assert (held["host"], held["pid"], held["locked"], held["attempt"]) == ("ant", 17, True, 1)
    assert [rows[job.id]["locked"] for job in (done, wrong, waiting)] == [False] * 3
    assert rows[wrong.id]["error"] == "ValueError: no"
    assert {row["task"] for row in rows.values()} == {"travel"}


def test_it_shows_how_far_one_is_and_which_spark_application_it_is(broker, connection):
    """Issue 6: while it runs."""
    broker.enqueue([travel()])
    [job] = claim_for(broker, ROW)
    broker.note(job, Note("progress", "", b'{"fraction":0.4,"note":"6 Spark jobs ended"}'))
    broker.note(job, Note("application", "", b'{"id":"app-7","master":"spark://ant:7077"}'))
    names = ("progress", "progress_note", "application", "master")

    [row] = viewed(connection).values()
    connection.rollback()
    broker.settle([(job, failed("ValueError: no"))])
    [ended] = viewed(connection).values()

    assert [row[name] for name in names] == [0.4, "6 Spark jobs ended", "app-7", "spark://ant:7077"]
    assert [ended[name] for name in names] == [None] * 4


def test_one_whose_process_is_gone_is_not_locked(broker, connection):
    """A21: false as soon as its row is given up."""
    job = travel()
    broker.enqueue([job])
    claim_for(broker, ROW)
    broker.recover(dead=ROW.id, started=[job.id])

    [row] = viewed(connection).values()

    assert (row["state"], row["locked"], row["lapses"]) == ("ready", False, 1)


def test_reading_it_in_an_open_transaction_holds_nobody_up(broker, connection):
    """A22: whoever reads it and stays in the transaction delays no start and no end."""
    broker.enqueue([travel()])
    assert len(viewed(connection)) == 1

    broker.enqueue([travel()])
    jobs = [claim_for(broker, ROW)[0] for _ in range(2)]

    assert broker.settle([(job, succeeded()) for job in jobs]) == [True, True]
    waiting = connection.execute(
        "select count(*) as n from pg_locks join pg_database d on d.oid = database"
        " where not granted and d.datname = current_database()"
    ).fetchone()
    assert waiting == {"n": 0}


def crowd(connection: psycopg.Connection[Any], events: int) -> None:
    """So many events of other jobs."""
    connection.execute(
        "insert into penstock.history (kind, at, job, state)"
        " select 'attempt', extract(epoch from clock_timestamp()), gen_random_uuid(), 'succeeded'"
        " from generate_series(1, %s)",
        (events,),
    )
    connection.commit()
    connection.autocommit = True
    connection.execute("analyze penstock.history")
    connection.autocommit = False


def read_among(
    broker: PostgresBroker, connection: psycopg.Connection[Any], postgres_url: str, events: int
) -> None:
    crowd(connection, events)
    job = travel()
    broker.enqueue([job, travel()])
    broker.settle([(claim_for(broker, ROW)[0], succeeded())])

    assert {row["state"] for row in viewed(connection).values()} == {"ready", "succeeded"}
    plan = connection.execute("explain (analyze, format json) select * from penstock.detached")
    touched = rows_of(plan.fetchall()[0]["QUERY PLAN"][0]["Plan"])

    # Of the two jobs, and of small tables.
    assert touched < 100
    # The transaction that read it is still open.
    [started] = claim_for(broker, ROW)
    assert broker.settle([(started, succeeded())]) == [True]
    with psycopg.connect(postgres_url) as other:
        other.execute("select * from penstock.detached")


def rows_of(plan: dict[str, Any]) -> float:
    """How many rows all parts of a plan have read, those left out included."""
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
    return own * plan["Actual Loops"] + sum(rows_of(part) for part in plan.get("Plans", ()))


def test_it_reads_few_rows_among_many_events(broker, connection, postgres_url):
    """A22: by indexes, and in a transaction that stays open while jobs start and end."""
    read_among(broker, connection, postgres_url, 20_000)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_it_reads_few_rows_among_a_million_events(broker, connection, postgres_url):
    """A22: the same among a million."""
    read_among(broker, connection, postgres_url, 1_000_000)
