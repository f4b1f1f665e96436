"""Counts of jobs as every surface shows them: the columns, and the fullest queues first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from penstock.broker.views import PLACES, Count

COLUMNS = ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed")


def fullest_first(counts: Iterable[Count]) -> list[Count]:
    return sorted(counts, key=lambda count: (-count.total - count.failed, count.queue, count.task))


def totals(counts: Sequence[Count]) -> dict[str, int]:
    """The sum of each place over these counts."""
    return {place: sum(getattr(count, place) for count in counts) for place in PLACES}


def queue_json(count: Count, size: int | None = None) -> dict[str, Any]:
    """The count of a whole queue for programs; `size` where its jobs are in memory."""
    numbers = msgspec.structs.asdict(count)
    del numbers["task"], numbers["app"]
    return numbers if size is None else {**numbers, "bytes": size}


def size_text(size: int) -> str:
    """An amount of memory: `512 B`, `4.2 MiB`."""
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
