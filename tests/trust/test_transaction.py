"""transaction(): effects and the job's end are one, whenever the worker is killed. I7."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from penstock import App, JobFailed, State, current_job
from penstock.brokers.sqlite import SqliteBroker
from penstock.filter import Filter

PROGRAM = Path(__file__).parent / "programs" / "effects.py"


def all_jobs(broker: SqliteBroker, *states: State) -> set[str]:
    found: set[str] = set()
    after = None
    while True:
        page = broker.find(Filter(state=states), after=after, limit=1000)
        found |= {job.id for job in page.jobs}
        if (after := page.after) is None:
            return found


def effects_of(path: Path) -> Counter[str]:
    raw = sqlite3.connect(path, timeout=30)
    rows = raw.execute("select job from effect").fetchall()
    raw.close()
    return Counter(job for (job,) in rows)


def kill_workers(folder: Path, jobs: int, kills: int, seed: int) -> None:
    path, chance = folder / "jobs.db", random.Random(seed)
    app = App(f"sqlite:///{path}")

    @app.declare("book")
    def book(n: int) -> int: ...

    broker = app.broker
    raw = sqlite3.connect(path)
    raw.execute("create table effect (job text, n integer)")
    raw.close()
    book.enqueue_many([(n,) for n in range(jobs)])

    for turn in range(kills):
        worker = f"worker-{turn}"
        process = subprocess.Popen([sys.executable, PROGRAM, f"sqlite:///{path}", worker, "work"])
        deadline = time.monotonic() + 30
        while worker not in {row.id for row in broker.workers()}:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.1))
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

        succeeded = all_jobs(broker, State.SUCCEEDED)
        assert effects_of(path) == Counter(succeeded)
        broker.recover(dead=worker, started=())

    command = [sys.executable, PROGRAM, f"sqlite:///{path}", "last", "drain"]
    assert subprocess.run(command, timeout=100, check=False).returncode == 0
    succeeded = all_jobs(broker, State.SUCCEEDED)
    assert effects_of(path) == Counter(succeeded)
    failed = all_jobs(broker, State.FAILED)
    assert succeeded | failed == all_jobs(broker)
    # Each tenth raised after it had written; the others did their work, and so did what followed.
    assert len(failed) <= jobs // 10
    assert len(succeeded) == 2 * (jobs - len(failed))
    app.close()


def test_a_killed_worker_leaves_an_effect_for_every_success_and_no_other(tmp_path):
    kill_workers(tmp_path, jobs=200, kills=4, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_killed_worker_leaves_an_effect_for_every_success_for_long(tmp_path, seed):
    kill_workers(tmp_path, jobs=2000, kills=40, seed=seed)


@pytest.fixture
def app(tmp_path):
    return App("memory:")


@pytest.mark.parametrize("point", ["claim", "run", "settle"])
def test_a_death_at_any_point_leaves_one_effect(app, tmp_path, point):
    path = tmp_path / "jobs.db"

    @app.task
    def book(n: int) -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into effect values (?, ?)", (current_job().id, n))

    with app.testing(url=f"sqlite:///{path}") as t:
        raw = sqlite3.connect(path)
        raw.execute("create table effect (job text, n integer)")
        handles = [book.enqueue(n) for n in range(3)]

        with t.crash_at(point):
            t.drain()

        assert effects_of(path) == Counter(handle.id for handle in handles)
        raw.close()


def test_a_second_run_of_everything_leaves_one_effect_each(app, tmp_path):
    path = tmp_path / "jobs.db"

    @app.task
    def book(n: int) -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into effect values (?, ?)", (current_job().id, n))

    with app.testing(url=f"sqlite:///{path}") as t:
        raw = sqlite3.connect(path)
        raw.execute("create table effect (job text, n integer)")
        handles = [book.enqueue(n) for n in range(20)]

        ran = t.drain(twice=True)

        assert len(ran) == 40
        assert effects_of(path) == Counter(handle.id for handle in handles)
        t.assert_idempotent(book, 7, state=lambda: sorted(effects_of(path).values())[:20])
        raw.close()


def test_a_stale_attempt_writes_nothing(app, tmp_path):
    path = tmp_path / "jobs.db"

    @app.task
    def book() -> None:
        t.clock.advance(seconds=20)
        if current_job().attempt == 1:
            assert t.broker.recover() == 1
        with current_job().transaction() as connection:
            connection.execute("insert into effect values (?, 1)", (current_job().id,))

    with app.testing(url=f"sqlite:///{path}") as t:
        raw = sqlite3.connect(path)
        raw.execute("create table effect (job text, n integer)")
        handle = book.enqueue()

        t.drain()

        assert effects_of(path) == Counter([handle.id])
        assert handle.state() is State.SUCCEEDED
        raw.close()


@pytest.mark.parametrize("end", ["raise", "rollback by hand"])
def test_what_a_task_does_to_its_transaction_leaves_nothing(app, tmp_path, end):
    path = tmp_path / "jobs.db"

    @app.task
    def book() -> None:
        with current_job().transaction() as connection:
            connection.execute("insert into effect values (?, 1)", (current_job().id,))
            if end == "raise":
                raise ValueError
            connection.execute("rollback")

    with app.testing(url=f"sqlite:///{path}") as t:
        raw = sqlite3.connect(path)
        raw.execute("create table effect (job text, n integer)")
        handle = book.enqueue()

        t.drain(limit=5)

        assert handle.state() is State.FAILED
        assert not effects_of(path)
        if end == "rollback by hand":
            with pytest.raises(JobFailed, match="leave commit and rollback out"):
                handle.result()
        raw.close()
