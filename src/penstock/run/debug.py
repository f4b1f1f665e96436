"""Runs a job that is stored, here and now and under a debugger, and writes nothing to the store.

    job_to_debug(broker, id)   the job as it was called, from where it is kept or from its history
    run_here(app, ...)         one attempt at it, in this thread, behind a WithholdingBroker

The function and all that it does outside of the store are real: what it sends is sent. Middleware
runs as in a worker; hooks do not, because they would report an end that did not happen.
"""

from __future__ import annotations

import asyncio
import bdb
import inspect
import pdb  # noqa: T100  it is what this is for
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.enqueue.secrets import HIDDEN, redact
from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK
from penstock.job import Job, Outcome, State
from penstock.run.attempt import run, run_async
from penstock.run.dry_run import Withheld, WithholdingBroker
from penstock.task.batch import BatchTask

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.broker.views import Event
    from penstock.task.task import Task

_HISTORY_ROWS = 1000


class Debugged(msgspec.Struct, frozen=True):
    """How an attempt went that nobody but this process knows of."""

    outcome: Outcome
    left: bool  # by the debugger's `quit`

    @property
    def returned(self) -> bool:
        """Whether the function returned, and what it returned could be stored."""
        return self.outcome.state is State.SUCCEEDED or self.outcome.reason == "repeat"


def job_to_debug(broker: Broker, job_id: str) -> Job[Any]:
    """The job with its arguments, wherever they are still kept; refused with the way out if not."""
    job = broker.get(job_id)
    if job is None:
        job = _from_history(broker.history(after=None, limit=_HISTORY_ROWS, job=job_id), job_id)
    if job.state is State.RUNNING:
        raise Refused(
            f"job {job_id} runs at this moment, and what it does would be done twice: wait until "
            f"it has ended, or end it with `penstock cancel {job_id}`"
        )
    if job.task == WAIT_TASK:
        raise Refused(f"job {job_id} waits for a signal, and has no code that could be debugged")
    # As the last attempt was, so that it goes the way that it went.
    return msgspec.structs.replace(job, attempt=max(job.attempt, 1), lease=None)


def _from_history(events: list[Event], job_id: str) -> Job[Any]:
    attempts = [event for event in events if event.kind == "attempt" and event.task is not None]
    if not attempts:
        raise Refused(
            f"job {job_id} is not known here: it was never enqueued in this store, or was pruned "
            "with its history; `penstock find` shows the jobs that are kept"
        )
    last = attempts[-1]
    if last.body is None:
        raise Refused(
            f"the arguments of job {job_id} are not kept any more: it was deleted, its task does "
            "not keep what ended, or it was pruned; enqueue a call like it, and debug that"
        )
    return Job(
        id=job_id,
        task=last.task or "",
        body=last.body,
        queue=last.queue or "default",
        version=last.version or 1,
        priority=last.priority or 0,
        key=last.key,
        tags=last.tags,
        state=last.state or State.SUCCEEDED,
        attempt=last.attempt or 1,
        failures=last.failures,
        lapses=last.lapses,
        enqueued_at=last.enqueued_at or 0.0,
    )


def hidden_arguments(job: Job[Any]) -> list[str]:
    """Secret arguments whose values are gone: a job that succeeded keeps none."""
    if b'"secret"' not in job.body or redact(job.body) != job.body:
        return []
    arguments = msgspec.json.decode(job.body)["args"]
    return [name for name, value in arguments.items() if value == HIDDEN]


def run_here(
    app: App,
    store: Broker,
    task: Task[..., Any],
    job: Job[Any],
    report: Callable[[Withheld], None],
    *,
    post_mortem: bool = False,
    stop_first: bool = False,
) -> Debugged:
    """One attempt at the job, in this thread, of which the store hears nothing.

    `post_mortem` opens the debugger where the function raised, `stop_first` at its first line.
    """
    broker = WithholdingBroker(store, report)
    watch = _Watch(task, post_mortem=post_mortem, stop_first=stop_first)
    with ExitStack() as stack:
        stack.enter_context(app.replace_broker(cast("Broker", broker)))
        stack.enter_context(_watched(app, watch))
        if task.mode == "async":
            outcome = asyncio.run(_run_async(app, task, job))
        else:
            try:
                outcome = run(app, task, job)
            finally:
                app.resources.close()
    outcome = outcome or broker.outcome or Outcome(State.READY, "store")
    if outcome.spawned and outcome.state in {State.SUCCEEDED, State.WAITING}:
        broker.spawned(outcome.spawned)
    return Debugged(outcome, watch.left)


async def _run_async(app: App, task: Task[..., Any], job: Job[Any]) -> Outcome | None:
    try:
        return await run_async(app, task, job)
    finally:
        # Some of them live on this loop, and are closed from another thread.
        await asyncio.to_thread(app.resources.close)


@contextmanager
def _watched(app: App, watch: _Watch) -> Generator[None]:
    before = (app.hooks, app.middlewares, app.async_middlewares)
    app.hooks = {}
    # Innermost: only there does nothing but the function's own code raise.
    app.middlewares = (*app.middlewares, watch.around)
    app.async_middlewares = (*app.async_middlewares, watch.around_async)
    try:
        yield
    finally:
        app.hooks, app.middlewares, app.async_middlewares = before


class _Watch:
    """Middleware that opens the debugger."""

    def __init__(self, task: Task[..., Any], *, post_mortem: bool, stop_first: bool) -> None:
        self._post_mortem = post_mortem
        self._first = _code_of(task) if stop_first else None
        self.left = False

    def around(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        del job
        with self._stops():
            return call_next()

    async def around_async(self, call_next: Callable[[], Any], job: Job[Any]) -> Any:
        del job
        with self._stops():
            return await call_next()

    @contextmanager
    def _stops(self) -> Generator[None]:
        if self._first is not None:
            sys.settrace(self._trace)
        try:
            yield
        except bdb.BdbQuit:
            self.left = True
            raise
        except Exception as error:
            sys.settrace(None)
            if self._post_mortem:
                pdb.post_mortem(_own_frames(error.__traceback__))
            raise
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        if event != "call" or frame.f_code is not self._first:
            return None
        debugger = pdb.Pdb(skip=["penstock.*"])
        debugger.set_trace(frame)
        return debugger.trace_dispatch


def _own_frames(traceback: Any) -> Any:
    """The traceback from the user's first frame on."""
    while traceback.tb_next is not None:
        if not traceback.tb_frame.f_globals.get("__name__", "").startswith("penstock."):
            break
        traceback = traceback.tb_next
    return traceback


def _code_of(task: Task[..., Any]) -> CodeType:
    function = task.many if isinstance(task, BatchTask) else task.function
    code = getattr(inspect.unwrap(cast("Any", function)), "__code__", None)
    if code is None:
        raise Refused(f"{task.name} is not a Python function, and has no first line to stop at")
    return code
