"""`current_job().wait_for_jobs(...)`: queued once, and the job runs again when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import (
    App,
    JobCancelled,
    JobFailed,
    Refused,
    ResultGone,
    Retry,
    current_job,
    current_jobs,
    group,
    wait_for,
)
from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.enqueue.ids import bucket_of
from penstock.errors import WaitsForJobs
from penstock.flows.flow import WAIT_TASK
from penstock.job import Job, Outcome, State
from penstock.run.attempt import run, run_async
from penstock.testing import Testing
from penstock.testing.conformance.factories import a_worker, claim_for

Work = Callable[[], list[str]]


@pytest.fixture
def app(broker: Broker) -> App:
    return App(broker=broker)


def attempt(app: App, job: Job[object]) -> Outcome | None:
    """Run a claimed job; what it leads to is not settled."""
    task = app.task_named(job.task)
    assert task is not None
    return asyncio.run(run_async(app, task, job)) if task.mode == "async" else run(app, task, job)


@pytest.fixture
def work(app: App) -> Work:
    """Run whatever there is, until nothing is ready; the names of the tasks, in turn."""

    def work_all() -> list[str]:
        ran: list[str] = []
        while jobs := claim_for(app.broker, a_worker(tasks=app.known_tasks()), limit=100):
            for job in jobs:
                outcome = attempt(app, job)
                ran.append(job.task)
                if outcome is not None:
                    assert app.broker.settle([(job, outcome)]) == [True]
        return ran

    return work_all


def test_it_runs_again_with_what_they_returned(app: App, work: Work) -> None:
    seen: list[int] = []

    @app.task(name="part")
    def part(n: int) -> int:
        return n * n

    @app.task(name="parent")
    def parent(count: int) -> int:
        seen.append(current_job().attempt)
        parts = current_job().wait_for_jobs("parts", [part.job(n) for n in range(count)])
        return sum(each.result() for each in parts)

    handle = parent.enqueue(3)

    assert work() == ["parent", "part", "part", "part", "parent"]
    assert (handle.result(timeout=0), seen) == (5, [1, 2])


def test_the_store_says_that_it_waits(app: App) -> None:
    @app.task(name="part")
    def part() -> None: ...

    @app.task(name="parent")
    def parent() -> None:
        current_job().wait_for_jobs("parts", part.job())

    handle = parent.enqueue()
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    outcome = attempt(app, job)
    assert outcome is not None
    app.broker.settle([(job, outcome)])

    assert handle.state() is State.WAITING
    assert handle.why().cause == "needs"
    # Stored in one transaction with it, and so on its shard.
    [queued] = app.broker.find(Filter(task=("part",))).jobs
    assert bucket_of(queued.id) == bucket_of(handle.id)


@pytest.mark.parametrize("kind", ["map", "group", "chain", "signal", "nothing"])
def test_it_waits_for_whatever_can_be_spawned(app: App, work: Work, kind: str) -> None:
    @app.task(name="part")
    def part(n: int) -> int:
        return n + 1

    @app.task(name="parent")
    def parent() -> list[int | None]:
        first = part.job(1)
        jobs = {
            "map": part.map(range(3)),
            "group": group(part.job(0), part.job(1)),
            "chain": [part.job(first.output)],
            "signal": [wait_for("go", returns=int)],
            "nothing": [],
        }[kind]
        return [each.result() for each in current_job().wait_for_jobs("parts", jobs)]

    handle = parent.enqueue()
    work()
    if kind == "signal":
        app.signal("go", 7)
        work()

    expected = {"map": [1, 2, 3], "group": [1, 2], "chain": [3], "signal": [7], "nothing": []}
    assert handle.result(timeout=0) == expected[kind]


def test_an_attempt_that_dies_before_it_is_settled_has_queued_nothing(app: App, work: Work) -> None:
    """A33, A34: the notes are written, the jobs are not; and then each is stored once."""

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent")
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", [part.job(n) for n in range(2)])
        return len(parts)

    handle = parent.enqueue()
    for _ in range(3):
        [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
        outcome = attempt(app, job)
        assert outcome is not None
        assert outcome.state is State.WAITING
        assert app.broker.recover(dead=job.worker, started=()) == 1

    assert work() == ["parent", "part", "part", "parent"]
    assert handle.result(timeout=0) == 2


def test_what_ended_is_remembered_like_a_step(app: App, work: Work) -> None:
    """A33: whatever becomes of the jobs meanwhile, and whatever is asked for later."""
    tries: list[list[int]] = []

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent", retry=Retry(limit=3, delay=0))
    def parent() -> list[int]:
        number = len(tries)
        parts = current_job().wait_for_jobs("parts", [part.job(number), part.job(number + 10)])
        tries.append([each.result() for each in parts])
        app.broker.act("delete", [each.id for each in parts])
        if number < 2:
            raise OSError("not yet")
        return tries[-1]

    handle = parent.enqueue()

    assert work() == ["parent", "part", "part", "parent", "parent", "parent"]
    assert tries == [[0, 10]] * 3
    assert handle.result(timeout=0) == [0, 10]


def test_one_that_did_not_succeed_says_how_it_ended(app: App, work: Work) -> None:
    seen: list[object] = []

    @app.task(name="part")
    def part(n: int) -> int:
        if n == 1:
            raise ValueError("one is too many")
        return n

    @app.task(name="parent")
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", [part.job(0), part.job(1), wait_for("go")])
        for each in parts[1:]:
            with pytest.raises((JobFailed, JobCancelled)) as raised:
                each.result()
            seen.append(type(raised.value))
        seen.extend(each.state for each in parts)
        return parts[0].result()

    handle = parent.enqueue()
    work()
    [waiting] = app.broker.find(Filter(task=(WAIT_TASK,))).jobs
    app.broker.act("cancel", [waiting.id])
    work()

    assert handle.result(timeout=0) == 0
    states = [State.SUCCEEDED, State.FAILED, State.CANCELLED]
    assert seen == [JobFailed, JobCancelled, *states]


def test_one_that_is_not_kept_any_more_has_no_result(app: App, work: Work) -> None:
    seen: list[State | None] = []

    @app.task(name="part", on_success="delete")
    def part() -> None: ...

    @app.task(name="other")
    def other() -> None: ...

    @app.task(name="parent")
    def parent() -> int:
        [each] = current_job().wait_for_jobs("parts", [other.job()])
        seen.append(each.state)
        with pytest.raises(ResultGone):
            each.result()
        return 1

    handle = parent.enqueue()
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    outcome = attempt(app, job)
    assert outcome is not None
    app.broker.settle([(job, outcome)])
    [child] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    app.broker.settle([(child, Outcome(State.SUCCEEDED))])
    app.broker.act("delete", [child.id])
    work()

    assert (handle.result(timeout=0), seen) == (1, [None])


def test_who_catches_everything_waits_all_the_same(app: App, work: Work) -> None:
    """B42: the attempt ends as waiting, whatever the function makes of the exception."""

    @app.task(name="part")
    def part() -> int:
        return 7

    @app.task(name="parent")
    def parent() -> int:
        try:
            [each] = current_job().wait_for_jobs("parts", [part.job()])
        except Exception:  # which it is not
            return -1
        except WaitsForJobs:
            return -2
        return each.result()

    handle = parent.enqueue()
    work()

    assert handle.result(timeout=0) == 7


def test_an_async_function_waits_in_the_same_way(app: App, work: Work) -> None:
    @app.task(name="part")
    def part() -> int:
        return 7

    @app.task(name="parent")
    async def parent() -> int:
        [each] = current_job().wait_for_jobs("parts", [part.job()])
        return each.result()

    handle = parent.enqueue()
    work()

    assert handle.result(timeout=0) == 7


def test_tasks_of_an_async_function_wait_one_after_the_other(app: App, work: Work) -> None:
    """asyncio.TaskGroup raises a group, of what its tasks raised."""

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    async def value_of(n: int) -> int:
        [each] = current_job().wait_for_jobs(f"part {n}", [part.job(n)])
        return each.result()

    @app.task(name="parent")
    async def parent() -> int:
        async with asyncio.TaskGroup() as both:
            values = [both.create_task(value_of(n)) for n in (1, 2)]
        return sum(value.result() for value in values)

    handle = parent.enqueue()

    assert work() == ["parent", "part", "parent", "part", "parent"]
    assert handle.result(timeout=0) == 3


def test_a_wait_after_a_wait_is_remembered_as_well(app: App, work: Work) -> None:
    """Also under a name that a step has, and that a store cannot keep as it is."""

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent", retry=Retry(limit=1, delay=0))
    def parent() -> int:
        one = current_job().step("one\0", lambda: 1)
        [two] = current_job().wait_for_jobs("one\0", [part.job(one + 1)])
        [three] = current_job().wait_for_jobs("then", [part.job(two.result() + 1)])
        if current_job().attempt == 3:
            raise OSError("not yet")
        return one + two.result() + three.result()

    handle = parent.enqueue()

    assert work() == ["parent", "part", "parent", "part", "parent", "parent"]
    assert handle.result(timeout=0) == 6


def test_one_that_was_cancelled_while_it_waited_is_retried(app: App, work: Work) -> None:
    """Its jobs go on, and it finds them, whether they have ended by then or not."""

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent")
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", [part.job(n) for n in range(3)])
        return sum(each.result() for each in parts)

    soon, late = parent.enqueue(), parent.enqueue()
    worker = a_worker(tasks=app.known_tasks())
    for job in claim_for(app.broker, worker, limit=2):
        outcome = attempt(app, job)
        assert outcome is not None
        app.broker.settle([(job, outcome)])
    app.broker.act("cancel", [soon.id, late.id])
    app.broker.act("retry", [soon.id])

    assert sorted(work()) == ["parent", *["part"] * 6]
    app.broker.act("retry", [late.id])
    assert work() == ["parent"]
    assert [handle.result(timeout=0) for handle in (soon, late)] == [3, 3]


def test_one_that_is_in_a_flow_waits_in_that_flow(app: App, work: Work) -> None:
    """Its jobs are of the flow, and who needs its output runs after it has returned."""

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent")
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", [part.job(n) for n in (1, 2)])
        return sum(each.result() for each in parts)

    @app.task(name="last")
    def last(total: int) -> int:
        return total * 10

    handle = last.job(parent.job().output).enqueue()

    assert work() == ["parent", "part", "part", "parent", "last"]
    assert handle.result(timeout=0) == 30
    flow = app.broker.flow(handle.id)
    assert flow is not None
    assert len(flow.nodes) == 4
    assert flow.ended_at is not None


def test_what_is_too_large_for_a_note_is_read_from_the_store(app: App, work: Work) -> None:
    @app.task(name="part")
    def part(n: int) -> str:
        return str(n) * 200_000

    @app.task(name="parent", retry=Retry(limit=1, delay=0))
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", [part.job(n) for n in (1, 2)])
        if current_job().attempt == 2:
            raise OSError("not yet")
        return sum(len(each.result()) for each in parts)

    handle = parent.enqueue()

    assert work() == ["parent", "part", "part", "parent", "parent"]
    assert handle.result(timeout=0) == 400_000
    assert app.broker.notes(handle.id, "step") == []


def test_it_cannot_wait_while_its_transaction_is_open(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    request.addfinalizer(app.close)

    @app.task(name="part")
    def part() -> None: ...

    @app.task(name="parent")
    def parent() -> None:
        with current_job().transaction():
            current_job().wait_for_jobs("parts", [part.job()])

    parent.enqueue()
    [job] = claim_for(app.broker, a_worker(tasks=app.known_tasks()))
    outcome = attempt(app, job)

    assert outcome is not None
    assert outcome.state is State.FAILED
    assert "wait before the block" in (outcome.error or "")


def test_a_retried_part_is_waited_for_again(app: App, work: Work) -> None:
    """Somebody retries what failed before the parent has seen it: the parent is put back."""

    @app.task(name="part")
    def part() -> int:
        raise ValueError("no")

    @app.task(name="parent")
    def parent() -> int:
        return len(current_job().wait_for_jobs("parts", [part.job()]))

    parent.enqueue()
    worker = a_worker(tasks=app.known_tasks())
    ran: list[str] = []
    for _ in range(2):
        [job] = claim_for(app.broker, worker)
        outcome = attempt(app, job)
        assert outcome is not None
        app.broker.settle([(job, outcome)])
        ran.append(job.id)
    [again] = claim_for(app.broker, worker)
    app.broker.act("retry", ran[1:])

    outcome = attempt(app, again)

    assert outcome is not None
    assert (outcome.state, outcome.reason, outcome.spawned) == (State.READY, "jobs", ())
    assert outcome.run_at is not None


def test_the_testing_kit_drains_it(penstock_testing: Callable[[App], Testing]) -> None:
    app = App("memory:")

    @app.task(name="part")
    def part(n: int) -> int:
        return n

    @app.task(name="parent")
    def parent() -> int:
        parts = current_job().wait_for_jobs("parts", part.map(range(4)))
        return sum(each.result() for each in parts)

    t = penstock_testing(app)
    handle = parent.enqueue()
    t.drain()

    assert handle.result(timeout=0) == 6


def test_a_batch_waits_for_nothing(penstock_testing: Callable[[App], Testing]) -> None:
    app = App("memory:")

    @app.task(name="part")
    def part() -> None: ...

    @app.batch_task(size=2)
    def several(items: list[int]) -> None:
        for current in current_jobs():
            with pytest.raises(Refused, match="a batch waits for nothing"):
                current.wait_for_jobs("parts", part.job())

    t = penstock_testing(app)
    handle = several.enqueue(1)
    t.drain()

    assert handle.state() is State.SUCCEEDED


def test_what_cannot_wait_is_refused(app: App, work: Work) -> None:
    refused: list[str] = []

    @app.task(name="part")
    def part(n: int) -> None: ...

    def waits(n: int) -> None:
        try:
            current_job().wait_for_jobs("parts", [part.job(n)])
        except Refused as error:
            refused.append(str(error))

    once = app.task(name="once", at_most_once=True)(waits)
    mapped = app.task(name="mapped")(waits)

    @app.task(name="unique")
    def unique() -> None:
        try:
            job = part.options(unique="a").job(1)
            current_job().wait_for_jobs("parts", [job])
        except Refused as error:
            refused.append(str(error))

    @app.task(name="last")
    def last(parts: list[None]) -> None: ...

    once.enqueue(1)
    last.job(mapped.map([1]).output).enqueue()
    unique.enqueue()
    work()

    assert len(refused) == 3
    assert sum("at_most_once" in sentence for sentence in refused) == 1
    assert sum("one of a map" in sentence for sentence in refused) == 1
    assert sum("unique=" in sentence for sentence in refused) == 1
