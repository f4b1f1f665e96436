"""Tasks with mode="process": how many processes and connections are left when nothing runs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from penstock import State
from penstock.broker.views import WorkerRow
from penstock.job import put_back
from penstock.testing.conformance.factories import claim_for
from penstock.worker.idle_processes import IDLE_SECONDS, KEPT
from penstock.worker.job_process import JobProcess
from tests.stories.conftest import TASKS_FILE, Fleet, Story, eventually, whatever_the_store

TOGETHER = 4


def job_processes(fleet: Fleet) -> set[int]:
    """Those that run single jobs, of all children."""
    children, found = fleet.children(), set[int]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in children and b"process" in words and b"penstock.worker" in words:
                found.add(int(path.name))
    return found


def connections(url: str) -> int:
    with psycopg.connect(url) as connection:
        query = "select count(*) from pg_stat_activity where datname = current_database()"
        [count] = connection.execute(query).fetchone() or (0,)
    return count - 1


def run_together(story: Story) -> None:
    """As many jobs at the same time as there are hands: each waits for all others."""
    meet = story.task("meet_apart")
    for handle in [meet.enqueue(TOGETHER) for _ in range(TOGETHER)]:
        handle.result(timeout=120)


@whatever_the_store
def test_of_many_processes_one_is_kept(story):
    fleet = story.start(threads=TOGETHER)
    run_together(story)
    assert len(job_processes(fleet)) == TOGETHER

    eventually(lambda: len(job_processes(fleet)) == KEPT, timeout=IDLE_SECONDS + 60)

    [kept] = job_processes(fleet)
    assert story.task("crunch").enqueue(7).result(timeout=60) == [7, kept]
    fleet.process.terminate()
    fleet.wait()
    assert not Path(f"/proc/{kept}").exists()


@pytest.fixture
def on_postgres(tmp_path, postgres_url):
    story = Story(tmp_path, postgres_url)
    yield story
    story.close()


def test_a_process_that_waits_has_no_connection_to_the_store(on_postgres):
    story = on_postgres
    fleet = story.start(threads=TOGETHER)
    story.task("nap").enqueue(1).result(timeout=60)
    story.app.disconnect()
    before = eventually(lambda: connections(story.url))
    run_together(story)

    story.app.disconnect()
    eventually(lambda: connections(story.url) <= before, what="no further connection")

    assert len(job_processes(fleet)) >= KEPT
    assert story.task("crunch").enqueue(7).result(timeout=60)[0] == 7


def test_the_worker_is_asked_whether_the_job_may_still_start(story, monkeypatch):
    """Its process follows no rules."""
    for name, value in story.environment().items():
        monkeypatch.setenv(name, value)
    first, second = story.task("crunch").enqueue(1), story.task("crunch").enqueue(2)
    row = WorkerRow(id="worker-1", tasks={"crunch": 1})
    jobs = {job.id: job for job in claim_for(story.broker, row, limit=2)}
    process = JobProcess(f"{TASKS_FILE}:app")
    try:
        paused = process.run(jobs[first.id], lambda _: put_back("paused"))
        ran = process.run(jobs[second.id], lambda _: None)
    finally:
        process.close()

    assert paused == put_back("paused")
    assert ran is not None
    assert ran.state is State.SUCCEEDED
    assert [line[1] for line in story.ledger("crunch")] == ["2"]
