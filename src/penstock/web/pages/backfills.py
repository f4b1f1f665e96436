"""Backfills: a grid of a task's partitions, each a link to its job; and trying a range again."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.errors import Refused
from penstock.job import State
from penstock.operate.backfill_status import MOST_LOOKED_AT, Filled
from penstock.operate.refusals import Conflict, NotFound
from penstock.web.request import Asked
from penstock.web.verbs import MOST_IDS

MOST_CELLS = 2000
MOST_TASKS = 200


def show(asked: Asked) -> Response:
    tasks = sorted(asked.verbs.backfilled_tasks().items())
    return asked.page(
        "backfills.html",
        title="Backfills",
        cli="penstock find key:backfill",
        tasks=tasks[:MOST_TASKS],
        all_tasks=len(tasks),
    )


def one(asked: Asked) -> Response:
    task = asked.word("task")
    if not task:
        raise NotFound("Which task? Choose one from the list.")
    first, last = asked.word("first").strip(), asked.word("last").strip()
    looked = asked.verbs.backfill(task).within(first, last)
    cut = looked._replace(partitions=looked.partitions[-MOST_CELLS:])
    return asked.page(
        "backfill.html",
        title=f"Backfill of {task}",
        cli=shlex.join(["penstock", "find", "key:backfill", f"task:{task}"]),
        task=task,
        first=first,
        last=last,
        counts=looked.counts(),
        partitions=len(looked.partitions),
        rows=list(cut.rows()),
        left_out=len(looked.partitions) - len(cut.partitions),
        more=looked.more,
        most=MOST_LOOKED_AT,
        known=_has_task(asked, task),
        again=len([each for each in looked.partitions if _may_be_tried(each)]),
    )


def retry(asked: Asked) -> Response:
    """Try again what failed or was cancelled, of a range of partitions."""
    form = asked.form()
    task, first, last = (form.get(name, "").strip() for name in ("task", "first", "last"))
    looked = asked.verbs.backfill(task).within(first, last)
    ids = [each.job.id for each in looked.partitions if _may_be_tried(each)]
    done = 0
    for at in range(0, len(ids), MOST_IDS):
        done += len(asked.verbs.act("retry", ids[at : at + MOST_IDS], form.get("reason", "")).done)
    if not done:
        raise Conflict("No partition of this range failed or was cancelled: nothing to try again.")
    return asked.go("/backfills/one", task=task, first=first or None, last=last or None)


def again(asked: Asked) -> Response:
    """Run a range of partitions once more, where the app of this dashboard has the task."""
    form = asked.form()
    task, first, last = (form.get(name, "").strip() for name in ("task", "first", "last"))
    app = asked.app
    if not first or not last:
        raise Refused("which partitions? Give the first and the last of the range")
    asked.verbs.fill_again(app, task, first, last, form.get("reason", ""))
    return asked.go("/backfills/one", task=task, first=first, last=last)


def _has_task(asked: Asked, task: str) -> bool:
    return asked.site.app is not None and asked.site.app.task_named(task) is not None


def _may_be_tried(each: Filled) -> bool:
    return each.state in {State.FAILED, State.CANCELLED}
