"""transaction(): effects and the job's end are one, whenever the worker is killed. I7, V35."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import App, JobFailed, State, current_job
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker

PROGRAM = Path(__file__).parent / "programs" / "effects.py"


class Place:
    """A database that holds the store and, beside it, a table of the application's."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.on_file = url.startswith("sqlite")
        self.insert = f"insert into effect values {'(?, ?)' if self.on_file else '(%s, %s)'}"

    def connect(self) -> Any:
        if self.on_file:
            return sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)
        return psycopg.connect(self.url)

    def make_table(self) -> None:
        with closing(self.connect()) as raw:
            raw.execute("create table effect (job text, n integer)")
            raw.commit()

    def effects(self) -> Counter[str]:
        with closing(self.connect()) as raw:
            return Counter(job for (job,) in raw.execute("select job from effect").fetchall())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield Place(f"sqlite:///{tmp_path / 'jobs.db'}")
    else:
        yield Place(request.getfixturevalue("postgres_url"))


def all_jobs(broker: Broker, *states: State) -> set[str]:
    found: set[str] = set()
    after = None
    while True:
        page = broker.find(Filter(state=states), after=after, limit=1000)
        found |= {job.id for job in page.jobs}
        if (after := page.after) is None:
            return found


def kill_workers(place: Place, jobs: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    app = App(place.url)

    @app.declare("book")
    def book(n: int) -> int: ...

    broker = app.broker
    place.make_table()
    book.enqueue_many([(n,) for n in range(jobs)])

    for turn in range(kills):
        worker = f"worker-{turn}"
        process = subprocess.Popen([sys.executable, PROGRAM, place.url, worker, "work"])
        deadline = time.monotonic() + 30
        while worker not in {row.id for row in broker.workers()}:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

        # A server may still be committing what the dead one sent.
        deadline = time.monotonic() + 10
        while place.effects() != Counter(all_jobs(broker, State.SUCCEEDED)):
            assert time.monotonic() < deadline, "effects and successes do not agree"
            time.sleep(0.01)
        broker.recover(dead=worker, started=())

    command = [sys.executable, PROGRAM, place.url, "last", "drain"]
    assert subprocess.run(command, timeout=100, check=False).returncode == 0
    succeeded = all_jobs(broker, State.SUCCEEDED)
    assert place.effects() == Counter(succeeded)
    failed = all_jobs(broker, State.FAILED)
    assert succeeded | failed == all_jobs(broker)
    # Each tenth raised after it had written; the others did their work, and so did what followed.
    assert len(failed) <= jobs // 10
    assert len(succeeded) == 2 * (jobs - len(failed))
    app.close()


def test_a_killed_worker_leaves_an_effect_for_every_success_and_no_other(place):
    kill_workers(place, jobs=200, kills=4, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_killed_worker_leaves_an_effect_for_every_success_for_long(place, seed):
    kill_workers(place, jobs=2000, kills=40, seed=seed)


@pytest.fixture
def app():
    return App("memory:")


@pytest.mark.parametrize("point", ["claim", "run", "settle"])
def test_a_death_at_any_point_leaves_one_effect(app, place, point):
    @app.task
    def book(n: int) -> None:
        with current_job().transaction() as connection:
            connection.execute(place.insert, (current_job().id, n))

    with app.testing(url=place.url) as t:
        place.make_table()
        handles = [book.enqueue(n) for n in range(3)]

        with t.crash_at(point):
            t.drain()

        assert place.effects() == Counter(handle.id for handle in handles)


def test_a_second_run_of_everything_leaves_one_effect_each(app, place):
    @app.task
    def book(n: int) -> None:
        with current_job().transaction() as connection:
            connection.execute(place.insert, (current_job().id, n))

    with app.testing(url=place.url) as t:
        place.make_table()
        handles = [book.enqueue(n) for n in range(20)]

        ran = t.drain(twice=True)

        assert len(ran) == 40
        assert place.effects() == Counter(handle.id for handle in handles)
        t.assert_idempotent(book, 7, state=lambda: sorted(place.effects().values())[:20])


def test_a_stale_attempt_writes_nothing(app, place):
    @app.task
    def book() -> None:
        t.clock.advance(seconds=20)
        if current_job().attempt == 1:
            assert t.broker.recover() == 1
        with current_job().transaction() as connection:
            connection.execute(place.insert, (current_job().id, 1))

    with app.testing(url=place.url) as t:
        place.make_table()
        handle = book.enqueue()

        t.drain()

        assert place.effects() == Counter([handle.id])
        assert handle.state() is State.SUCCEEDED


@pytest.mark.parametrize("end", ["raise", "rollback by hand"])
def test_what_a_task_does_to_its_transaction_leaves_nothing(app, place, end):
    @app.task
    def book() -> None:
        with current_job().transaction() as connection:
            connection.execute(place.insert, (current_job().id, 1))
            if end == "raise":
                raise ValueError
            connection.execute("rollback")

    with app.testing(url=place.url) as t:
        place.make_table()
        handle = book.enqueue()

        t.drain(limit=5)

        assert handle.state() is State.FAILED
        assert not place.effects()
        if end == "rollback by hand":
            with pytest.raises(JobFailed, match="leave commit and rollback out"):
                handle.result()
