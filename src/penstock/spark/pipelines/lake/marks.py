"""Marks: up to which position the lake has the history of a store, and what it will never have.

The mark is a number in the log of `attempts`, set by the commit that adds the rows, or after it. A
store is told of it later: a mark that is behind only delays pruning, one that is ahead would let
the store prune rows that the lake does not have. No Spark here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.lake_mark import HOLD_SECONDS, Mark
from penstock.broker.position import Position
from penstock.brokers.positions import position_text
from penstock.errors import Refused
from penstock.spark.pipelines.lake.lake import TABLE_OF_ID, CommitConflict, Lake
from penstock.spark.untyped_arrow import arrow

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

GAPS = "gaps"
_GAP_COLUMNS = arrow.schema(
    [
        *((name, arrow.string()) for name in ("store", "after", "until")),
        ("rows", arrow.int64()),
        ("found_at", arrow.float64()),
        ("day", arrow.date32()),
    ]
)


class LakeGap(msgspec.Struct, frozen=True, kw_only=True):
    """History that the store pruned before it was exported."""

    store: str
    after: Position
    until: Position  # inclusive
    rows: int | None = None  # None: not counted
    found_at: float = 0.0


def number_of_mark(position: Position) -> int:
    """A position as the number that a commit can carry; refused if it is none of 20 digits."""
    number = int(position) if position.isdecimal() else -1
    if number < 0 or number >= 1 << 63 or position_text(number) != position:
        raise Refused(
            f"this store counts its history by {position!r}: a lake can keep only positions that"
            " are numbers of 20 digits"
        )
    return number


def mark_name(store: str) -> str:
    return f"store {store}"


def told_name(store: str) -> str:
    """What the store was last told: a store that knows less was restored from a backup."""
    return f"told {store}"


def put_mark(broker: Broker, lake: Lake, store: str, hold: float | None = None) -> list[LakeGap]:
    """Give the store the lake's mark; returns the gaps that the store reports in turn."""
    attempts = lake.table(TABLE_OF_ID)
    stored = {mark.lake: mark for mark in broker.records(Mark)}.get(attempts.id)
    if hold is None:
        hold = HOLD_SECONDS if stored is None else stored.hold
    reached = attempts.mark(mark_name(store))
    mark = Mark(
        lake=attempts.id,
        position=position_text(reached),
        hold=hold,
        place=str(lake),
        restored=True,
        told=position_text(attempts.mark(told_name(store))),
    )
    gaps: dict[Position, LakeGap] = {}
    # Repeated until the store reports no gap: a prune may have made one, or made it larger, since.
    while (kept := broker.put(mark)).gap is not None:
        gap = LakeGap(
            store=store,
            after=kept.gap.after,
            until=kept.gap.until,
            rows=kept.gap.rows,
            found_at=kept.told_at,
        )
        gaps[gap.after] = gap
        _keep_gap(lake, gap)
        mark = msgspec.structs.replace(mark, gap=kept.gap)
    _keep_told(lake, store, reached)
    return list(gaps.values())


def gaps_of(lake: Lake) -> list[LakeGap]:
    """What the lake will never have."""
    table = lake.find(GAPS)
    rows: list[Any] = [] if table is None else table.rows()
    return sorted(msgspec.convert(rows, list[LakeGap]), key=lambda gap: (gap.store, gap.after))


def _keep_told(lake: Lake, store: str, reached: int) -> None:
    while (attempts := lake.table(TABLE_OF_ID)).mark(told_name(store)) < reached:
        try:
            attempts.commit([], marks={told_name(store): reached})
        except CommitConflict:
            continue


def _keep_gap(lake: Lake, gap: LakeGap) -> None:
    def with_gap(rows: list[dict[str, Any]]) -> Any:
        # A gap that has grown replaces itself.
        others = [row for row in rows if (row["store"], row["after"]) != (gap.store, gap.after)]
        day = datetime.fromtimestamp(gap.found_at, UTC).date()
        fresh = {**msgspec.structs.asdict(gap), "day": day}
        return arrow.Table.from_pylist([*others, fresh], _GAP_COLUMNS)

    lake.replace_rows(GAPS, with_gap)
