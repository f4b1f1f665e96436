"""What becomes of a detached job whose process died under it: killed, or ended by itself.

The retry rule is asked first, as after any error; where it has nothing to give, the death counts on
the crash budget, which the store checks. So a task that expects to be killed often says so by its
retry rule, and one that says nothing is still resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from penstock.codec import read_body
from penstock.decide import after_error, policy_for
from penstock.errors import ProcessDied, Refused
from penstock.job import Job, Outcome, State, lapsed
from penstock.worker.nursery import ending

if TYPE_CHECKING:
    from penstock.task import Task


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
