"""Batches and time: jobs that wait for company, are cancelled, limited, stopped, timed out."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock import (
    App,
    BatchTask,
    State,
)
from tests.workers import SOON, attempts, doubling, drain, until, working


@pytest.fixture
def app(store_app: App) -> App:
    return store_app


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_call_has_one_deadline_and_its_end_is_every_jobs(app: App, *, asynchronous: bool):
    over = threading.Event()

    push: BatchTask[int, None]
    if asynchronous:

        @app.batch_task(size=2, linger=SOON, timeout=0.1)
        async def push_async(numbers: list[int]) -> None:
            await asyncio.Event().wait()  # for ever

        push = push_async
    else:

        @app.batch_task(size=2, linger=SOON, timeout=0.1)
        def push_plain(numbers: list[int]) -> None:
            while not over.wait(0.01):
                pass

        push = push_plain
    handles = [push.enqueue(n) for n in range(2)]

    drain(app)

    over.set()
    assert [attempts(app, handle.id) for handle in handles] == 2 * [[(State.FAILED, "timeout")]]


def test_stopping_puts_back_what_waits_for_company_uncounted(app: App):
    """SIGTERM while lingering: nothing was begun, nothing is counted."""
    double, calls = doubling(app, size=10, linger=SOON)
    handles = [double.enqueue(n) for n in range(3)]

    with working(app) as worker:
        until(app.broker, lambda: all(handle.state() is State.RUNNING for handle in handles))
        worker.stop()

    jobs = [app.broker.get(handle.id) for handle in handles]
    assert calls == []
    assert [(job.state, job.failures, job.lapses) for job in jobs] == 3 * [(State.READY, 0, 0)]
    assert [attempts(app, handle.id) for handle in handles] == [[], [], []]


def test_a_job_that_is_cancelled_while_it_waits_for_company_is_not_called(app: App):
    double, calls = doubling(app, size=2, linger=SOON)
    first = double.enqueue(1)

    with working(app, lease=0.6):
        until(app.broker, lambda: first.state() is State.RUNNING)
        first.cancel()
        until(app.broker, lambda: first.state() is State.CANCELLED)
        handles = [double.enqueue(n) for n in (2, 3)]
        assert [handle.result(timeout=SOON) for handle in handles] == [4, 6]

    assert calls == [[2, 3]]


def test_a_call_is_ended_only_when_all_of_its_jobs_are_cancelled(app: App):
    """One that is cancelled alone ends as the call says."""
    begun, over = threading.Semaphore(0), threading.Event()

    @app.batch_task(size=2, linger=SOON)
    def push(numbers: list[int]) -> list[int]:
        begun.release()
        while not over.wait(0.01):
            pass
        return numbers

    with working(app, lease=0.6):
        alone, other = push.enqueue(1), push.enqueue(2)
        assert begun.acquire(timeout=SOON)
        both = [push.enqueue(n) for n in (3, 4)]
        assert begun.acquire(timeout=SOON)
        app.broker.act("cancel", [alone.id, *(handle.id for handle in both)])
        until(app.broker, lambda: all(each.state() is State.CANCELLED for each in both))
        assert (alone.state(), other.state()) == (State.RUNNING, State.RUNNING)
        over.set()
        assert (alone.result(timeout=SOON), other.result(timeout=SOON)) == (1, 2)


def test_a_slow_batch_does_not_hold_up_other_tasks(app: App):
    """One thread: while jobs wait for company it runs what there is."""
    double, calls = doubling(app, size=10, linger=SOON)
    waiting = double.enqueue(1)

    @app.task
    def plain() -> str:
        return "ran"

    with working(app, threads=1):
        until(app.broker, lambda: waiting.state() is State.RUNNING)
        assert plain.enqueue().result(timeout=SOON) == "ran"
        assert calls == []


def test_limits_count_jobs_and_not_calls(app: App):
    """G34 under D10: never more running than the limit says, whatever the batch could take."""
    double, calls = doubling(app, size=10, linger=0.05, queue="push")
    app.limit("push", running=3)
    handles = [double.enqueue(n) for n in range(9)]

    drain(app)

    assert max(map(len, calls)) <= 3
    assert [handle.result(timeout=0) for handle in handles] == [2 * n for n in range(9)]


def test_a_rate_is_kept_although_jobs_wait_for_company(app: App):
    double, calls = doubling(app, size=10, linger=SOON, queue="push")
    app.limit("push", rate="3/min")
    handles = [double.enqueue(n) for n in range(5)]

    with working(app):
        until(app.broker, lambda: sum(h.state() is State.SUCCEEDED for h in handles) == 3)

    assert sum(map(len, calls)) == 3
