"""Upkeep of a lake: joins small files, drops old days, deletes files that nobody reads. No Spark.

Delta's own optimize and vacuum do the work. Rows, columns and marks stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from penstock.spark.pipelines.lake.lake import TABLE_NAMES, CommitConflict

if TYPE_CHECKING:
    from penstock.spark.pipelines.lake.lake import Lake

HOURS_KEPT = 7 * 24  # Delta's default: how long readers of an older version may go on


class Compacted(msgspec.Struct, kw_only=True):
    """What an upkeep did."""

    files: int = 0  # after it
    fewer: int = 0
    deleted: int = 0  # files that no version of the last days needs
    dropped: dict[str, int] = {}  # rows of days before the retention, by table


def compact(
    lake: Lake,
    on_progress: Callable[[str], None],
    keep: float | None = None,
) -> Compacted:
    """Join the small files of each day; with `keep`, drop days that ended so many seconds ago."""
    done = Compacted()
    for name in TABLE_NAMES:
        if lake.find(name) is None:
            continue
        on_progress(name)
        if keep is not None:
            dropped = drop_days(lake, name, datetime.now(UTC) - timedelta(seconds=keep))
            done.dropped[name] = dropped
        before = len(lake.table(name).files())
        lake.table(name).delta.optimize.compact()
        after = len(lake.table(name).files())
        done.files += after
        done.fewer += before - after
        done.deleted += len(lake.table(name).delta.vacuum(HOURS_KEPT, dry_run=False, full=True))
    return done


def drop_days(lake: Lake, name: str, before: datetime) -> int:
    """Remove the days of a table that ended before this moment; returns their rows."""
    first_kept = before.date().isoformat()
    while True:
        table = lake.table(name)
        old = [file for file in table.files() if file.day < first_kept]
        try:
            if old:
                table.commit([], removed=old)
        except CommitConflict:
            continue
        return sum(file.rows for file in old)
