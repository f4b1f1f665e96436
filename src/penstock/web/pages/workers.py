"""The page Workers: workers and receivers, what they run, and who is alive but claims nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.app.version import RELEASE, age_order
from penstock.broker.filter import Filter
from penstock.broker.views import WorkerRow
from penstock.broker.worker_settings import WorkerSettings
from penstock.job import Job, State
from penstock.operate.parse_input import parse_integer
from penstock.operate.worker_health import worker_health
from penstock.web.request import WebRequest

MOST_WORKERS = 500
MOST_HELD = 100  # running jobs that are shown, of all workers together
MOST_NAMED = 3  # and of one worker
MOST_GROUPS = 50  # workers that can be changed from the page


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
    shown.sort(key=_order)
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
        groups=_groups(rows),
    )


def _groups(rows: list[WorkerRow]) -> list[tuple[str, bool]]:
    """The names under which live workers are changed, and whether they are quiet."""
    quiet: dict[str, bool] = {}
    for row in rows:
        if row.group and row.alive:
            quiet[row.group] = quiet.get(row.group, True) and row.quiet
    return sorted(quiet.items())[:MOST_GROUPS]


def set_worker(request: WebRequest) -> Response:
    form = request.form()
    settings = WorkerSettings(
        worker=form.get("worker", ""),
        threads=_number(form, "threads"),
        async_slots=_number(form, "async_slots"),
        processes=_number(form, "processes"),
        quiet={"yes": True, "no": False}.get(form.get("quiet", "")),
        stop=form.get("stop") == "yes",
    )
    request.store.set_worker(settings, form.get("reason", ""))
    return request.go("/workers")


def reset_worker(request: WebRequest) -> Response:
    form = request.form()
    request.store.reset_worker(form.get("worker", ""), form.get("reason", ""))
    return request.go("/workers")


def _number(form: Mapping[str, str], name: str) -> int | None:
    text = form.get(name, "").strip()
    return parse_integer(text, name.replace("_", " "), 1, 5_000) if text else None


_ORDER = ("failed", "running", "ready", "succeeded")


def _order(shown: WorkerView) -> tuple[bool, int, str, str]:
    """What is wrong comes first; a worker that is gone and left nothing behind comes last."""
    over = not shown.row.alive and not shown.row.running
    return over, _ORDER.index(shown.health), shown.row.host, shown.row.id


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
