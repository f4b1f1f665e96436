"""The page Backfills: a grid of a task's partitions, and forms to retry or run a range again."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.backfill_status import MOST_LOOKED_AT
from penstock.operate.bulk_actions import RETRY
from penstock.operate.refusals import Conflict, NotFound
from penstock.web.checked_store import MOST_IDS
from penstock.web.request import WebRequest

MOST_CELLS = 2000
MOST_TASKS = 200


def show(request: WebRequest) -> Response:
    tasks = sorted(request.store.backfilled_tasks().items())
    return request.page(
        "backfills.html",
        title="Backfills",
        cli="penstock find key:backfill",
        tasks=tasks[:MOST_TASKS],
        all_tasks=len(tasks),
    )


def one(request: WebRequest) -> Response:
    task = request.word("task")
    if not task:
        raise NotFound("No task was named. Choose one on the page Backfills.")
    first, last = request.word("first").strip(), request.word("last").strip()
    status = request.store.backfill(task).within(first, last)
    cut = status._replace(partitions=status.partitions[-MOST_CELLS:])
    return request.page(
        "backfill.html",
        title=f"Backfill of {task}",
        cli=shlex.join(["penstock", "find", "key:backfill", f"task:{task}"]),
        task=task,
        first=first,
        last=last,
        counts=status.counts(),
        partitions=len(status.partitions),
        rows=list(cut.rows()),
        left_out=len(status.partitions) - len(cut.partitions),
        more=status.more,
        most=MOST_LOOKED_AT,
        known=request.site.app is not None and request.site.app.task_named(task) is not None,
        again=sum(each.state in RETRY.states for each in status.partitions),
    )


def retry(request: WebRequest) -> Response:
    """Retry the failed and cancelled partitions of a range."""
    form = request.form()
    task, first, last = (form.get(name, "").strip() for name in ("task", "first", "last"))
    status = request.store.backfill(task).within(first, last)
    ids = [each.job.id for each in status.partitions if each.state in RETRY.states]
    done = 0
    for at in range(0, len(ids), MOST_IDS):
        done += len(
            request.store.act("retry", ids[at : at + MOST_IDS], form.get("reason", "")).done
        )
    if not done:
        raise Conflict(
            "No partition of this range failed or was cancelled: there is nothing to retry."
        )
    return request.go("/backfills/one", task=task, first=first or None, last=last or None)


def again(request: WebRequest) -> Response:
    """Run all partitions of a range again; the app of this dashboard must have the task."""
    form = request.form()
    task, first, last = (form.get(name, "").strip() for name in ("task", "first", "last"))
    app = request.app
    if not first or not last:
        raise Refused("give the first and the last partition of the range")
    request.store.rerun_backfill(app, task, first, last, form.get("reason", ""))
    return request.go("/backfills/one", task=task, first=first, last=last)
