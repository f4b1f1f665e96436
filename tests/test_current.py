"""The running job, from inside: what it knows, and what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock import App, Job, Progress, Refused, StaleLease, StoreUnreachable, current_job
from penstock.broker.checks import MOST_BODY_BYTES
from penstock.broker.protocol import Broker
from penstock.broker.views import Note
from penstock.brokers.memory import MemoryBroker
from penstock.job import Outcome, State, put_back
from penstock.run.attempt import run, run_async
from penstock.run.job_notes import LOG_LINES, LogLine
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker, claim_for

Work = Callable[..., Outcome | None]


@pytest.fixture
def app(broker: Broker) -> App:
    return App(broker=broker)


@pytest.fixture
def work(app: App) -> Work:
    """Claim the one job there is, run it, and settle it unless it settled itself."""

    def work_one() -> Outcome | None:
        [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
        task = app.task_named(job.task)
        assert task is not None
        outcome = (
            asyncio.run(run_async(app, task, job)) if task.mode == "async" else run(app, task, job)
        )
        if outcome is not None:
            assert app.broker.settle([(job, outcome)]) == [True]
        return outcome

    return work_one


def test_there_is_none_outside_of_a_task(app: App) -> None:
    @app.task
    def plain() -> None:
        current_job()

    for call in (current_job, plain):
        with pytest.raises(RuntimeError, match="no job is running here"):
            call()


def test_it_knows_what_it_is(app: App, work: Work) -> None:
    seen: dict[str, Any] = {}

    @app.task(name="mail:send")
    def send(n: int) -> None:
        job = current_job()
        for name in ("id", "attempt", "key", "tags", "headers", "task"):
            seen[name] = getattr(job, name)

    options = send.options(key="ada", tags={"tenant": "a"}, headers={"trace": "1"})
    handle = options.enqueue(1)
    work()

    assert seen == {
        "id": handle.id,
        "attempt": 1,
        "key": "ada",
        "tags": {"tenant": "a"},
        "headers": {"trace": "1"},
        "task": "mail:send",
    }
    with pytest.raises(RuntimeError):
        current_job()


def test_an_idempotency_key_is_the_same_in_every_attempt(app: App) -> None:
    keys: list[str] = []

    @app.task
    def pay() -> None:
        keys.extend((current_job().idempotency_key(), current_job().idempotency_key("refund")))

    job = pay.job()
    for changed in ({"attempt": 1}, {"attempt": 2, "failures": 1}, {"attempt": 3, "repeats": 1}):
        run(app, pay, msgspec.structs.replace(job, **changed))

    assert keys[:2] == keys[2:4] == [job.id, f"{job.id}:refund"]
    assert keys[4:] == [f"{job.id}:1", f"{job.id}:1:refund"]


def test_progress_is_seen_at_once_and_the_last_word_at_the_end(app: App, work: Work) -> None:
    seen: list[Progress | None] = []

    @app.task
    def climb() -> None:
        for step in range(100):
            current_job().progress(step / 100, f"step {step}")
            if step == 0:
                seen.append(handle.progress())

    handle = climb.enqueue()
    assert handle.progress() is None
    work()

    assert seen[0] is not None
    assert (seen[0].fraction, seen[0].note) == (0.0, "step 0")
    last = handle.progress()
    assert last is not None
    assert (last.fraction, last.note) == (0.99, "step 99")


def test_progress_of_a_busy_task_is_written_without_its_help(app: App, work: Work) -> None:
    @app.task
    def climb() -> float | None:
        current_job().progress(0.1)
        current_job().progress(0.5)
        current_job().log.info("once")
        current_job().log.info("twice")
        tick = threading.Event()
        for _ in range(2000):
            seen = handle.progress()
            if seen is not None and seen.fraction == 0.5 and len(lines_of(app, handle.id)) == 2:
                return seen.fraction
            tick.wait(0.01)
        return None

    handle = climb.enqueue()
    work()

    assert handle.result(timeout=0) == 0.5


def test_a_fraction_is_between_0_and_1(app: App, work: Work) -> None:
    @app.task
    def climb() -> None:
        for wrong in (-0.1, 1.1, float("nan")):
            with pytest.raises(Refused, match="a fraction from 0 to 1"):
                current_job().progress(wrong)

    climb.enqueue()
    outcome = work()
    assert outcome is not None
    assert outcome.state is State.SUCCEEDED


@dataclass
class Place:
    page: int
    cursor: str


def test_a_note_of_the_largest_size_is_kept_and_a_larger_one_is_refused(
    app: App, work: Work
) -> None:
    fits = "x" * (MOST_BODY_BYTES - 2)
    refused: list[str] = []

    @app.task
    def crawl() -> None:
        job = current_job()
        job.snapshot(fits)
        assert job.step("large", lambda: fits) == fits
        for write in (job.snapshot, lambda value: job.step("larger", lambda: value)):
            with pytest.raises(Refused, match="limit") as error:
                write(fits + "x")
            refused.append(str(error.value))
        assert job.last_snapshot() == fits

    handle = crawl.enqueue()
    work()

    assert handle.state() is State.SUCCEEDED
    assert len(refused) == 2


def test_a_snapshot_is_there_in_the_next_attempt(app: App, work: Work) -> None:
    seen: list[Any] = []

    @app.task
    def crawl() -> None:
        job = current_job()
        seen.append(job.last_snapshot(Place))
        job.snapshot(Place(1, "a"))
        job.snapshot(Place(job.attempt, "b"))
        seen.append(job.last_snapshot())
        if job.attempt == 1:
            raise OSError

    handle = crawl.options(retry=None, on_error=None).enqueue()
    work()
    app.broker.act("retry", [handle.id])
    work()

    assert seen[:2] == [None, {"page": 1, "cursor": "b"}]
    # A retry by a person is a new beginning for the counters, not for what was remembered.
    assert seen[2:] == [Place(1, "b"), {"page": seen[3]["page"], "cursor": "b"}]


def test_a_step_is_done_once_and_remembered_typed(app: App, work: Work) -> None:
    calls: list[str] = []
    seen: list[Any] = []

    def place(page: int, *, cursor: str) -> Place:
        calls.append("place")
        return Place(page, cursor)

    async def later() -> tuple[int, str]:
        calls.append("later")
        return (1, "x")

    @app.task
    async def crawl() -> None:
        job = current_job()
        seen.append(job.step("place", place, 3, cursor="c"))
        seen.append(await job.step("later", later))
        seen.append(job.step("lambda", lambda: (1, 2)))
        if len(seen) == 3:
            raise OSError

    handle = crawl.enqueue()
    work()
    app.broker.act("retry", [handle.id])
    work()

    assert calls == ["place", "later"]
    assert seen[:3] == seen[3:] == [Place(3, "c"), (1, "x"), [1, 2]]


def test_events_go_to_the_history(app: App, work: Work) -> None:
    @app.task
    def send() -> None:
        current_job().event("mail_sent", to="ada", size=3)

    handle = send.enqueue()
    work()

    [event] = [each for each in app.broker.history(job=handle.id) if each.kind == "event"]
    assert event.data is not None
    assert b'"to":"ada"' in event.data
    assert b"mail_sent" in event.data


def lines_of(app: App, id: str) -> list[LogLine]:
    notes = app.broker.notes(id, "log")
    return [line for note in notes for line in msgspec.json.decode(note.value, type=list[LogLine])]


def test_log_lines_are_kept_with_the_job_in_order(
    app: App, work: Work, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    def send() -> None:
        log = current_job().log
        log.debug("starting")
        log.info("sent %s of %d", "mail", 3)
        log.warning("slow")
        try:
            raise OSError("no disk")
        except OSError:
            log.exception("failed once")
        for n in range(2 * LOG_LINES):
            log.info("line %d", n)

    handle = send.enqueue()
    with caplog.at_level(logging.INFO, "penstock.job"):
        work()

    lines = lines_of(app, handle.id)
    assert [(line.level, line.text) for line in lines[:3]] == [
        ("debug", "starting"),
        ("info", "sent mail of 3"),
        ("warning", "slow"),
    ]
    assert lines[3].level == "error"
    assert lines[3].text.startswith("failed once\nTraceback")
    assert [line.text for line in lines[4:]] == [f"line {n}" for n in range(2 * LOG_LINES)]
    assert lines[0].at == clock.now()
    assert len(app.broker.notes(handle.id, "log")) < 10
    assert "sent mail of 3" in caplog.text
    assert "starting" not in caplog.text


def test_a_line_that_cannot_be_formatted_does_not_fail_the_job(app: App, work: Work) -> None:
    @app.task
    def send() -> None:
        log = current_job().log
        log.debug("sent %d", "three")
        log.debug("sent %(n)s", {"n": 3})
        log.debug("it broke", exc_info=OSError("no disk"))

    handle = send.enqueue()
    work()

    texts = [line.text for line in lines_of(app, handle.id)]
    assert texts == ["sent %d ('three',)", "sent 3", "it broke\nOSError: no disk"]
    assert handle.state() is State.SUCCEEDED


def test_a_stale_attempt_is_told_when_it_writes(app: App) -> None:
    told: list[str] = []

    @app.task
    def slow() -> None:
        app.broker.settle([(job, put_back("shutdown"))])
        for write in (
            lambda: current_job().snapshot(1),
            lambda: current_job().step("a", lambda: 1),
            lambda: current_job().event("a"),
            lambda: current_job().progress(0.5),
            lambda: current_job().log.info("x"),
        ):
            try:
                write()
            except StaleLease as error:
                told.append(str(error))

    slow.enqueue()
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    run(app, slow, job)

    assert len(told) == 5
    assert f"job {job.id} is no longer held by attempt 1" in told[0]


class Away(MemoryBroker):
    """A broker that does not answer the first notes."""

    away = 3

    def note(self, job: Job[Any], note: Note) -> bool:
        self.away -= 1
        if self.away >= 0:
            raise StoreUnreachable("no answer")
        return super().note(job, note)


def test_what_is_only_told_to_people_waits_for_the_store(clock: Clock) -> None:
    app = App(broker=Away(clock))

    @app.task
    def climb() -> None:
        for step in range(LOG_LINES + 1):
            current_job().log.info("step %d", step)
        current_job().progress(0.5)

    handle = climb.enqueue()
    _, outcome = run_one(app)

    assert outcome is not None
    assert outcome.state is State.SUCCEEDED
    assert len(lines_of(app, handle.id)) == LOG_LINES + 1
    progress = handle.progress()
    assert progress is not None
    assert progress.fraction == 0.5


# transaction(): SQLite has a database of its own


@pytest.fixture
def shop(sqlite_broker: Broker) -> App:
    app = App(broker=sqlite_broker)

    @app.task(name="order")
    def order(how: str) -> str:
        job = current_job()
        if how == "go stale":
            sqlite_broker.settle([(job.job, put_back("shutdown"))])
        with job.transaction() as connection:
            connection.execute("insert into paid values (?)", (job.id,))
            if how == "raise inside":
                raise OSError
            if how == "fill the disk":
                connection.execute("pragma max_page_count = 1")  # no more than there are
                return "done" * 10_000
        if how == "raise after":
            raise OSError
        return "done"

    with _connection(sqlite_broker) as connection:
        connection.execute("create table paid (job text)")
        connection.commit()
    return app


def _connection(broker: Any) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(broker.store.path))


def paid(app: App) -> int:
    with _connection(app.broker) as connection:
        return connection.execute("select count(*) from paid").fetchone()[0]


def run_one(app: App) -> tuple[Job[Any], Outcome | None]:
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    task = app.task_named(job.task)
    assert task is not None
    return job, run(app, task, job)


def test_effects_and_completion_commit_together(shop: App) -> None:
    task = shop.tasks["order"]
    handle = task.enqueue("well")

    _, outcome = run_one(shop)

    assert outcome is None
    assert paid(shop) == 1
    assert handle.result(timeout=0) == "done"


@pytest.mark.parametrize("how", ["raise inside", "raise after"])
def test_what_raises_leaves_nothing(shop: App, how: str) -> None:
    shop.tasks["order"].enqueue(how)

    job, outcome = run_one(shop)

    assert outcome is not None
    assert outcome.state is State.FAILED
    assert paid(shop) == 0
    assert shop.broker.settle([(job, outcome)]) == [True]


def test_a_stale_attempt_leaves_nothing(shop: App, caplog: pytest.LogCaptureFixture) -> None:
    handle = shop.tasks["order"].enqueue("go stale")

    _, outcome = run_one(shop)

    assert outcome is None
    assert paid(shop) == 0
    assert handle.state() is State.READY
    assert "attempt 1 is stale" in caplog.text


def test_a_commit_that_finds_no_room_puts_the_job_back_uncounted(shop: App) -> None:
    shop.tasks["order"].enqueue("fill the disk")

    _, outcome = run_one(shop)

    assert outcome is not None
    assert (outcome.state, outcome.reason, outcome.failures) == (State.READY, "store", 0)
    assert paid(shop) == 0


def test_a_transaction_is_taken_once_and_nothing_else_is_written_meanwhile(shop: App) -> None:
    told: list[str] = []

    @shop.task(name="greedy")
    def greedy() -> None:
        job = current_job()
        job.log.info("before")
        with job.transaction() as connection:
            for attempt in (
                lambda: job.transaction().__enter__(),
                lambda: job.snapshot(1),
                greedy.enqueue,
                lambda: greedy.enqueue_many([()]),
            ):
                try:
                    attempt()
                except (RuntimeError, Refused) as error:
                    told.append(str(error))
            job.log.info("inside")
            job.progress(0.5)
            greedy.options(connection=connection).enqueue()

    handle = greedy.enqueue()
    _, outcome = run_one(shop)

    assert outcome is None
    assert [text.split(":")[0] for text in told] == [
        "transaction()",
        "snapshot",
        "enqueue",
        "enqueue",
    ]
    assert handle.state() is State.SUCCEEDED
    assert [line.text for line in lines_of(shop, handle.id)] == ["before"]
    [count] = shop.broker.count()
    assert count.ready == 1


def test_a_store_without_a_database_refuses(memory_broker: MemoryBroker) -> None:
    app = App(broker=memory_broker)

    @app.task
    def order() -> None:
        with current_job().transaction():
            pass

    order.enqueue()
    _, outcome = run_one(app)

    assert outcome is not None
    assert outcome.state is State.FAILED
