"""The caller's end of a job: its result, its state, and why it has none yet."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import App, Handle, JobCancelled, JobFailed, Refused, ResultGone
from penstock.broker.protocol import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job, State
from penstock.run.attempt import run
from penstock.testing.conformance.factories import a_worker, claim_for


@dataclass
class Sum:
    total: int


@pytest.fixture
def app(broker: Broker) -> App:
    app = App(broker=broker)

    @app.task(name="add")
    def add(a: int, b: int) -> Sum:
        return Sum(a + b)

    @app.task(name="fail")
    def fail() -> None:
        raise ValueError("no such customer")

    @app.task(name="gone", on_success="delete")
    def gone() -> int:
        return 1

    @app.task(name="nothing")
    def nothing() -> None: ...

    return app


def work(app: App) -> None:
    """Run everything there is."""
    while jobs := claim_for(app.broker, a_worker(tasks=app.known_tasks()), limit=10):
        for job in jobs:
            task = app.task_named(job.task)
            assert task is not None
            outcome = run(app, task, job)
            assert outcome is not None
            app.broker.settle([(job, outcome)])


def test_a_result_is_typed_as_the_task_says(app: App) -> None:
    handle = app.tasks["add"].enqueue(1, 2)
    work(app)

    assert handle.result(timeout=0) == Sum(3)
    assert app.handle(handle.id.upper()).result() == Sum(3)
    assert handle.state() is State.SUCCEEDED


def test_a_result_may_be_none(app: App) -> None:
    handle = app.tasks["nothing"].enqueue()
    work(app)

    assert handle.result(timeout=0) is None


def test_a_result_of_an_unknown_task_is_plain_json(app: App, broker: Broker) -> None:
    handle = app.tasks["add"].enqueue(1, 2)
    work(app)

    assert App(broker=broker).handle(handle.id).result() == {"total": 3}


def test_a_failure_is_raised_with_the_workers_traceback(app: App) -> None:
    handle = app.tasks["fail"].enqueue()
    work(app)

    with pytest.raises(
        JobFailed, match=r"failed \(error\): ValueError: no such customer"
    ) as caught:
        handle.result()
    assert caught.value.remote_traceback is not None
    assert "raise ValueError" in caught.value.remote_traceback


def test_a_cancelled_job_says_so(app: App) -> None:
    handle = app.tasks["add"].enqueue(1, 2)

    assert handle.cancel()
    assert not handle.cancel()
    with pytest.raises(JobCancelled):
        handle.result()


def test_a_job_that_was_not_kept_is_gone(app: App) -> None:
    handle = app.tasks["gone"].enqueue()
    assert handle.state() is State.READY
    work(app)

    with pytest.raises(ResultGone, match="not in the store"):
        handle.result()
    assert handle.state() is None


def test_too_late_is_told_with_the_reason(app: App) -> None:
    handle = app.tasks["add"].enqueue(1, 2)

    with pytest.raises(TimeoutError) as caught:
        handle.result(timeout=0.01)

    assert f"job {handle.id} has not ended within 0.01 s: " in str(caught.value)
    assert handle.why().sentence in str(caught.value)
    assert str(handle.why()) == handle.why().sentence


def test_a_result_is_waited_for(app: App) -> None:
    handle = app.tasks["add"].enqueue(1, 2)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result, 20)
        work(app)
        assert waiting.result() == Sum(3)


def test_waiting_inside_a_task_is_refused(app: App) -> None:
    errors: list[BaseException] = []

    @app.task(name="waits")
    def waits(id: str) -> None:
        for call in (app.handle(id).result, lambda: asyncio.run(app.handle(id).result_async())):
            try:
                call()
            except RuntimeError as error:
                errors.append(error)

    waits.enqueue(app.tasks["add"].enqueue(1, 2).id)
    work(app)

    assert ["inside a task" in str(error) for error in errors] == [True, True]


def test_many_await_with_one_thread(app: App) -> None:
    handles = [app.tasks["add"].enqueue(n, n) for n in range(50)]

    async def main() -> list[Any]:
        waiting = [asyncio.create_task(handle.result_async(timeout=60)) for handle in handles]
        await asyncio.to_thread(work, app)
        results = await asyncio.gather(*waiting)
        waiters = [each for each in threading.enumerate() if each.name == "penstock-waiter"]
        assert len(waiters) <= 1
        return results

    assert asyncio.run(main()) == [Sum(2 * n) for n in range(50)]


def test_awaiting_too_long_is_told_with_the_reason(app: App) -> None:
    handle = app.tasks["add"].enqueue(1, 2)

    with pytest.raises(TimeoutError, match=r"has not ended within 0\.01 s: "):
        asyncio.run(handle.result_async(timeout=0.01))


def test_awaiting_raises_what_the_store_raises(app: App) -> None:
    class Broken(MemoryBroker):
        def get(self, job_id: str) -> Job[Any] | None:
            raise OSError("no store")

    broken = App(broker=Broken())

    with pytest.raises(OSError, match="no store"):
        asyncio.run(Handle[Any](broken, "x").result_async())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_awaiting_works_in_a_forked_process(memory_broker: MemoryBroker) -> None:
    app = App(broker=memory_broker)

    @app.task
    def add(a: int) -> int:
        return a

    handle = add.enqueue(7)
    work(app)
    asyncio.run(handle.result_async(timeout=60))  # the parent's waiter has run
    child = os.fork()
    if child == 0:
        os._exit(asyncio.run(handle.result_async(timeout=60)))

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_id_that_is_none_is_refused(app: App) -> None:
    with pytest.raises(Refused, match="is not a job id"):
        app.handle("seven")
