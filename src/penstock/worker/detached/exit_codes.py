"""How a detached process ends, told by its exit code. These are promised: never renumbered."""

from __future__ import annotations

from enum import IntEnum

from penstock.job import Outcome, State


class Exit(IntEnum):
    """The exit codes of a detached process."""

    DONE = 0  # the job succeeded, now or before
    LOCKED = 100  # another process has the job: nothing was done
    RAISED = 101  # the function raised, or ran out of time
    NO_OUTCOME = 102  # it ended without one: it died, was cancelled or was stopped
    MISSING = 103  # the job, its task, the task's code or room for its files is not there


MEANING = {
    Exit.DONE: "done",
    Exit.LOCKED: "another process has the job",
    Exit.RAISED: "the function raised",
    Exit.NO_OUTCOME: "it ended without an outcome",
    Exit.MISSING: "the job, its code or room for its files is not there; its log says which",
}


def code_of(outcome: Outcome) -> Exit:
    """The exit code that tells of this outcome."""
    if outcome.state is State.SUCCEEDED or outcome.reason == "repeat":
        return Exit.DONE
    if outcome.reason in {"cancelled", "crashed", "shutdown", "later", "store"}:
        return Exit.NO_OUTCOME
    return Exit.RAISED if outcome.started_at is not None else Exit.NO_OUTCOME


def said(code: int | None) -> str:
    """An exit code, or the signal that was the end, for people."""
    if code is None:
        return "gone"
    if code in MEANING:
        return MEANING[Exit(code)]
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
