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
    gate: StartCheck
    report: Callable[[Chunk], None]  # this chunk has news for the loop
    target: str | None  # where a process of its own finds the app
