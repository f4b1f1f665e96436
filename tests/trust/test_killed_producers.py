"""kill -9 of a producer between any two writes: what was accepted is there, and each row once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.job import Job, succeeded
from penstock.testing.conformance.factories import claim_for
from tests.stories.conftest import eventually

PROGRAM = Path(__file__).parent / "programs" / "producer.py"
# A server may still be committing what somebody sent who was killed since.
OTHERS = """
    select count(*)
      from pg_stat_activity
     where datname = current_database()
       and pid <> pg_backend_pid()
       and backend_type = 'client backend'
"""


def produce(
    how: str, url: str, rows: int, seconds: float | None, *, once_heard: bool = False
) -> list[str]:
    """Let a producer work for this long and kill it, or let it end; what it had said by then.

    `once_heard`: so long after the first of its enqueues was answered.
    """
    read, write = os.pipe()
    command = [sys.executable, PROGRAM, how, url, str(write), str(rows)]
    process = subprocess.Popen(command, pass_fds=[write])
    os.close(write)
    with process, os.fdopen(read) as pipe:
        assert pipe.readline() == "begun\n"
        lines = [pipe.readline()] if once_heard else []
        if seconds is not None:
            time.sleep(seconds)
            os.kill(process.pid, signal.SIGKILL)
        # The pipe keeps what was written before the kill; a line cut short was never said.
        lines += pipe
        said = [line.rstrip("\n") for line in lines if line.endswith("\n")]
    if url.startswith("postgresql"):
        eventually(lambda: select(url, OTHERS) == [(0,)], what="what was sent last has ended")
    return said


def all_stored(url: str) -> list[Job]:
    broker = open_broker(url)
    jobs: list[Job] = []
    after = None
    while True:
        page = broker.find(Filter(), after=after, limit=1000)
        jobs += page.jobs
        if (after := page.after) is None:
            break
    counted = sum(count.ready for count in broker.count())
    broker.close()
    assert counted == len(jobs)
    return jobs


def run_all(url: str) -> list[str]:
    broker = open_broker(url)
    worker = WorkerRow(id="w", tasks={"load": 1, "load_tagged": 1, "load_detached": 1})
    ran: list[str] = []
    while jobs := claim_for(broker, worker, limit=1000):
        assert all(broker.settle([(job, succeeded()) for job in jobs]))
        ran += [job.id for job in jobs]
    broker.close()
    return ran


def select(url: str, statement: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
            return raw.execute(statement).fetchall()
    with psycopg.connect(url) as connection:
        return connection.execute(statement).fetchall()


def queued(url: str) -> list[str | None]:
    """The jobs that the history says were queued."""
    broker = open_broker(url)
    events = broker.history(limit=1_000_000)
    broker.close()
    return [event.job for event in events if event.kind == "event"]


def check_file(url: str) -> None:
    if url.startswith("sqlite"):
        assert select(url, "pragma integrity_check") == [("ok",)]


def number_of(job: Job) -> int:
    return msgspec.json.decode(job.body)["args"]["n"]


def kill_and_resume_a_batch(url: str, kills: int, seed: int) -> None:
    rows, chance = 3000, random.Random(seed)
    for _ in range(kills):
        produce("many", url, rows, seconds=chance.uniform(0.0, 0.05))
    assert produce("many", url, rows, seconds=None) == ["done"]

    jobs = all_stored(url)
    for task in ("load", "load_tagged"):
        numbers = [number_of(job) for job in jobs if job.task == task]
        assert sorted(numbers) == list(range(rows))
    assert len(set(run_all(url))) == 2 * rows
    check_file(url)


def kill_single_enqueues(url: str, how: str, kills: int, seed: int) -> int:
    chance = random.Random(seed)
    said: list[list[str]] = []
    for kill in range(kills):
        # On a busy machine it may not come to say anything in so short a time: the last one does.
        last = kill == kills - 1
        lines = produce(how, url, 100_000, seconds=chance.uniform(0.0, 0.05), once_heard=last)
        said += [line.split() for line in lines]

    there = {job.id for job in all_stored(url)}
    accepted = {id for ids in said for id in ids}
    assert accepted <= there
    # One call per process may have been stored without an answer.
    per_call = {"single": 1, "list": 5}.get(how, 1)
    assert len(there) <= len(accepted) + kills * per_call
    assert len(there) % per_call == 0
    if how == "joined":
        assert {row[0] for row in select(url, "select id from orders")} == there
    if how == "detached":
        assert sorted(queued(url)) == sorted(there)
    ran = run_all(url)
    assert len(ran) == len(set(ran))
    assert set(ran) == there
    check_file(url)
    return len(accepted)


def test_a_batch_that_is_killed_and_resumed_has_each_row_once(fresh_url):
    kill_and_resume_a_batch(fresh_url, kills=8, seed=1)


@pytest.mark.parametrize("how", ["single", "list", "joined", "detached"])
def test_what_was_accepted_before_the_kill_is_stored(fresh_url, how):
    """A38: and of a detached job the word that it was queued: both or neither."""
    accepted = kill_single_enqueues(fresh_url, how, kills=4, seed=2)

    assert accepted > 0


@pytest.mark.parametrize("how", ["single", "list"])
def test_what_was_accepted_before_the_kill_is_stored_on_redis(redis_store_url, how):
    assert kill_single_enqueues(redis_store_url, how, kills=4, seed=2) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
def test_a_batch_that_is_killed_and_resumed_has_each_row_once_for_long(fresh_url, seed):
    kill_and_resume_a_batch(fresh_url, kills=20, seed=seed)


@pytest.mark.soak
@pytest.mark.parametrize("how", ["single", "list", "joined"])
def test_what_was_accepted_before_the_kill_is_stored_for_long(fresh_url, how):
    assert kill_single_enqueues(fresh_url, how, kills=70, seed=3) > 0
