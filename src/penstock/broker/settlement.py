"""Where settle, cancel and retry leave a job: the one place where counters and budgets are applied.

Pure: a store reads the job, decides here and writes what this returns, the body included: that of
an ended job has no secrets any more, but those that its task keeps (`keep_secrets`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.enqueue.codec import read_body
from penstock.enqueue.secrets import body_at_end, redact
from penstock.errors import Refused
from penstock.flows.flow import in_flow
from penstock.job import CRASH_BUDGET, ENDED, Job, Outcome, State, Unique

LAPSE_DELAY = 1.0  # after the second lapse in a row; then twice as long each time
LONGEST_LAPSE_DELAY = 300.0
REPLACED = "replaced"  # the reason of a job whose place another one took


def settled(job: Job[Any], outcome: Outcome, now: float, *, cancelled: bool) -> Job[Any]:
    """The job as this outcome leaves it; `cancelled`: somebody asked for that while it ran."""
    state, reason = outcome.state, outcome.reason
    lapses = job.lapses + outcome.lapses
    if outcome.lapses and job.at_most_once:
        state, reason = State.FAILED, "lost"
    elif outcome.lapses and lapses >= crash_budget(job):
        state, reason = State.FAILED, "crashed"
    if cancelled and state in {State.READY, State.WAITING, State.CANCELLED}:
        state, reason = State.CANCELLED, "cancelled"
    ended = state in ENDED
    ended_at = (now if outcome.ended_at is None else outcome.ended_at) if ended else None
    run_at = job.run_at
    if state is State.READY and not outcome.unclaim:
        run_at = now if outcome.run_at is None else outcome.run_at
        if outcome.lapses > 0 and outcome.run_at is None:
            run_at = now + lapse_delay(lapses)
    body = job.body if ended_at is None else _ended_body(job, state, ended_at)
    waits = state is State.WAITING
    if waits:
        body, run_at = in_flow(body, outcome.flow.id, job.id), now
    return msgspec.structs.replace(
        job,
        body=body,
        state=state,
        reason=reason,
        run_at=run_at,
        failures=job.failures + outcome.failures,
        lapses=lapses,
        repeats=job.repeats + outcome.repeats,
        spared=outcome.spared,
        error=job.error if outcome.error is None else outcome.error,
        result=outcome.result,
        ended_at=ended_at,
        keep_until=kept_until(outcome, ended_at),
        expires_at=None if waits else job.expires_at,  # it was started in time
        claimed_at=None,
        worker=None,
        lease=None,
    )


def crash_budget(job: Job[Any]) -> int:
    """How many lapses end the job: in its body, so that a store needs no worker's help."""
    if b'"crash_budget"' in job.body:
        try:
            return read_body(job.body).crash_budget or CRASH_BUDGET
        except Refused:
            pass  # an unreadable body has the usual budget
    return CRASH_BUDGET


def lapse_delay(lapses: int) -> float:
    """Seconds until a job that has lapsed so often runs again; at once the first time."""
    if lapses <= 1:
        return 0.0
    return min(LONGEST_LAPSE_DELAY, LAPSE_DELAY * 2.0 ** min(lapses - 2, 60))


def cancelled(job: Job[Any], reason: str, now: float) -> Job[Any]:
    """A job that does not run, as a cancel, its expiry or a failed need leaves it."""
    return msgspec.structs.replace(
        job, body=body_at_end(job.body, now), state=State.CANCELLED, reason=reason, ended_at=now
    )


def replaced(job: Job[Any], now: float) -> Job[Any]:
    """A job whose place another one under its unique key takes: nobody looks for its row."""
    ended = cancelled(job, REPLACED, now)
    return msgspec.structs.replace(ended, keep_until=now)


def kept_unique(unique: Unique) -> Unique:
    """The unique key as it is stored: `replace` is about the enqueue alone."""
    return msgspec.structs.replace(unique, replace=False)


def may_be_replaced(job: Job[Any]) -> bool:
    """Whether nothing of the job was begun, so that another may stand in for it."""
    return job.state is State.READY and job.attempt == 0


def _ended_body(job: Job[Any], state: State, ended_at: float) -> bytes:
    # One that succeeded cannot be retried, and so has no use for its secrets.
    return redact(job.body) if state is State.SUCCEEDED else body_at_end(job.body, ended_at)


def retried(job: Job[Any], state: State, now: float) -> Job[Any]:
    """An ended job that is to run again: ready, or waiting for its needs or its signal.

    The attempts go on counting, so that the fence holds.
    """
    # Kept, an expiry that has passed would end it again at once.
    expired = job.expires_at is not None and job.expires_at <= now
    return msgspec.structs.replace(
        job,
        state=state,
        run_at=now,
        failures=0,
        lapses=0,
        repeats=0,
        spared=0,
        ended_at=None,
        keep_until=None,
        reason=None,
        error=None,
        result=None,
        expires_at=None if expired else job.expires_at,
    )


def kept_until(outcome: Outcome, ended_at: float | None) -> float | None:
    """Until when an ended job is kept, if its task says so; None: for the store's retention."""
    if ended_at is None or outcome.keep_for is None:
        return None
    return ended_at + outcome.keep_for


def as_told(after: Job[Any]) -> Job[Any]:
    """The job as the history row of its attempt says: one that waits for jobs was put back."""
    waits = after.state is State.WAITING
    return msgspec.structs.replace(after, state=State.READY) if waits else after


def leaves_history(outcome: Outcome, after: Job[Any]) -> bool:
    """Whether the attempt has a history row: not if it was put back before it began."""
    return outcome.started_at is not None or bool(outcome.lapses) or after.state in ENDED
