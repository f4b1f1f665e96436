"""The worker's loop and hands, on the memory broker and in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import App, Refused, RetryLater, State, current_job, use
from penstock.brokers.memory import MemoryBroker
from penstock.rules.rule import Rule, RuleKind
from penstock.task.retry import Retry
from penstock.testing.clock import Clock
from penstock.worker import Worker
from tests.workers import SOON, attempts, drain, until, working


@pytest.fixture
def app() -> Iterator[App]:
    """An app on a memory broker, with the machine's own clock."""
    app = App(broker=MemoryBroker())
    yield app
    app.close()


def penstock_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("penstock-")}


def test_runs_plain_and_async_tasks_and_keeps_their_results(app):
    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def triple(n: int) -> int:
        await asyncio.sleep(0)
        return 3 * n

    two, three = double.enqueue(21), triple.enqueue(14)

    drain(app)

    assert (two.result(timeout=0), three.result(timeout=0)) == (42, 42)


def test_nothing_is_left_behind_when_work_returns(app):
    @app.task
    def plain() -> None: ...

    @app.task
    async def asynchronous() -> None: ...

    app.enqueue([plain.job(), asynchronous.job()])
    threads, files = penstock_threads(), set(Path("/dev/fd").iterdir())

    drain(app)

    assert penstock_threads() <= threads
    # One less is a file that an earlier test left to the garbage collector.
    assert set(Path("/dev/fd").iterdir()) <= files
    assert not any(row.alive for row in app.broker.workers())


def test_thousands_of_quick_jobs_run_once_each(app):
    ran: list[int] = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    note.enqueue_many([(n,) for n in range(5000)], id="rows")

    worker = drain(app)

    assert sorted(ran) == list(range(5000))
    assert (worker.settled, worker.stale) == (5000, 0)


def test_many_async_jobs_run_at_once_but_no_more_than_there_are_slots(app):
    running = most = 0
    all_there = asyncio.Barrier(20)

    @app.task
    async def wait() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.wait_for(all_there.wait(), SOON)
        running -= 1

    handles = app.enqueue([wait.job() for _ in range(100)])

    drain(app, async_slots=20)

    assert most == 20
    assert {handle.state() for handle in handles} == {State.SUCCEEDED}


def test_as_many_plain_jobs_run_at_once_as_there_are_threads(app):
    together = threading.Barrier(4)

    @app.task
    def meet() -> None:
        together.wait(SOON)

    handles = app.enqueue([meet.job() for _ in range(8)])

    drain(app, threads=4)

    assert {handle.state() for handle in handles} == {State.SUCCEEDED}


def test_a_slow_job_does_not_hold_up_those_that_were_taken_with_it(app):
    ahead, release, others = threading.Event(), threading.Event(), threading.Event()
    ran: list[int] = []

    @app.task
    def work(n: int) -> None:
        if n == 2000:
            ahead.set()
            release.wait(SOON)
        ran.append(n)
        if ahead.is_set() and len(ran) >= 3999:
            others.set()

    work.enqueue_many([(n,) for n in range(4000)], id="rows")

    with working(app):
        assert others.wait(SOON)
        release.set()
        until(app.broker, lambda: not app.broker.count())

    assert len(ran) == 4000


def test_only_the_named_queues_are_served(app):
    @app.task
    def task() -> None: ...

    mine = task.options(queue="mine").enqueue()
    other = task.options(queue="other").enqueue()

    drain(app, queues=["mine"])

    assert (mine.state(), other.state()) == (State.SUCCEEDED, State.READY)


def test_a_job_that_requires_a_tag_waits_for_a_worker_that_has_it(app):
    @app.task(runs_on=("gpu",))
    def render() -> None: ...

    handle = render.enqueue()

    drain(app)
    assert handle.state() is State.READY

    drain(app, tags=["gpu"])
    assert handle.state() is State.SUCCEEDED


def test_draining_waits_for_what_is_scheduled_and_not_for_what_is_paused(app):
    @app.task
    def task() -> None: ...

    later = task.options(delay=0.3).enqueue()
    paused = task.options(queue="mail").enqueue()
    app.broker.put(Rule(RuleKind.PAUSE, queue="mail"))

    drain(app)

    assert (later.state(), paused.state()) == (State.SUCCEEDED, State.READY)


def test_a_failed_job_is_retried_when_its_time_has_come(clock: Clock):
    app = App(broker=MemoryBroker(clock))
    tries: list[float] = []

    @app.task(retry=Retry(limit=1, delay=300))
    def fragile() -> str:
        tries.append(clock.now())
        if len(tries) == 1:
            raise OSError("no route")
        return "sent"

    handle = fragile.enqueue()

    with working(app):
        until(app.broker, lambda: attempts(app, handle.id))
        clock.advance(seconds=299)
        app.broker.wake()
        clock.advance(seconds=1)
        app.broker.wake()
        assert handle.result(timeout=SOON) == "sent"

    assert tries[1] - tries[0] == 300


class UndecidedTwice(type):
    """Breaks the question whether an exception is of this class, the first two times."""

    asked = 0

    def __instancecheck__(cls, instance: object) -> bool:
        cls.asked += 1
        if cls.asked <= 2:
            raise RuntimeError("the retry rule is broken")
        return True


def test_a_fault_in_the_decision_about_a_retry_loses_no_job(app, caplog):
    """D26: it counts as a crash of the worker and not as a failure, and the job runs again."""

    class Undecided(Exception, metaclass=UndecidedTwice): ...

    @app.task(retry=Retry(limit=1, delay=0, on=(Undecided,)))
    def fail() -> None:
        raise ValueError("no")

    handle = fail.enqueue()

    drain(app)

    ready, failed = State.READY, State.FAILED
    assert attempts(app, handle.id) == [
        *[(ready, "crashed")] * 2,
        (ready, "error"),
        (failed, "error"),
    ]
    job = app.broker.get(handle.id)
    assert (job.lapses, job.failures) == (2, 2)
    assert "the retry rule is broken" in caplog.text


def test_a_job_may_ask_to_be_put_back(app):
    runs: list[int] = []

    @app.task
    def patient() -> None:
        runs.append(1)
        if len(runs) < 3:
            raise RetryLater(after=0.01)

    handle = patient.enqueue()

    drain(app)

    job = app.broker.get(handle.id)
    assert job is not None
    assert (job.state, job.attempt, job.failures, job.lapses) == (State.SUCCEEDED, 3, 0, 0)


def test_hooks_hear_of_every_kind_of_end(app):
    heard: list[tuple[str, str]] = []
    for kind in ("claimed", "succeeded", "failed", "timed_out"):
        app.hook(kind)(lambda job, *_, kind=kind: heard.append((kind, job.task)))

    @app.task(name="good")
    def good() -> None: ...

    @app.task(name="bad")
    def bad() -> None:
        raise ValueError

    @app.task(name="long", timeout=0.1)
    async def long() -> None:
        await asyncio.sleep(SOON)

    app.enqueue([good.job(), bad.job(), long.job()])

    drain(app)

    assert sorted(heard) == [
        ("claimed", "bad"),
        ("claimed", "good"),
        ("claimed", "long"),
        ("failed", "bad"),
        ("succeeded", "good"),
        ("timed_out", "long"),
    ]


def test_resources_are_opened_once_and_closed_when_the_worker_ends(app):
    events: list[str] = []

    def client() -> Iterator[str]:
        events.append("opened")
        yield "client"
        events.append("closed")

    @app.task
    def send(client: str = use(client)) -> str:
        events.append("used")
        return client

    app.enqueue([send.job(), send.job()])

    drain(app)

    assert events == ["opened", "used", "used", "closed"]


def test_a_job_knows_itself(app):
    @app.task
    def who() -> list[str]:
        return [current_job().id, str(current_job().attempt)]

    handle = who.enqueue()

    drain(app)

    assert handle.result(timeout=0) == [handle.id, "1"]


def test_process_mode_needs_an_app_that_another_process_can_find(app):
    @app.task(mode="process")
    def crunch() -> None: ...

    with pytest.raises(Refused, match="must find the app"):
        Worker(app).work()


def test_a_worker_without_hands_is_refused(app):
    with pytest.raises(Refused, match="needs at least one of each"):
        Worker(app, threads=0)
