"""How a worker runs each of its tasks: in a thread, on the event loop, in a process; in batches."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.errors import Refused
from penstock.run.batch import most_together
from penstock.task.batch import as_batch_task
from penstock.worker.batch_gathering import BatchSize

if TYPE_CHECKING:
    from penstock.app.app import App

log = logging.getLogger("penstock.worker")


def modes_and_batches(
    app: App, tasks: Iterable[str], target: str | None
) -> tuple[dict[str, str], dict[str, BatchSize]]:
    """The mode of each task by its name, and the sizes of those that are called in batches."""
    modes: dict[str, str] = {}
    batches: dict[str, BatchSize] = {}
    for name in tasks:
        task = app.task_named(name)
        modes[name] = task.mode if task is not None else "thread"
        in_order = task is not None and app.queues.of(task.queue).order == "batch"
        if (batch := as_batch_task(task)) is not None:
            most = most_together(app, batch)
            batches[name] = BatchSize(most, batch.linger, batch.by_key, in_order)
        if in_order and not (batch is not None and batch.by_key):
            log.warning(
                "queue %s hands out several jobs of a key together, and %s is no batch task with "
                "by_key=True: they run side by side, in no order",
                task.queue if task is not None else "",
                name,
            )
        if modes[name] == "process" and target is None:
            raise Refused(
                f"task {name} runs in a process of its own, which must find the app: "
                "keep the App in a module or a file, as `app = App()`"
            )
    return modes, batches
