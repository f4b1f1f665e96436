"""The worker's loop, hands and timeouts, on the memory broker and in this process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import App, JobCancelled, JobFailed, Refused, RetryLater, State, current_job, use
from penstock.broker import Broker, Renewed, WorkerRow
from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.job import Job, Outcome
from penstock.retry import Retry
from penstock.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.worker import Worker
from penstock.worker.claims import Kind, Want
from penstock.worker.health import Health
from penstock.worker.line import Line

SOON = 10.0


@pytest.fixture
def app() -> Iterator[App]:
    """An app on a memory broker, with the machine's own clock."""
    app = App(broker=MemoryBroker())
    yield app
    app.close()


@contextmanager
def working(app: App, **options: Any) -> Iterator[Worker]:
    """A worker in a thread of its own, stopped at the end."""
    worker = Worker(app, **options)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        yield worker
    finally:
        worker.stop(now=True)
        thread.join(SOON)
        assert not thread.is_alive()


def drain(app: App, **options: Any) -> Worker:
    """A worker that has run all there was."""
    worker = Worker(app, drain=True, **options)
    worker.work()
    return worker


def until(broker: Broker, condition: Callable[[], object]) -> None:
    """Wait for something that changes with the store."""
    for _ in range(int(SOON / 0.05)):
        if condition():
            return
        broker.wait(None, 0.05)
    raise AssertionError("it did not happen in time")


def attempts(app: App, job_id: str) -> list[tuple[State | None, str | None]]:
    """Where each attempt at a job led."""
    return [
        (event.state, event.reason)
        for event in app.broker.history(job=job_id)
        if event.kind == "attempt"
    ]


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
    assert set(Path("/dev/fd").iterdir()) == files
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
    app.broker.set_rule(Rule(RuleKind.PAUSE, queue="mail"))

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

    drain(app)

    with pytest.raises(JobFailed, match="timeout"):
        handle.result(timeout=0)
    assert attempts(app, handle.id) == [(State.FAILED, "timeout")]


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
        app.broker.set_rule(Rule(RuleKind.PAUSE, task=work.name))
        at_pause = len(started)
        release.set()
        until(app.broker, lambda: not any(count.running for count in app.broker.count()))
        at_rest = len(started)
        app.broker.clear_rule(RuleKind.PAUSE, task=work.name)
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


class Shaky(MemoryBroker):
    """A store that can be unplugged, before or after it did what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.unplugged = False
        self.lose_answers = 0
        self.calls = 0

    def _work(self) -> None:
        self.calls += 1
        if self.unplugged:
            raise StoreUnreachable("nobody answers")

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
        self._work()
        for _, outcome in pairs:
            if outcome.result == b'"cursed"':
                raise ValueError("this result cannot be stored")
        return super().settle(pairs)

    def settle_and_claim(
        self,
        pairs: Sequence[tuple[Job[Any], Outcome]],
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> tuple[list[bool], list[Job[Any]]]:
        self._work()
        answer = super().settle_and_claim(pairs, worker, queues, limit, sizes)
        if self.lose_answers and (pairs or answer[1]):
            self.lose_answers -= 1
            raise StoreUnreachable("the answer was lost")
        return answer

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        self._work()
        return super().renew(workers, holding)

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        self._work()
        return super().wait(queues, timeout)


def test_losing_the_store_loses_nothing(caplog):
    broker = Shaky()
    app = App(broker=broker)
    started, release = threading.Event(), threading.Event()

    @app.task
    def work(n: int) -> int:
        started.set()
        release.wait(SOON)
        return n

    handles = app.enqueue([work.job(n) for n in range(8)])

    with caplog.at_level(logging.ERROR), working(app, threads=4) as worker:
        assert started.wait(SOON)
        broker.unplugged = True
        release.set()
        calls, patient = broker.calls, threading.Event()
        while broker.calls < calls + 4:
            patient.wait(0.02)
        broker.unplugged = False
        assert [handle.result(timeout=SOON) for handle in handles] == list(range(8))

    assert all(len(attempts(app, handle.id)) == 1 for handle in handles)
    assert worker.stale == 0
    assert caplog.text.count("does not answer") == 1


def test_a_claim_whose_answer_was_lost_strands_nothing():
    broker = Shaky()
    broker.lose_answers = 2
    app = App(broker=broker)

    @app.task
    def work(n: int) -> int:
        return n

    handles = app.enqueue([work.job(n) for n in range(20)])

    worker = drain(app)

    assert [handle.result(timeout=0) for handle in handles] == list(range(20))
    assert worker.stale == 0


class Late(Shaky):
    """A store that carries out its first claim after all, when nobody waits for it any more."""

    def __init__(self) -> None:
        super().__init__()
        self._due: tuple[WorkerRow, Collection[str] | None, int] | None = None
        self.late = 0

    def settle_and_claim(
        self,
        pairs: Sequence[tuple[Job[Any], Outcome]],
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> tuple[list[bool], list[Job[Any]]]:
        if not self.late and self._due is None:
            self._due = worker, queues, limit
            raise StoreUnreachable("no answer in time")
        return super().settle_and_claim(pairs, worker, queues, limit, sizes)

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        renewed = super().renew(workers, holding)
        if self._due is not None and holding is not None:
            due, self._due = self._due, None
            self.late = len(self.claim(*due))
        return renewed


def test_a_claim_that_is_carried_out_after_it_was_given_up_strands_nothing():
    broker = Late()
    app = App(broker=broker)

    @app.task
    def work(n: int) -> int:
        return n

    handles = app.enqueue([work.job(n) for n in range(3)])

    with working(app, lease=0.3):
        assert [handle.result(timeout=SOON) for handle in handles] == [0, 1, 2]

    assert broker.late == 3
    assert [len(attempts(app, handle.id)) for handle in handles] == [1, 1, 1]


def test_every_trouble_begins_with_a_short_pause():
    broker = Shaky()
    line = Line(broker, Health(broker.clock))
    want, row = Want(Kind("hands"), 1, None), WorkerRow(id="worker-1")
    pauses: list[float] = []
    for _ in range(5):
        broker.unplugged = True
        assert line.exchange([], row, None, want) is None
        pauses.append(line.retry_at - time.monotonic())
        broker.unplugged = False
        assert line.renew(row, set()) is not None
        assert line.exchange([], row, None, want) == []

    assert max(pauses) <= 0.1


class Barren(MemoryBroker):
    """A store that answers everything but claims."""

    def settle_and_claim(self, *args: Any, **kwargs: Any) -> Any:
        raise StoreUnreachable("not this")


def test_renewals_alone_do_not_keep_it_green():
    app = App(broker=Barren())

    @app.task
    def work() -> None: ...

    with working(app, lease=0.1) as worker:
        worker.health.red_after = 0.3
        until(app.broker, lambda: not worker.health.green)


def test_one_outcome_that_cannot_be_stored_fails_alone():
    app = App(broker=Shaky())

    @app.task
    def work(text: str) -> str:
        return text

    good, cursed, fine = app.enqueue([work.job(text) for text in ("good", "cursed", "fine")])

    drain(app)

    assert (good.result(timeout=0), fine.result(timeout=0)) == ("good", "fine")
    assert attempts(app, cursed.id) == [(State.FAILED, "unstorable")]


def test_health_turns_red_when_the_store_is_silent(clock: Clock):
    app = App(broker=MemoryBroker(clock))

    worker = Worker(app)
    assert worker.health.ready

    clock.advance(seconds=31)
    assert not worker.health.green

    worker.health.claimed()
    assert worker.health.green


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
    with pytest.raises(Refused, match="needs hands"):
        Worker(app, threads=0)
