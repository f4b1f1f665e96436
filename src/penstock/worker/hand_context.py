"""The bench: what all hands of a worker work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock.worker.chunk import Chunk
from penstock.worker.running_slots import Slots
from penstock.worker.start_check import Gate

if TYPE_CHECKING:
    from penstock.app.app import App


class Bench(NamedTuple):
    app: App
    slots: Slots
    gate: Gate
    report: Callable[[Chunk], None]  # this chunk has news for the loop
    target: str | None  # where a process of its own finds the app
