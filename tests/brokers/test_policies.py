"""Policies that pg-boss' users know: a program says them for its tasks, whatever the store is."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import pytest

from penstock import App, State, chain
from penstock.broker.values import RETENTION_SECONDS
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import Job, put_back
from penstock.task.retry import Retry
from penstock.testing.conformance.factories import claim_for
from penstock.worker import Worker

app = App("memory:")
runs: list[str] = []


@app.task(name="import", retry=Retry(limit=2, delay=10, factor=2, jitter=0.1, max=15))
def bring_in(what: str) -> str:
    runs.append(what)
    if what == "bad":
        raise OSError(what)
    return what


@app.task(name="short", queue="short", timeout=5, retry=Retry(limit=0))
def short() -> None:
    runs.append("short")
    raise OSError("no")


@app.task(name="long", queue="long", retry=Retry(limit=1, delay=0))
def long() -> None:
    runs.append("long")
    raise OSError("no")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def t(url: str):
    runs.clear()
    with app.testing(url=url) as t:
        yield t


def test_one_job_for_an_idempotency_key_however_often_it_is_asked_for(t):
    """A19: the caller is told which job stands; it is found by its key while it does."""
    first = bring_in.options(unique="request-7").enqueue("a file")
    again = bring_in.options(unique="request-7").enqueue("a file")

    t.drain()

    assert (again.id, again.stored) == (first.id, False)
    assert runs == ["a file"]


def test_one_job_for_an_idempotency_key_that_is_asked_for_at_once(t):
    """A19."""
    start = threading.Barrier(8)
    ids: list[str] = []

    def ask() -> None:
        start.wait()
        ids.append(bring_in.options(unique="request-8").enqueue("a file").id)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.drain()

    assert (len(ids), len(set(ids))) == (8, 1)
    assert runs == ["a file"]


def test_a_hundred_sends_at_once_are_a_hundred_jobs_whatever_else_is_refused(t):
    """A39: none is lost, and one that is refused keeps nobody waiting."""
    start = threading.Barrier(20)
    refused: list[Exception] = []

    def send(number: int) -> None:
        start.wait()
        for place in range(6):
            try:
                bring_in.enqueue(f"{number}.{place}" if place else number)
            except Refused as error:
                refused.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    t.drain()

    assert len(refused) == 20
    assert Counter(runs) == {f"{n}.{place}": 1 for n in range(20) for place in range(1, 6)}


def test_queues_differ_as_their_tasks_say(t):
    """A20, B26: retry or none, each by its own word."""
    short.enqueue()
    long.enqueue()

    t.drain()

    assert sorted(runs) == ["long", "long", "short"]


def test_queues_differ_in_how_many_run_how_often_they_are_tried_and_when_they_are_too_late(t):
    """A20: one at a time, without retries and for five seconds; or all at once, with one."""
    app.limit("short", running=1)
    briefly = [short.options(expires=5).enqueue() for _ in range(3)]
    patient = [long.enqueue() for _ in range(3)]
    row = WorkerRow(id="other", tasks=app.known_tasks())

    claimed = claim_for(t.broker, row, ("short", "long"), 9)

    assert Counter(job.queue for job in claimed) == {"short": 1, "long": 3}
    t.broker.settle([(job, put_back("test")) for job in claimed])
    t.clock.advance(seconds=6)
    t.drain()
    assert Counter(runs) == {"long": 6}
    assert {handle.state() for handle in patient} == {State.FAILED}
    assert {t.broker.get(handle.id).reason for handle in briefly} == {"expired"}


def test_retries_wait_longer_each_time_up_to_a_most(t):
    """A50: two retries, 10 and 20 seconds but at most 15, spread by a tenth."""
    handle = bring_in.enqueue("bad")
    waits = []
    for _ in range(3):
        t.drain()
        job = t.broker.get(handle.id)
        if job.state is State.READY:
            waits.append(job.run_at - t.clock.now())
        t.clock.advance(seconds=20)

    assert runs == ["bad"] * 3
    assert 9 <= waits[0] <= 11
    assert 13.5 <= waits[1] <= 15


def test_what_failed_is_kept_with_its_source_and_can_be_driven_again(t):
    """A50: a dead letter is a failed job: where it came from is what it is."""
    handle = short.options(tags={"tenant": "a"}).enqueue()
    t.drain()
    job = t.broker.get(handle.id)

    assert (job.state, job.queue, job.task) == (State.FAILED, "short", "short")
    assert t.broker.act("retry", [handle.id]) == [handle.id]
    t.drain()

    assert runs == ["short", "short"]


def test_what_waits_outlives_the_retention_and_what_ended_does_not(t):
    """A50: two weeks for what ended; what is queued stays until it has run."""
    ended = bring_in.enqueue("done")
    t.drain()
    waiting = bring_in.options(delay=90 * 86400).enqueue("later")
    t.clock.advance(days=15)

    t.broker.prune(t.clock.now() - RETENTION_SECONDS)

    assert (ended.state(), waiting.state()) == (None, State.READY)


def test_a_key_is_throttled_for_as_long_as_it_says(t):
    """A51: one per key and slot, whether it has ended or not."""
    hourly = bring_in.options(unique="tenant-a", unique_for=3600, unique_until="time")
    stored = [hourly.enqueue(f"{minute}").stored for minute in (0, 1)]
    t.drain()
    stored.append(hourly.enqueue("2").stored)
    t.clock.advance(hours=1, seconds=1)
    stored.append(hourly.enqueue("3").stored)
    t.drain()

    assert stored == [True, False, False, True]
    assert runs == ["0", "3"]


def test_queued_jobs_are_cancelled_and_taken_up_again(t):
    """A51: cancel, resume, retry."""
    handle = bring_in.enqueue("a file")
    assert handle.cancel()
    t.drain()
    assert (runs, handle.state()) == ([], State.CANCELLED)

    t.broker.act("retry", [handle.id])
    t.drain()

    assert (runs, handle.state()) == (["a file"], State.SUCCEEDED)


def test_a_queued_job_is_replaced_by_another_under_its_key(t):
    """A51: update and upsert: what waits is taken back, and the next stands for it."""
    first = bring_in.options(unique="tenant-a").enqueue("old")
    assert t.broker.act("delete", [first.id]) == [first.id]

    again = bring_in.options(unique="tenant-a").enqueue("new")
    t.drain()

    assert again.stored
    assert runs == ["new"]


def test_what_happened_is_handed_to_all_who_asked_for_it_or_to_none(t):
    """A51: publish and subscribe: a job for each, stored together."""
    subscribers = [bring_in.options(queue=queue) for queue in ("mail", "ledger", "stock")]
    with pytest.raises(Refused):
        app.enqueue([*(task.job("sold") for task in subscribers), Job(task="x", priority=1000)])
    assert t.broker.count() == []

    app.enqueue([task.job("sold") for task in subscribers])

    assert {count.queue: count.ready for count in t.broker.count()} == {
        "mail": 1,
        "ledger": 1,
        "stock": 1,
    }
    t.drain()
    assert runs == ["sold"] * 3


def test_a_job_is_held_until_its_parents_have_ended(t):
    """A51: dependencies."""
    handle = chain(bring_in.job("parent"), bring_in).enqueue()
    t.drain(limit=1)
    assert handle.state() is State.READY

    t.drain()

    assert runs == ["parent", "parent"]


def test_as_many_run_of_a_group_as_it_may(t):
    """A51, V26: concurrency per group, which is its key."""
    app.limit(task=bring_in, running=1, per_key=True)
    jobs = [bring_in.options(key=key).job(key) for key in ("a", "a", "b")]
    app.enqueue(jobs)

    [count] = t.broker.count()

    assert (count.ready, count.limited) == (2, 1)
    t.drain()
    assert sorted(runs) == ["a", "a", "b"]


def test_a_program_moves_to_another_store_by_its_url(url):
    """G35: no vendor is locked in: nothing but the URL differs."""
    broker = open_broker(url)
    runs.clear()
    with app.replace_broker(broker):
        handle = chain(bring_in.job("a file"), bring_in).enqueue()
        Worker(app, threads=1, drain=True).work()

        assert handle.result(timeout=0) == "a file"
    broker.close()


def test_a_worker_is_ready_runs_stops_and_has_stopped(url):
    """G61, D66: a stop lets the job that runs end; no error of a job ends the loop."""
    broker = open_broker(url)
    states: list[tuple[bool, bool]] = []
    with app.replace_broker(broker):
        worker = Worker(app, threads=1)

        @app.hook("claimed")
        def look(job) -> None:
            states.append((worker.health.ready, worker.row.running > 0))
            if job.task == "import":
                worker.stop()

        try:
            failing = short.enqueue()
            last = bring_in.options(priority=-1).enqueue("the last one")
            behind = bring_in.options(priority=-2).enqueue("not any more")
            worker.work()
        finally:
            app.hooks = {}

        assert states == [(True, True)] * 2
        assert (failing.state(), last.state()) == (State.FAILED, State.SUCCEEDED)
        assert behind.state() is State.READY
        assert (worker.health.ready, worker.clean) == (False, True)
        assert not any(row.alive for row in broker.workers())
    broker.close()
