"""Warn of tasks that a live worker of another program defines, too; see operate/task_places.py."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.broker.views import WorkerRow
from penstock.errors import PenstockError
from penstock.operate.task_places import REMEDY, defined_twice

if TYPE_CHECKING:
    from penstock.app.app import App

log = logging.getLogger("penstock.worker")


def warn_of_other_places(app: App, name: str) -> None:
    """Log what this worker, which starts now, defines elsewhere than those that run."""
    own = WorkerRow(
        id=name,
        app=app.name,
        tasks=app.known_tasks(),
        places=app.task_places,
        started_at=app.broker.clock.now(),
    )
    try:
        others = app.broker.workers()
    except PenstockError as error:
        log.info("which tasks other workers have is not known: %s", error)
        return
    for each in defined_twice([*others, own]):
        if each.app == own.app and each.task in own.tasks:
            log.warning("%s; %s", each, REMEDY)
