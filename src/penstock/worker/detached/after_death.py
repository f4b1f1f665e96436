"""What becomes of a detached job whose process died under it, or whose host was lost.

The retry rule is asked first, as after any error; where it has nothing to give, the death counts on
the crash budget, which the store checks. So a task that expects to be killed often says so by its
retry rule, and one that says nothing is still resumed.

The loss of a host cannot ask the rule: it is a lapse. A job of weeks may see many, so those of one
that gets on are taken back; one that dies again and again before it gets anywhere is not spared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.views import Event, Note
from penstock.enqueue.codec import read_body
from penstock.errors import ProcessDied, Refused
from penstock.job import Job, Outcome, State, lapsed
from penstock.run.decide import after_error, policy_for
from penstock.worker.child_process import ending

if TYPE_CHECKING:
    from penstock.task.task import Task


PROGRESS_SECONDS = 600.0


def gets_on(notes: Sequence[Note], history: Sequence[Event], enqueued_at: float) -> bool:
    """Whether the attempt that was lost last had been at it for a while, and kept something of it.

    Ten minutes from the loss before to the last step or snapshot: a job that dies sooner, or keeps
    nothing, spends its crash budget.
    """
    lost = [event.at for event in history if event.kind == "attempt" and event.reason == "crashed"]
    kept = max((note.at for note in notes if note.kind in {"snapshot", "step"}), default=0.0)
    began = lost[-2] if len(lost) > 1 else enqueued_at
    return bool(lost) and kept - began >= PROGRESS_SECONDS


def spared(job: Job[Any]) -> Outcome:
    """Back to where it was, with the whole crash budget."""
    return Outcome(State.READY, "resumed", lapses=-job.lapses)


def after_death(
    task: Task[..., Any], job: Job[Any], death: str, now: float, started_at: float
) -> Outcome:
    """Where the attempt leads whose process ended without an outcome."""
    how = ending(int(death)) if death.lstrip("-").isdigit() else death
    error = ProcessDied(f"its process ended without an outcome: {how}")
    try:
        policy = policy_for(task.policy, read_body(job.body))
    except Refused:
        policy = task.policy
    text = f"ProcessDied: {error}"
    if not job.at_most_once:
        outcome = after_error(policy, job, error, text, now, started_at=started_at)
        if outcome.state is State.READY:
            return outcome
    return msgspec.structs.replace(lapsed(), error=text, started_at=started_at, ended_at=now)
