"""Rows of the requirements on PostgreSQL, V4-V7 and V35: a job fires in time, and once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import App, State
from penstock.broker.filter import Filter
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_job, claim, some_jobs
from penstock.testing.postgres import Server
from tests.stories.conftest import Story, eventually
from tests.stories.suspend import suspend


@pytest.fixture
def story(tmp_path: Path, postgres_url: str) -> Iterator[Story]:
    story = Story(tmp_path, postgres_url)
    yield story
    story.close()


def test_v4_jobs_are_added_with_other_data_all_or_none(story):
    """V4: several in one transaction; after a rollback none fires, after a commit all do."""
    nap = story.task("nap")
    with psycopg.connect(story.url) as connection:
        connection.execute("create table orders (n int)")
        connection.commit()
        for n in range(3):
            connection.execute("insert into orders values (%s)", (n,))
            nap.options(connection=connection).enqueue(n)
        connection.rollback()
        for n in range(10, 13):
            connection.execute("insert into orders values (%s)", (n,))
            nap.options(connection=connection).enqueue(n)
        connection.commit()

    assert story.start(drain=True).wait() == 0

    assert story.select("select n from orders order by n") == [(10,), (11,), (12,)]
    assert sorted(line[1] for line in story.ledger("nap")) == ["10", "11", "12"]


def test_v5_a_job_fires_at_its_time_or_as_soon_as_possible(story):
    """V5: both ways measured, five times each; a busy machine spoils some of them."""
    story.start()
    nap = story.task("nap")
    assert nap.enqueue(0).result(timeout=60) == 0
    times: list[float] = []

    for n in range(5):
        time.sleep(0.5)
        times.append(time.monotonic())
        nap.enqueue(n).result(timeout=60)
        times.append(time.monotonic() + 1.5)
        nap.options(delay=1.5).enqueue(n).result(timeout=60)

    started = [float(line[-1]) for line in story.ledger("nap")][1:]
    waited = [start - time for start, time in zip(started, times, strict=True)]
    at_once, at_its_time = waited[::2], waited[1::2]
    assert min(at_its_time) > -0.05
    assert min(at_once) < 0.5
    assert min(at_its_time) < 0.5


@pytest.mark.soak  # in short: test_time
def test_v6_a_job_fires_twice_only_where_its_worker_did_not_answer(story):
    """V6: one worker is stopped beyond its lease; of all jobs those it held alone run again."""
    first = story.start(lease=1.0, threads=1)
    frozen = story.task("nap").enqueue(0, seconds=1.5)
    eventually(lambda: story.ledger("nap"))
    stopped = [first.pid, *first.children()]
    suspend(stopped, story.url)
    second = story.start(lease=1.0, threads=4)
    others = [story.task("nap").enqueue(n) for n in range(1, 50)]

    assert [handle.result(timeout=60) for handle in (frozen, *others)] == list(range(50))
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: "was refused" in first.output(), what=first.output())

    starts = Counter(line[1] for line in story.ledger("nap"))
    assert {number for number, times in starts.items() if times > 1} == {"0"}
    assert set(story.successes().values()) == {1}
    assert second.process.poll() is None


def test_v7_a_job_that_was_settled_never_fires_again(own_postgres: Server):
    """V7: the server restarted, the server killed, the job sent again and settled again."""
    app = App(own_postgres.create_database())
    broker, clock = app.broker, app.broker.clock
    jobs = [*some_jobs(clock, 10), *some_jobs(clock, 10, tags={"a": "b"})]
    broker.enqueue(jobs)
    held = claim(broker, 20)
    assert broker.settle([(job, succeeded()) for job in held]) == [True] * 20

    for again in (own_postgres.stop, own_postgres.kill):
        again()
        own_postgres.start()
        assert broker.enqueue(jobs).known == {job.id for job in jobs}
        assert broker.settle([(job, succeeded()) for job in held]) == [False] * 20
        broker.recover(dead="worker-1")
        assert claim(broker, 100, worker="worker-2") == []

    rows = [event.job for event in broker.history() if event.state is State.SUCCEEDED]
    assert sorted(rows) == sorted(job.id for job in jobs)
    app.close()


def test_v35_an_end_may_be_part_of_a_transaction(postgres_url):
    """V35: with data; after a rollback it fires again, after a commit never."""
    app = App(postgres_url)
    broker, clock = app.broker, app.broker.clock
    with psycopg.connect(postgres_url) as connection:
        connection.execute("create table effect (job text)")
    job = a_job(clock)
    broker.enqueue([job])
    [held] = claim(broker)
    undone = broker.begin()
    undone.connection.execute("insert into effect values (%s)", (job.id,))
    undone.rollback()
    assert broker.get(job.id).state is State.RUNNING
    broker.recover(dead="worker-1")

    [again] = claim(broker, worker="worker-2")
    done = broker.begin()
    done.connection.execute("insert into effect values (%s)", (job.id,))
    assert done.settle(again, succeeded())

    late = broker.begin()
    late.connection.execute("insert into effect values ('late')")
    assert not late.settle(held, succeeded())
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("select job from effect").fetchall() == [(job.id,)]
    assert claim(broker, 10) == []
    assert broker.find(Filter(state=(State.SUCCEEDED,))).jobs[0].id == job.id
    app.close()
