"""The page Workers: workers and receivers, what they run, and who is alive but claims nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.app.version import RELEASE, age_order
from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.job import Job, State
from penstock.operate.worker_health import worker_health
from penstock.web.request import WebRequest

MOST_WORKERS = 500
MOST_HELD = 100  # running jobs that are shown, of all workers together
MOST_NAMED = 3  # and of one worker


class WorkerView(NamedTuple):
    """One worker; `health` is a job state, for its colour, and `says` the sentence."""

    row: WorkerRow
    kind: str
    health: str
    says: str
    held: list[Job[Any]]
    older: bool  # than the newest release among them


def show(request: WebRequest) -> Response:
    store = request.store
    rows, now = store.workers(), store.now
    running = store.find(Filter(state=(State.RUNNING,)), limit=MOST_HELD).jobs
    held: dict[str, list[Job[Any]]] = {}
    for job in running:
        held.setdefault(job.worker or "", []).append(job)
    newest = max((row.penstock for row in rows), key=age_order, default="")
    shown = [_shown(row, now, held.get(row.id, []), newest) for row in rows]
    shown.sort(key=lambda each: (_ORDER.index(each.health), each.row.host, each.row.id))
    receivers = [each for each in shown if each.row.receiver]
    workers = [each for each in shown if not each.row.receiver]
    return request.page(
        "workers.html",
        title="Workers",
        cli="penstock doctor",
        workers=workers[:MOST_WORKERS],
        all_workers=len(workers),
        receivers=receivers[:MOST_WORKERS],
        all_receivers=len(receivers),
        kinds=Counter(each.kind for each in shown),
        releases=sorted({row.penstock for row in rows if row.penstock}, key=age_order),
        skew=_skew(rows),
        here=RELEASE,
        ready=0 if rows else sum(count.ready for count in store.count()),
        most_named=MOST_NAMED,
    )


_ORDER = ("failed", "running", "ready", "succeeded")


def _shown(row: WorkerRow, now: float, held: list[Job[Any]], newest: str) -> WorkerView:
    health, says = worker_health(row, now)
    older = bool(row.penstock) and age_order(row.penstock) < age_order(newest)
    return WorkerView(row, row.state, health, says, held, older)


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
