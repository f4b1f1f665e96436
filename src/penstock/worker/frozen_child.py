"""Ends a job on whose account its child was killed: it was past its timeout and never let go."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from penstock.job import State
from penstock.run.attempt import timed_out
from penstock.worker.failure_log import FailureLog
from penstock.worker.running_slots import HeldJob

if TYPE_CHECKING:
    from penstock.app.app import App


def settle_timed_out(app: App, held: HeldJob) -> None:
    """Settle a job that held the interpreter as timed out; its child is dead."""
    broker = app.broker
    job = broker.get(held.id)
    task = None if job is None else app.task_named(job.task)
    if job is None or task is None or job.state is not State.RUNNING:
        return
    job = msgspec.structs.replace(job, attempt=held.attempt)
    now = broker.clock.now()
    ran = time.monotonic() - held.deadline + (task.timeout_of(job) or 0.0)
    outcome = timed_out(task, job, now, now - ran, "it held the interpreter")
    broker.settle([(job, outcome)])
    FailureLog(app).log(job, outcome)
    app.end_hooks.call("timed_out", job, outcome)
