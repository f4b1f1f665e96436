"""The rows of a batch that are sent by two at once on PostgreSQL: they are stored once."""

from __future__ import annotations

import threading

import psycopg
import pytest

from penstock import App
from penstock.broker.values import Batch
from penstock.brokers.postgres import PostgresBroker
from penstock.errors import Refused
from penstock.testing.conformance.factories import some_jobs
from tests.brokers.postgres.gate import closed_gate
from tests.stories.conftest import eventually


@pytest.mark.parametrize("before", [0, 5], ids=["the first rows", "more rows"])
def test_the_same_rows_sent_by_two_are_stored_once(own_store_url, clock, before):
    """The answer to the first call was lost, and it is sent again before it is committed."""
    broker = PostgresBroker(own_store_url, clock=clock)
    if before:
        broker.enqueue(some_jobs(clock, before), batch=Batch("import-7", 0))
    answers: list[int | str | None] = []

    def send() -> None:
        try:
            jobs = some_jobs(clock, 5)
            answers.append(broker.enqueue(jobs, batch=Batch("import-7", before)).batch)
        except Refused:
            answers.append("refused")

    threads = [threading.Thread(target=send) for _ in range(2)]
    with closed_gate(own_store_url, "batch", "insert", "update") as gate:
        threads[0].start()
        gate.until(waiting=1)
        threads[1].start()
        eventually(lambda: gate.waiting() == 2 or not threads[1].is_alive())
        gate.open()
        for thread in threads:
            thread.join()

    assert sorted(answers, key=str) == [before + 5, "refused"]  # whoever answers first
    assert sum(count.ready for count in broker.count()) == before + 5
    broker.close()


def test_enqueue_many_beside_a_call_that_is_not_committed_goes_on_behind_it(own_store_url):
    """It asks how many rows are stored, and waits for whoever is storing some."""
    app = App(own_store_url)

    @app.task(name="load")
    def load(n: int) -> None: ...

    rows = [(n,) for n in range(10)]
    counts: list[int] = []
    again = threading.Thread(
        target=lambda: counts.append(load.enqueue_many(rows, id="import-7").count)
    )
    with psycopg.connect(own_store_url) as mine:
        load.options(connection=mine).enqueue_many(rows[:6], id="import-7")
        again.start()
        eventually(lambda: waiting(own_store_url) or not again.is_alive())
        assert again.is_alive()
        mine.commit()
    again.join()

    assert counts == [10]
    assert sum(count.ready for count in app.broker.count()) == 10
    app.close()


def waiting(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as looker:
        row = looker.execute("select count(*) from pg_locks where not granted").fetchone()
    return row[0] if row else 0
