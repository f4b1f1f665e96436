"""How one worker is: a job state, for its colour, and a sentence."""

from __future__ import annotations

from penstock.broker.views import WorkerRow
from penstock.operate.time_text import duration_text

QUIET_SECONDS = 60.0  # twice the time after which a worker's own /ready turns red


def worker_health(row: WorkerRow, now: float) -> tuple[str, str]:
    """The colour, as the name of a job state, and what is said of it."""
    if not row.alive:
        return "failed", "its lease has expired; its jobs are recovered"
    if row.state == "manager":
        return "succeeded", "hands out jobs to receivers"
    if row.queues == ():
        return "running", "a process of its own, for one job"
    quiet = now - max(row.claimed_at or 0.0, row.started_at)
    # A worker whose threads are all busy claims nothing, and is healthy.
    if row.quiet:
        says = "quiet: it claims nothing, as was asked"
        return "running" if row.running else "succeeded", says
    if not row.running and quiet > QUIET_SECONDS:
        return "failed", f"idle, and its last successful claim was {duration_text(quiet)} ago"
    return ("running", "running jobs") if row.running else ("succeeded", "waiting for jobs")
