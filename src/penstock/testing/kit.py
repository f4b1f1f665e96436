"""Testing: an app under test, its jobs run here and now.

Broker, retry rules, hooks and middleware are the real ones. Only the worker is replaced, by one
that runs jobs in the test's thread, and the store, by one that is gone after the test.

    with app.testing() as t:
        sign_up("ada")                              the code under test, which enqueues
        t.assert_enqueued(welcome, "ada")
        t.drain()                                   run what is due
        t.clock.advance(minutes=5)                  and what is due then
        t.drain()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import Refused
from penstock.job import Job, State
from penstock.schedules.timetable import Timetable
from penstock.task.task import Task
from penstock.testing.clock import Clock
from penstock.testing.compare import call_of, described, matching
from penstock.testing.inline_worker import Crash, InlineWorker, Point, Ran

if TYPE_CHECKING:
    from penstock.app.app import App

ALONE = "penstock-testing"  # the queue of assert_idempotent's job

_under_test: WeakSet[App] = WeakSet()


class Testing:
    """Made by `app.testing()`. Inside the `with` the app has another store, with a test clock.

    Without a `url` it is in memory; `url="sqlite:///..."` is a real one, for tests of
    `options(connection=...)` and `current_job().transaction()`.
    """

    __test__ = False  # pytest takes names that begin with Test for test cases

    def __init__(self, app: App, url: str | None = None, clock: Clock | None = None) -> None:
        self.app = app
        self.clock = clock or Clock()
        self._url = url or "memory:"
        self._stack = ExitStack()
        self._worker = InlineWorker(app, self.clock)

    def __enter__(self) -> Self:
        if self.app in _under_test:
            raise Refused(
                "app.testing() inside app.testing(): the app is under test already;"
                " use the `t` of the outer one"
            )
        with ExitStack() as stack:
            broker = open_broker(self._url, self.clock)
            stack.callback(broker.close)
            _under_test.add(self.app)
            stack.callback(_under_test.discard, self.app)
            stack.enter_context(self.app.replace_broker(broker))
            self._take_over(stack)
            self._timetable = Timetable(
                broker, self.clock, self.app.schedules.declared, sending=self.app.sending
            )
            self._timetable.turn()  # as a starting worker does: schedules begin now
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def _take_over(self, stack: ExitStack) -> None:
        app = self.app
        before = (app.resources, app.middlewares, app.async_middlewares)

        def give_back() -> None:
            app.resources.close()  # before the event loop, which some of them need
            self._worker.close()
            app.resources, app.middlewares, app.async_middlewares = before

        stack.callback(give_back)
        app.resources = app.resources.emptied()
        app.middlewares = (*app.middlewares, self._worker.around)
        app.async_middlewares = (*app.async_middlewares, self._worker.around_async)

    @property
    def broker(self) -> Broker:
        """The broker under test."""
        if self.app not in _under_test:
            raise Refused("the test is over: use `t` inside `with app.testing() as t:`")
        return self.app.broker

    # Run

    def drain(
        self,
        limit: int | None = None,
        *,
        twice: bool = False,
        state: Callable[[], Any] | None = None,
    ) -> list[Ran]:
        """Run jobs in this thread until none is due; returns the attempts, in order.

        Jobs that those jobs enqueue are run too; a retry that is due later is not: move the clock.
        `limit` stops after so many attempts; without one, the 10,001st is an error. A task that
        advances `t.clock` by more than its timeout ends as timed out.

        With `twice` every job but at-most-once ones is run a second time, as if its settlement had
        been lost. With `state`, which returns whatever the tasks change, the second runs have in
        `difference` what they changed: then the task is not idempotent.

        Slots of schedules that are due are decided first, as by a worker after an outage.
        """
        _ = self.broker  # refused when the test is over
        self._timetable.turn()
        return self._open_worker.drain(limit, twice=twice, state=state)

    def crash_at(self, point: Point, task: Task[..., Any] | str | None = None) -> Crash:
        """The worker dies the next time a job (of this task) gets to this point.

        "claim": the job is claimed and has not started. "run": it has started, the function was not
        called yet. "settle": the function has returned, and its outcome is not stored. The job is
        recovered as after a real crash, and runs again in the same `drain`. As a context manager it
        fails if no job got to the point inside the block.
        """
        if point not in ("claim", "run", "settle"):
            raise Refused(f'crash_at({point!r}): "claim", "run" or "settle"')
        crash = Crash(point, None if task is None else _name(task))
        self._open_worker.crashes.append(crash)
        return crash

    def replace(self, factory: Callable[[], Any], value: Any) -> None:
        """Give tasks that `use(factory)` this value, until the end of the test."""
        self._stack.enter_context(self.app.resources.replace(factory, value))

    @property
    def _open_worker(self) -> InlineWorker:
        _ = self.broker  # refused when the test is over
        return self._worker

    # Look

    def jobs(
        self, task: Task[..., Any] | str | None = None, state: State | str | None = None
    ) -> list[Job[Any]]:
        """The jobs in the store, oldest first; of this task, in this state."""
        selected = Filter(
            task=() if task is None else _names(task),
            state=() if state is None else (State(state),),
        )
        page = self.broker.find(selected, limit=1000)
        jobs = list(page.jobs)
        while page.after is not None:
            page = self.broker.find(selected, after=page.after, limit=1000)
            jobs += page.jobs
        return sorted(jobs, key=lambda job: (job.enqueued_at, job.id))

    def assert_enqueued(
        self,
        task: Task[..., Any] | str,
        /,
        *args: Any,
        queue: str | None = None,
        times: int | None = None,
        **kwargs: Any,
    ) -> list[Job[Any]]:
        """Assert that such jobs were enqueued in this test, also if they have ended or are deleted.

        Arguments that are left out may be anything. `times` is how many there must be, otherwise
        one or more. Returns them.
        """
        jobs = self._enqueued(task, args, kwargs, queue)
        if (not jobs) if times is None else len(jobs) != times:
            call = described(_name(task), args, kwargs, queue)
            count = "" if times is None else f" {times} times, but {len(jobs)} times"
            raise AssertionError(f"{call} was not enqueued{count}.\n{self._list_enqueued()}")
        return jobs

    def assert_not_enqueued(
        self,
        task: Task[..., Any] | str,
        /,
        *args: Any,
        queue: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Assert that no such job was enqueued in this test."""
        if self._enqueued(task, args, kwargs, queue):
            call = described(_name(task), args, kwargs, queue)
            raise AssertionError(f"{call} was enqueued.\n{self._list_enqueued()}")

    def assert_idempotent(
        self,
        task: Task[..., Any],
        /,
        *args: Any,
        state: Callable[[], Any],
        **kwargs: Any,
    ) -> None:
        """Assert that running this job again, as after a crash before settling, changes nothing.

        `state` returns whatever the task changes: rows, files, what a fake recorded. The job is run
        twice, by itself; other jobs stay where they are.
        """
        call = described(task.name, args, kwargs)
        if task.at_most_once:
            raise Refused(f"{call}: an at-most-once job is never run a second time")
        handle = task.options(queue=ALONE).enqueue(*args, **kwargs)
        attempts = self._open_worker.drain(2, twice=True, state=state, queues=(ALONE,))
        for ran in attempts:
            if ran.outcome is not None and ran.outcome.error is not None:
                raise AssertionError(f"{call} did not succeed:\n{ran.outcome.error}")
            if ran.difference is not None:
                raise AssertionError(
                    f"{call} is not idempotent: run a second time, it changed {ran.difference}"
                )
        if not attempts:
            raise AssertionError(f"{call} did not run: {self.broker.why(handle.id).sentence}")

    def _enqueued(
        self,
        task: Task[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        queue: str | None,
    ) -> list[Job[Any]]:
        names = _names(task)
        known = task if isinstance(task, Task) else self.app.task_named(task)
        return [
            job
            for job in self._all_jobs()
            if job.task in names
            and queue in {None, job.queue}
            and matching(known, job, args, kwargs)
        ]

    def _all_jobs(self) -> list[Job[Any]]:
        # Claimed jobs as they were: the store may have deleted them, or redacted their secrets.
        jobs = {job.id: job for job in self.jobs()} | self._worker.seen
        return sorted(jobs.values(), key=lambda job: (job.enqueued_at, job.id))

    def _list_enqueued(self) -> str:
        jobs = self._all_jobs()
        if not jobs:
            return "Nothing was enqueued."
        lines = [self._shown(job) for job in jobs[:50]]
        more = [f"  and {len(jobs) - 50} more"] if len(jobs) > 50 else []
        return "\n".join(["Enqueued were:", *lines, *more])

    def _shown(self, job: Job[Any]) -> str:
        stored = self.broker.get(job.id)
        state = "not kept" if stored is None else stored.state
        args, kwargs = call_of(self.app.task_named(job.task), job) or ((job.body,), {})
        return f"  {described(job.task, args, kwargs, job.queue)} ({state})"


def _name(task: Task[..., Any] | str) -> str:
    return task if isinstance(task, str) else task.name


def _names(task: Task[..., Any] | str) -> tuple[str, ...]:
    return (task,) if isinstance(task, str) else (task.name, *task.aliases)
