"""The outcome of a detached job whose process died, or whose host was lost.

A process that died is an error for the retry rule first; where that gives no retry, it counts on
the crash budget, which the store checks. So a task that expects to be killed often can say so in
its retry rule, and one without a rule is still resumed.

The loss of a host is a lapse, without the rule: nobody is there to ask it. A job of weeks may see
many, so the lapses of a job that makes progress are cleared; one that dies again and again without
progress uses up its budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.views import Event, Note
from penstock.enqueue.codec import read_body
from penstock.errors import ProcessDied, Refused
from penstock.job import Job, Outcome, State, lapsed
from penstock.run.decide import after_error, policy_for

if TYPE_CHECKING:
    from penstock.task.task import Task


PROGRESS_SECONDS = 600.0


def made_progress(notes: Sequence[Note], history: Sequence[Event], enqueued_at: float) -> bool:
    """Whether the lost attempt worked for ten minutes or more, and kept something of that.

    From the loss before it, or the enqueue, to the last step or snapshot.
    """
    lost = [event.at for event in history if event.kind == "attempt" and event.reason == "crashed"]
    kept = max((note.at for note in notes if note.kind in {"snapshot", "step"}), default=0.0)
    began = lost[-2] if len(lost) > 1 else enqueued_at
    return bool(lost) and kept - began >= PROGRESS_SECONDS


def with_full_crash_budget(job: Job[Any]) -> Outcome:
    """Put back, with no lapse counted any more."""
    return Outcome(State.READY, "resumed", lapses=-job.lapses)


def outcome_after_crash(
    task: Task[..., Any], job: Job[Any], death: str, now: float, started_at: float
) -> Outcome:
    """The outcome of an attempt whose process ended without one; `death` says how."""
    error = ProcessDied(f"its process ended without an outcome: {death}")
    policy = task.policy_in(job.queue)
    with suppress(Refused):
        policy = policy_for(policy, read_body(job.body))
    text = f"ProcessDied: {error}"
    if not job.at_most_once:
        outcome = after_error(policy, job, error, text, now, started_at=started_at)
        if outcome.state is State.READY:
            return outcome
    return msgspec.structs.replace(lapsed(), error=text, started_at=started_at, ended_at=now)
