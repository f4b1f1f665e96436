"""A full disk: enqueue says so, nothing accepted is lost, and work goes on when there is room."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import App, StoreFull
from penstock.broker.filter import Filter
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import State, succeeded
from penstock.testing.conformance.factories import a_job, claim, some_jobs

PROGRAM = Path(__file__).parent / "programs" / "full_disk.py"


def fill(broker, clock) -> list[str]:
    """Enqueue until the store refuses; the ids that it accepted."""
    accepted: list[str] = []
    for _ in range(10_000):
        job = a_job(clock, body=b'{"args":{"text":"%s"}}' % (b"x" * 4000))
        try:
            broker.enqueue([job])
        except StoreFull:
            return accepted
        accepted.append(job.id)
    pytest.fail("the store was never full")


def limit_pages(broker: SqliteBroker, pages: int) -> None:
    broker.store._writer.execute(f"pragma max_page_count = {pages}")


def test_what_was_accepted_is_kept_and_the_rest_is_told(sqlite_broker, clock):
    limit_pages(sqlite_broker, 300)

    accepted = fill(sqlite_broker, clock)

    found = sqlite_broker.find(Filter(), limit=1000)
    assert len(accepted) > 100
    assert sorted(job.id for job in found.jobs) == sorted(accepted)
    assert sum(count.ready for count in sqlite_broker.count()) == len(accepted)


def test_an_enqueue_of_many_that_does_not_fit_leaves_nothing_of_itself(sqlite_broker, clock):
    limit_pages(sqlite_broker, 300)
    small = a_job(clock)
    sqlite_broker.enqueue([small])
    many = [a_job(clock, body=b'{"args":{"text":"%s"}}' % (b"x" * 4000)) for _ in range(1000)]

    with pytest.raises(StoreFull):
        sqlite_broker.enqueue(many)

    assert [job.id for job in sqlite_broker.find(Filter()).jobs] == [small.id]


def test_work_goes_on_when_there_is_room_again(sqlite_broker, clock):
    early = some_jobs(clock, 10)
    sqlite_broker.enqueue(early)
    held = claim(sqlite_broker, 10)
    limit_pages(sqlite_broker, 200)
    accepted = fill(sqlite_broker, clock)
    big = b'"%s"' % (b"y" * 100_000)
    with pytest.raises(StoreFull):
        sqlite_broker.settle([(job, succeeded(big)) for job in held])
    assert all(sqlite_broker.get(job.id).state is State.RUNNING for job in held)

    limit_pages(sqlite_broker, 1_000_000)

    assert sqlite_broker.settle([(job, succeeded(big)) for job in held]) == [True] * 10
    ran = []
    while jobs := claim(sqlite_broker, 100):
        assert all(sqlite_broker.settle([(job, succeeded()) for job in jobs]))
        ran += [job.id for job in jobs]
    assert sorted(ran) == sorted(accepted)


def test_the_same_jobs_may_be_sent_again_after_the_refusal(sqlite_broker, clock):
    jobs = [a_job(clock, body=b'{"args":{"text":"%s"}}' % (b"x" * 4000)) for _ in range(300)]
    limit_pages(sqlite_broker, 100)
    with pytest.raises(StoreFull):
        sqlite_broker.enqueue(jobs)
    limit_pages(sqlite_broker, 1_000_000)

    answer = sqlite_broker.enqueue(jobs)

    assert answer.known == frozenset()
    assert len(claim(sqlite_broker, 1000)) == 300


def test_callers_hear_it_as_a_typed_error(tmp_path):
    app = App(broker=SqliteBroker(tmp_path / "jobs.db"))

    @app.task
    def keep(text: str) -> None: ...

    limit_pages(app.broker, 40)

    with pytest.raises(StoreFull, match=r"no room left .* nothing of this call was written"):
        keep.enqueue("x" * 200_000)
    with pytest.raises(StoreFull):
        keep.enqueue_many([("x" * 4000,) for _ in range(1000)], id="import")
    limit_pages(app.broker, 1_000_000)
    assert keep.enqueue_many([("x" * 4000,) for _ in range(1000)], id="import").count == 1000
    app.broker.close()


@pytest.mark.parametrize("room", [150_000, 400_000, 1_000_000])
def test_files_that_cannot_grow_are_a_full_disk(tmp_path, room):
    path = tmp_path / "jobs.db"

    done = subprocess.run(
        [sys.executable, PROGRAM, path, str(room)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["refused"] > 0
    assert told["settled_when_full"] == "StoreFull"
    assert told["accepted"] == told["accepted_when_full"] + 20
    assert told["accepted"] + told["refused"] == 240
    assert told["ran_each_once"]
    raw = sqlite3.connect(path)
    assert raw.execute("pragma integrity_check").fetchone() == ("ok",)
    raw.close()
