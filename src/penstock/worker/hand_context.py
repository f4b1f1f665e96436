"""What all hands of a worker share: the app, the checks before a start, where outcomes go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.worker.chunk import Chunk
from penstock.worker.running_slots import RunningSlots
from penstock.worker.start_check import StartCheck

if TYPE_CHECKING:
    from penstock.app.app import App


class HandContext(NamedTuple):
    app: App
    slots: RunningSlots
    start_check: StartCheck
    report: Callable[[Chunk], None]  # wakes the loop: this chunk has outcomes
    target: str | None  # "module:app", for processes that run single jobs
