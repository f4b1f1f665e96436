"""Tasks of one name that live workers define in several places: two programs, or a half-done move.

Each of these workers is handed the jobs of the others. That is worth a warning, and no more: while
a task moves to another module, workers of both releases run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.broker.views import WorkerRow


class DefinedTwice(NamedTuple):
    """One task, and where it is defined: each place with a worker that has it so."""

    app: str
    task: str
    workers: dict[str, str]

    def __str__(self) -> str:
        of = f" of the app {self.app}" if self.app else ""
        places = " and ".join(f"{place} (worker {name})" for place, name in self.workers.items())
        return f"the task {self.task}{of} is {places}: each of them runs jobs of the other"


REMEDY = "give one of the two programs a name, App(name=...), or the task another name="


def defined_twice(workers: Iterable[WorkerRow]) -> list[DefinedTwice]:
    """What live workers define in more than one place."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in sorted(workers, key=lambda row: (row.started_at, row.id)):
        for task in row.tasks if row.alive else ():
            # A receiver of a manager names tasks, and has no functions.
            if not row.receiver:
                places = found.setdefault((row.app, task), {})
                places.setdefault(row.places.get(task, task), row.group or row.id)
    return [DefinedTwice(*key, places) for key, places in found.items() if len(places) > 1]
