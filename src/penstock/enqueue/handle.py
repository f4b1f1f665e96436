"""Handle: the caller's end of a stored job.

Waiting asks the store again and again, quickly at first and then every 50 ms: no channel that could
be lost, and the same for every store. Callers that await share one thread per process.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from penstock.broker.protocol import Broker
from penstock.broker.views import Why
from penstock.errors import JobCancelled, JobFailed, ResultGone
from penstock.job import ENDED, Job, State
from penstock.run.current import CURRENT
from penstock.run.job_notes import Progress

if TYPE_CHECKING:
    import asyncio

    from penstock.app.app import App

R = TypeVar("R")

FIRST_WAIT = 0.002
LONGEST_WAIT = 0.05


class Handle(Generic[R]):
    """One stored job. `stored` is False if a unique job stood already: then `id` is that job's."""

    __slots__ = ("_app", "id", "stored")

    def __init__(self, app: App, id: str, *, stored: bool = True) -> None:
        self._app = app
        self.id = id
        self.stored = stored

    def __repr__(self) -> str:
        return f"<handle of job {self.id}>"

    def result(self, timeout: float | None = None) -> R:
        """What the job returned; waits for it, at most `timeout` seconds.

        Raises JobFailed with the traceback of the worker, JobCancelled, ResultGone if the job or
        its result is not kept any more, and TimeoutError, which says why the job is where it is.
        """
        self._refuse_inside_task("result")
        until = None if timeout is None else time.monotonic() + timeout
        wait = FIRST_WAIT
        while True:
            job = self._app.broker.get(self.id)
            if job is None or job.state in ENDED:
                return self._result_of(job)
            if until is not None:
                wait = min(wait, until - time.monotonic())
                if wait <= 0:
                    raise self._timeout_error(timeout)
            time.sleep(wait)
            wait = min(wait * 1.5, LONGEST_WAIT)

    async def result_async(self, timeout: float | None = None) -> R:  # noqa: ASYNC109  as `result`
        """As `result`, without holding up the event loop, and without a thread of its own."""
        import asyncio

        self._refuse_inside_task("result_async")
        ended = _waiter.wait_for(self._app.broker, self.id)
        try:
            job = await asyncio.wait_for(ended, timeout)
        except TimeoutError:
            raise self._timeout_error(timeout) from None
        return self._result_of(job)

    def state(self) -> State | None:
        """Where the job is now; None if the store does not know it, or not any more."""
        job = self._app.ask(lambda: self._app.broker.get(self.id))
        return None if job is None else job.state

    def cancel(self, reason: str = "") -> bool:
        """End the job if it has not ended; one that is running is told to. False: it had ended."""
        cancelled = self._app.ask(lambda: self._app.broker.act("cancel", [self.id], reason=reason))
        return self.id in cancelled

    def why(self) -> Why:
        """Why the job is where it is: `str(why)` is a sentence, `why.cause` is for programs."""
        return self._app.ask(lambda: self._app.broker.why(self.id))

    def progress(self) -> Progress | None:
        """How far the job says it got; None if it said nothing."""
        notes = self._app.ask(lambda: self._app.broker.notes(self.id, "progress"))
        return msgspec.json.decode(notes[-1].value, type=Progress) if notes else None

    def _refuse_inside_task(self, what: str) -> None:
        if CURRENT.get() is not None:
            raise RuntimeError(
                f"{what}() inside a task holds a worker while it waits, and with enough of them"
                " nothing runs any more; enqueue what comes next from the other job instead"
            )

    def _timeout_error(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"job {self.id} has not ended within {timeout} s: {self.why()}")

    def _result_of(self, job: Job[Any] | None) -> R:
        return result_of(self._app, self.id, job)


def result_of(app: App, id: str, job: Job[Any] | None) -> Any:
    """What an ended job returned; None: the store does not know it any more."""
    if job is None:
        raise ResultGone(
            f"job {id} is not in the store: it was deleted or pruned after it ended"
            ' (on_success="delete" does that at once), or it was never stored'
        )
    if job.state == State.FAILED:
        raise JobFailed(job.id, job.reason or "error", job.error)
    if job.state == State.CANCELLED:
        raise JobCancelled(job.id, job.reason or "cancelled")
    task = app.task_of(job)
    if job.result is None:
        if task is not None and not task.results.may_be_none:
            raise ResultGone(f"job {id} succeeded, but its result is not kept any more")
        return None  # what it returned, or nobody knows
    return msgspec.json.decode(job.result) if task is None else task.results.decode(job.result)


class _Waiting:
    def __init__(self, broker: Broker, id: str) -> None:
        import asyncio

        self.broker = broker
        self.id = id
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Job[Any] | None] = self.loop.create_future()
        self.wait = FIRST_WAIT
        self.next_at = time.monotonic()

    def poll(self) -> bool:
        """Ask the store; True once there is nothing more to ask."""
        try:
            job = self.broker.get(self.id)
        except Exception as error:
            self._deliver(_fail, error)
            return True
        if job is None or job.state in ENDED:
            self._deliver(_resolve, job)
            return True
        self.wait = min(self.wait * 1.5, LONGEST_WAIT)
        self.next_at = time.monotonic() + self.wait
        return self.future.done() or self.loop.is_closed()

    def _deliver(self, set_future: Any, value: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(set_future, self.future, value)
        except RuntimeError:
            return  # the loop has ended, and with it whoever waited


def _resolve(future: asyncio.Future[Any], job: Job[Any] | None) -> None:
    if not future.done():
        future.set_result(job)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class _Waiter:
    """One daemon thread that asks for everybody who awaits; it ends when nobody does."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._thread: threading.Thread | None = None

    def wait_for(self, broker: Broker, id: str) -> asyncio.Future[Job[Any] | None]:
        waiting = _Waiting(broker, id)
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-waiter", daemon=True
                )
                self._thread.start()
        return waiting.future

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [each for each in self._waiting if each.next_at <= now]
                if not due:
                    self._changed.wait(min(each.next_at for each in self._waiting) - now)
                    continue
            done = {id(each) for each in due if each.poll()}
            with self._changed:
                self._waiting = [each for each in self._waiting if id(each) not in done]


_waiter = _Waiter()
