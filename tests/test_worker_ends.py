"""How a worker ends what runs: timeouts, pause, stop, cancel, at most once; in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from penstock import App, JobCancelled, JobFailed, State
from penstock.brokers.memory import MemoryBroker
from penstock.rules.rule import Rule, RuleKind, rule_id
from tests.workers import SOON, attempts, drain, until, working


@pytest.fixture
def app() -> Iterator[App]:
    """An app on a memory broker, with the machine's own clock."""
    app = App(broker=MemoryBroker())
    yield app
    app.close()


def test_a_thread_is_interrupted_at_its_timeout_even_if_it_catches_every_exception(app):
    @app.task(timeout=0.2)
    def stubborn() -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    handle = stubborn.enqueue()

    worker = drain(app)

    with pytest.raises(JobFailed, match="timeout"):
        handle.result(timeout=0)
    assert attempts(app, handle.id) == [(State.FAILED, "timeout")]
    assert worker.clean  # its thread has ended: nobody had to give it up


def test_an_async_job_is_cancelled_at_its_timeout(app):
    cleaned = threading.Event()

    @app.task(timeout=0.1)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    handle = endless.enqueue()

    drain(app)

    assert cleaned.is_set()
    assert attempts(app, handle.id) == [(State.FAILED, "timeout")]


def test_one_job_may_have_a_timeout_of_its_own(app):
    @app.task
    def spin() -> None:
        while True:
            pass

    handle = spin.options(timeout=0.1).enqueue()

    drain(app)

    assert attempts(app, handle.id) == [(State.FAILED, "timeout")]


def test_a_thread_that_cannot_be_interrupted_is_given_up_and_its_neighbours_go_on(app, caplog):
    release = threading.Event()

    @app.task(name="deaf", timeout=0.1)
    def deaf() -> None:
        release.wait(SOON)  # one call into C: nothing is raised before it returns

    @app.task(name="good")
    def good() -> None: ...

    handle = deaf.enqueue()

    with working(app, threads=1) as worker:
        until(app.broker, lambda: attempts(app, handle.id))
        good.enqueue().result(timeout=SOON)
        release.set()

    assert attempts(app, handle.id) == [(State.FAILED, "timeout")]
    assert "does not end at its timeout" in caplog.text
    assert not worker.clean


def test_a_timeout_never_hits_the_job_that_comes_next(app):
    hit: list[str] = []

    @app.task(timeout=0.1)
    def brink(n: int) -> None:
        threading.Event().wait(0.099)

    @app.task
    def after(n: int) -> None:
        try:
            for _ in range(20_000):
                pass
        except BaseException as error:
            hit.append(repr(error))
            raise

    app.enqueue([job for n in range(20) for job in (brink.job(n), after.job(n))])

    drain(app, threads=4)

    assert hit == []


def test_nothing_starts_after_pause_has_returned(app):
    started: list[int] = []
    first = threading.Event()
    release = threading.Event()

    @app.task
    def work(n: int) -> None:
        started.append(n)
        first.set()
        release.wait(SOON)

    handles = app.enqueue([work.job(n) for n in range(30)])

    with working(app, threads=2) as worker:
        assert first.wait(SOON)
        app.broker.put(Rule(RuleKind.PAUSE, task=work.name))
        at_pause = len(started)
        release.set()
        until(app.broker, lambda: not any(count.running for count in app.broker.count()))
        at_rest = len(started)
        app.broker.clear(Rule, rule_id(RuleKind.PAUSE, task=work.name))
        until(app.broker, lambda: not app.broker.count())

    assert at_rest == at_pause <= 2
    assert len(started) == 30
    assert worker.stale == 0
    jobs = [app.broker.get(handle.id) for handle in handles]
    assert {job and (job.state, job.failures, job.lapses) for job in jobs} == {
        (State.SUCCEEDED, 0, 0)
    }


def test_jobs_that_wait_behind_slow_ones_are_put_back_for_others(app):
    release, started = threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> None:
        if n >= 2000:
            started.set()
            release.wait(SOON)

    work.enqueue_many([(n,) for n in range(2100)], id="rows")

    with working(app, threads=1):
        assert started.wait(SOON)
        # The hand is taken; what was claimed with its job comes back within about a second.
        until(app.broker, lambda: sum(count.running for count in app.broker.count()) == 1)
        assert sum(count.ready for count in app.broker.count()) == 99
        release.set()


def test_stopping_lets_running_jobs_end_and_puts_the_rest_back_uncounted(app):
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> int:
        started.set()
        release.wait(SOON)
        return n

    handles = app.enqueue([work.job(n) for n in range(6)])

    with working(app, threads=2) as worker:
        assert started.wait(SOON)
        worker.stop()
        until(app.broker, lambda: sum(count.ready for count in app.broker.count()) >= 4)
        release.set()
        until(app.broker, lambda: not any(count.running for count in app.broker.count()))

    jobs = [app.broker.get(handle.id) for handle in handles]
    assert {job and (job.failures, job.lapses) for job in jobs} == {(0, 0)}
    assert sum(job is not None and job.state is State.SUCCEEDED for job in jobs) in {1, 2}


def test_what_does_not_end_within_the_grace_is_interrupted_and_put_back(app):
    started = threading.Event()

    @app.task
    def spin() -> None:
        started.set()
        while True:
            pass

    @app.task
    async def wait() -> None:
        await asyncio.Event().wait()

    handles = [spin.enqueue(), wait.enqueue()]

    with working(app, grace=0.1) as worker:
        assert started.wait(SOON)
        until(app.broker, lambda: all(handle.state() is State.RUNNING for handle in handles))
        worker.stop()
        until(app.broker, lambda: all(handle.state() is State.READY for handle in handles))

    jobs = [app.broker.get(handle.id) for handle in handles]
    assert {job and (job.reason, job.failures, job.lapses) for job in jobs} == {("shutdown", 0, 0)}


def test_a_running_job_is_told_that_it_was_cancelled(app):
    started, interrupted = threading.Event(), threading.Event()

    @app.task
    def spin() -> None:
        started.set()
        try:
            while True:
                pass
        finally:
            interrupted.set()

    @app.task
    async def wait() -> None:
        await asyncio.Event().wait()

    handles = [spin.enqueue(), wait.enqueue()]

    with working(app):
        assert started.wait(SOON)
        until(app.broker, lambda: all(handle.state() is State.RUNNING for handle in handles))
        for handle in handles:
            assert handle.cancel()
        for handle in handles:
            with pytest.raises(JobCancelled):
                handle.result(timeout=SOON)

    assert interrupted.is_set()


def test_a_job_may_end_before_the_word_of_its_cancellation_reaches_it(app):
    started, release = threading.Event(), threading.Event()

    @app.task
    def work() -> str:
        started.set()
        release.wait(SOON)
        return "done"

    handle = work.enqueue()

    with working(app):
        assert started.wait(SOON)
        handle.cancel()
        release.set()
        until(app.broker, lambda: handle.state() in {State.SUCCEEDED, State.CANCELLED})

    assert len(attempts(app, handle.id)) == 1


def test_an_at_most_once_job_that_was_interrupted_is_not_run_again(app):
    started = threading.Event()

    @app.task(at_most_once=True)
    def charge() -> None:
        started.set()
        while True:
            pass

    handle = charge.enqueue()

    with working(app, grace=0.0) as worker:
        assert started.wait(SOON)
        worker.stop()
        until(app.broker, lambda: handle.state() is State.FAILED)

    job = app.broker.get(handle.id)
    assert job is not None
    assert job.reason == "lost"


def test_at_most_once_jobs_run_and_settle_like_any_other(app):
    @app.task(at_most_once=True)
    def charge(n: int) -> int:
        return n

    @app.task(at_most_once=True)
    async def charge_async(n: int) -> int:
        return n

    handles = app.enqueue(
        [task.job(n) for n in range(30) for task in (charge, charge_async)],
    )

    drain(app, threads=2, async_slots=2)

    assert [handle.result(timeout=0) for handle in handles] == [n for n in range(30) for _ in "ab"]


def test_the_place_of_an_async_job_that_was_given_up_is_given_back_once(app):
    release, ended, both = threading.Event(), threading.Event(), threading.Barrier(2)

    @app.task(name="deaf", at_most_once=True, timeout=0.1)
    async def deaf() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.to_thread(release.wait, SOON)
        ended.set()

    @app.task(name="meet")
    async def meet() -> int:
        return await asyncio.to_thread(both.wait, SOON)

    handle = deaf.enqueue()

    with working(app, async_slots=2):
        until(app.broker, lambda: attempts(app, handle.id))
        release.set()
        assert ended.wait(SOON)
        pair = [meet.enqueue(), meet.enqueue()]

        assert {each.result(timeout=SOON) for each in pair} == {0, 1}
