"""What a history says of datasets: each version of a partition was made by one attempt of one job.

The results of their jobs name it, also those of a job that only found a version that was there.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.broker.views import Event
from penstock.task.dataset_plan import Made

_MADE = b'{"type":"made"'


class MadeVersions:
    """The versions that succeeded jobs speak of."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, str], Made] = {}

    def read(self, event: Event) -> Iterator[tuple[str, str]]:
        """What contradicts the rows before: of what, and a sentence."""
        if event.result is None or not event.result.startswith(_MADE):
            return
        try:
            made = msgspec.json.decode(event.result, type=Made)
        except msgspec.DecodeError:  # some other task's result
            return
        subject = f"{made.dataset} {made.partition}"
        if not made.found and made.job != event.job:
            yield subject, f"job {event.job} says that it made what job {made.job} made"
        before = self._made.setdefault((made.dataset, made.partition, made.run), made)
        if (before.job, before.attempt, before.rows) != (made.job, made.attempt, made.rows):
            yield subject, f"version {made.run} was made twice: {_text(before)}, and {_text(made)}"


def _text(made: Made) -> str:
    return f"by job {made.job}, attempt {made.attempt}, {made.rows:,} rows"
