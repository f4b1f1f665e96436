"""Marks: the store learns up to which position the lake has its history, and reports gaps.

The manifest is always written before the store's mark: a mark that is behind only delays pruning,
one that is ahead would let the store prune rows that the lake does not have. No Spark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.broker.lake_mark import HOLD_SECONDS, Mark
from penstock.broker.position import BEGINNING, Position
from penstock.spark.pipelines.lake.manifest import LakeGap

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import LakeWriter


def put_mark(
    broker: Broker, writer: LakeWriter, store: str, hold: float | None = None
) -> list[LakeGap]:
    """Give the store the lake's mark; returns the gaps that the store reports in turn."""
    manifest = writer.manifest()
    stored = {mark.lake: mark for mark in broker.records(Mark)}.get(manifest.id)
    if hold is None:
        hold = HOLD_SECONDS if stored is None else stored.hold
    position = manifest.reached.get(store, BEGINNING)
    mark = Mark(
        lake=manifest.id,
        position=position,
        hold=hold,
        place=str(writer.folder),
        restored=True,
        told=manifest.told.get(store, BEGINNING),
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
        # A gap that has grown replaces itself.
        others = [
            known
            for known in writer.manifest().gaps
            if (known.store, known.after) != (gap.store, gap.after)
        ]
        writer.change(gaps=(*others, gap))
        mark = msgspec.structs.replace(mark, gap=kept.gap)
    writer.change(told={**manifest.told, store: position})
    return list(gaps.values())
