"""The exit codes of detached processes. They are documented: never renumber them."""

from __future__ import annotations

from enum import IntEnum

from penstock.job import Outcome, State
from penstock.worker.job_process import describe_exit


class Exit(IntEnum):
    """The exit codes of a detached process."""

    DONE = 0  # the job succeeded, now or before
    LOCKED = 100  # another process runs the job: nothing was done
    RAISED = 101  # the function raised, or ran out of time
    NO_OUTCOME = 102  # it ended without an outcome: it died, was cancelled or was stopped
    MISSING = 103  # no such job or task, its code does not load, or its files cannot be written
    WAITS = 104  # it waits for jobs that it queued, and is started again


MEANING = {
    Exit.DONE: "done",
    Exit.LOCKED: "another process runs the job",
    Exit.RAISED: "the function raised",
    Exit.NO_OUTCOME: "it ended without an outcome",
    Exit.MISSING: "its code does not load or its files cannot be written; its log says which",
    Exit.WAITS: "it waits for jobs that it queued",
}


def code_of(outcome: Outcome) -> Exit:
    """The exit code for this outcome."""
    if outcome.state is State.SUCCEEDED or outcome.reason == "repeat":
        return Exit.DONE
    if outcome.reason == "jobs":
        return Exit.WAITS
    if outcome.reason in {"cancelled", "crashed", "shutdown", "later", "store"}:
        return Exit.NO_OUTCOME
    return Exit.RAISED if outcome.started_at is not None else Exit.NO_OUTCOME


def describe_keeper_exit(code: int) -> str:
    """A keeper's exit code, or the signal that ended it, in words."""
    return MEANING[Exit(code)] if code in MEANING else describe_exit(code)
