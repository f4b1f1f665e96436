"""Workers: who is there, what each holds, and who takes no work though it is there."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.app.version import age_order, release
from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.job import Job, State
from penstock.operate.why import span
from penstock.web.request import Asked

MOST_WORKERS = 500
MOST_HELD = 100  # running jobs that are named, of all workers together
MOST_NAMED = 3  # and of one
QUIET_SECONDS = 60.0  # twice what a worker itself allows before it says that it is not well


class Shown(NamedTuple):
    """One worker: `health` is a state's word, which has a colour, and `says` the sentence."""

    row: WorkerRow
    kind: str
    health: str
    says: str
    held: list[Job[Any]]
    older: bool  # than the newest release among them


def show(asked: Asked) -> Response:
    verbs = asked.verbs
    rows, now = verbs.workers(), verbs.now
    running = verbs.find(Filter(state=(State.RUNNING,)), limit=MOST_HELD).jobs
    held: dict[str, list[Job[Any]]] = {}
    for job in running:
        held.setdefault(job.worker or "", []).append(job)
    newest = max((row.penstock for row in rows), key=age_order, default="")
    shown = [_shown(row, now, held.get(row.id, []), newest) for row in rows]
    shown.sort(key=lambda each: (_ORDER.index(each.health), each.row.host, each.row.id))
    return asked.page(
        "workers.html",
        title="Workers",
        cli="penstock doctor",
        workers=shown[:MOST_WORKERS],
        all_workers=len(shown),
        kinds=Counter(each.kind for each in shown),
        releases=sorted({row.penstock for row in rows if row.penstock}, key=age_order),
        skew=_skew(rows),
        here=release(),
        ready=0 if rows else sum(count.ready for count in verbs.count()),
        most_named=MOST_NAMED,
    )


_ORDER = ("failed", "running", "ready", "succeeded")


def _shown(row: WorkerRow, now: float, held: list[Job[Any]], newest: str) -> Shown:
    health, says = _health(row, now)
    older = bool(row.penstock) and age_order(row.penstock) < age_order(newest)
    return Shown(row, row.state, health, says, held, older)


def _health(row: WorkerRow, now: float) -> tuple[str, str]:
    if not row.alive:
        return "failed", "not heard of for its lease; others take what it holds"
    if row.queues == ():
        return "running", "a process of its own, for one job"
    quiet = now - max(row.claimed_at or 0.0, row.started_at)
    # With full hands a worker asks for nothing more, and is well.
    if not row.running and quiet > QUIET_SECONDS:
        return "failed", f"idle, and no claim of its worked for {span(quiet)}"
    if row.running:
        return "running", "at work"
    return "succeeded", "waits for work"


def _skew(rows: list[WorkerRow]) -> list[str]:
    """Tasks that live workers know in different versions."""
    versions: dict[str, set[int]] = {}
    for row in rows:
        if row.alive and row.queues != ():
            for task, version in row.tasks.items():
                versions.setdefault(task, set()).add(version)
    return [
        f"{task}: versions {', '.join(map(str, sorted(known)))}"
        for task, known in sorted(versions.items())
        if len(known) > 1
    ]
