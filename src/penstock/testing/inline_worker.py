"""A worker for tests: runs jobs in the test's own thread, and can die at a chosen point.

Claims, runs and settlements are the real ones, one job at a time. Its own middleware is the
innermost one, behind the app's: only there is it known that the function has returned and nothing
was committed yet.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import JobInterrupted, JobTimeout, Refused
from penstock.job import Job, Outcome, State, lapsed, put_back
from penstock.run.attempt import run, run_async
from penstock.run.current import current_job
from penstock.testing.clock import Clock
from penstock.testing.compare import copied, difference

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

Point = Literal["claim", "run", "settle"]

RUNAWAY = 10_000
HOOK_SECONDS = 5.0
_COMPARED = object()


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt that `drain` made."""

    job: Job[Any]  # as it was claimed
    outcome: Outcome | None  # None: it settled itself, or the worker died
    state: State | None  # where it left the job; None: the job is not kept
    died_at: Point | None = None
    difference: str | None = None  # what a second run changed, with `drain(twice=True, state=...)`

    @property
    def task(self) -> str:
        return self.job.task


class Crash:
    """A crash of the worker that is to come; as a context manager, it must happen in the block."""

    def __init__(self, point: Point, task: str | None, job: str | None = None) -> None:
        self.point: Point = point
        self.happened = False
        self._task = task
        self._job = job

    def meets(self, point: Point, job: Job[Any]) -> bool:
        return (
            not self.happened
            and point == self.point
            and self._task in {None, job.task}
            and self._job in {None, job.id}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self.happened:
            of = f" of {self._task}" if self._task else ""
            raise AssertionError(
                f'crash_at("{self.point}"): no job{of} got there before the end of the block;'
                " enqueue one and call drain() inside it"
            )


class InlineWorker:
    """To the store and the tasks it looks like any other worker."""

    def __init__(self, app: App, clock: Clock) -> None:
        self.seen: dict[str, Job[Any]] = {}  # every job that it claimed, as first claimed
        self.crashes: list[Crash] = []
        self._app = app
        self._clock = clock
        self._died_at: Point | None = None
        self._runner: asyncio.Runner | None = None

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def drain(
        self,
        limit: int | None,
        *,
        twice: bool,
        state: Callable[[], Any] | None,
        queues: tuple[str, ...] | None = None,
    ) -> list[Ran]:
        """Run what is due; see Testing.drain."""
        self._check_loop()
        done: list[Ran] = []
        doubled: dict[str, Any] = {}  # jobs to run twice, with the state after the first run
        held: deque[Job[Any]] = deque()  # claimed, and not run yet
        try:
            while limit is None or len(done) < limit:
                if not held and not self._claim(held, queues):
                    break
                self._check_runaway(held[0], limit, done)
                job = held.popleft()
                lose = twice and job.id not in doubled and not job.at_most_once
                ran = self._attempt(job, lose=lose)
                if lose and ran.died_at == "settle":
                    doubled[job.id] = copied(state) if state else _COMPARED
                    self._claim_again(job.id, held, queues)
                elif state and doubled.get(job.id, _COMPARED) is not _COMPARED:
                    changed = difference(doubled[job.id], copied(state))
                    doubled[job.id] = _COMPARED
                    ran = msgspec.structs.replace(ran, difference=changed)
                done.append(ran)
        finally:
            self._app.broker.settle([(job, put_back("drain")) for job in held])
            self._app.end_hooks.wait(HOOK_SECONDS)
        return done

    def _claim(self, held: deque[Job[Any]], queues: tuple[str, ...] | None) -> bool:
        row = WorkerRow(
            id="testing",
            app=self._app.name,
            tasks=self._app.known_tasks(),
            code=self._app.code,
            tags=frozenset(tag for task in self._app.tasks.values() for tag in task.runs_on),
        )
        claimed = self._app.broker.claim([Wanted(row, queues=queues)]).jobs[0]
        for job in claimed:
            self.seen.setdefault(job.id, job)
        held.extend(claimed)
        return bool(claimed)

    def _claim_again(
        self, job_id: str, held: deque[Job[Any]], queues: tuple[str, ...] | None
    ) -> None:
        """Claim this job next: changes by other jobs would count as its own."""
        while self._claim(held, queues):
            if held[-1].id == job_id:
                held.rotate(1)
                return

    def _check_runaway(self, job: Job[Any], limit: int | None, done: list[Ran]) -> None:
        if limit is None and len(done) == RUNAWAY:
            raise AssertionError(
                f"drain() made {RUNAWAY} attempts and {job.task} is due again: does it repeat,"
                " or enqueue itself, without a delay? drain(limit=...) stops where you say"
            )

    def _check_loop(self) -> None:
        if not any(task.mode == "async" for task in self._app.tasks.values()):
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise Refused(
            "drain() runs `async def` tasks on an event loop of its own, and one is running here"
            " already: await asyncio.to_thread(t.drain)"
        )

    def _attempt(self, job: Job[Any], *, lose: bool) -> Ran:
        task = self._app.task_named(job.task)
        assert task is not None  # noqa: S101  the claim asked for known tasks only
        loss = Crash("settle", None, job.id)
        if lose:
            self.crashes.append(loss)
        self._died_at = None
        outcome: Outcome | None = None
        if not self._dies("claim", job):
            outcome = self._run(task, job)
            if outcome is not None and outcome.error is not None:
                loss.happened = True  # a failed attempt is not run twice
            if self._died_at is None:
                self._dies("settle", job)
        self.crashes = [crash for crash in self.crashes if crash is not loss]
        broker = self._app.broker
        if self._died_at is not None:
            outcome = None
            # As a supervisor does for a dead child: only jobs that had started count a lapse.
            broker.settle([(job, put_back("crashed") if self._died_at == "claim" else lapsed())])
        elif outcome is not None:
            broker.settle([(job, outcome)])
        after = broker.get(job.id)
        state = None if after is None else after.state
        return Ran(job=job, outcome=outcome, state=state, died_at=self._died_at)

    def _run(self, task: Task[..., Any], job: Job[Any]) -> Outcome | None:
        if task.mode != "async":
            return run(self._app, task, job)
        self._runner = self._runner or asyncio.Runner()
        context = contextvars.copy_context()
        return self._runner.run(run_async(self._app, task, job), context=context)

    def _dies(self, point: Point, job: Job[Any]) -> bool:
        crash = next((crash for crash in self.crashes if crash.meets(point, job)), None)
        if crash is None:
            return False
        crash.happened = True
        self.crashes.remove(crash)
        self._died_at = point
        return True

    def around(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Middleware of plain tasks."""
        began = self._begin(job)
        try:
            value = call_next()
        except Exception:
            self._check_time(job, began)
            raise
        self._returned(job, began)
        return value

    async def around_async(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        """Middleware of `async def` tasks."""
        began = self._begin(job)
        try:
            value = await call_next()
        except Exception:
            self._check_time(job, began)
            raise
        self._returned(job, began)
        return value

    def _begin(self, job: Job[Any]) -> float:
        if self._dies("run", job):
            raise JobInterrupted("crash")
        return self._clock.monotonic()

    def _returned(self, job: Job[Any], began: float) -> None:
        self._check_time(job, began)
        # A transaction commits before `run` returns: a crash before that rolls it back.
        if current_job().open_transaction is not None and self._dies("settle", job):
            raise JobInterrupted("crash")

    def _check_time(self, job: Job[Any], began: float) -> None:
        task = self._app.task_named(job.task)
        timeout = None if task is None else task.timeout_of(job)
        if timeout is not None and self._clock.monotonic() - began > timeout:
            raise JobTimeout
