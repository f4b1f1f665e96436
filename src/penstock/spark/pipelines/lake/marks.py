"""Telling: a store hears how far the lake has come, and the lake what it will never have.

The manifest is written first, always: a store that knows less keeps too much for a while, one that
knew more would prune what nobody has. No Spark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.broker.lake_mark import HOLD_SECONDS, Gap, Mark
from penstock.broker.position import BEGINNING, Position
from penstock.spark.pipelines.lake.manifest import LakeGap

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import LakeWriter


def tell(
    broker: Broker, writing: LakeWriter, store: str, hold: float | None = None
) -> list[LakeGap]:
    """Tell the store where the lake stands; returns what the lake learnt that it misses."""
    manifest = writing.manifest()
    known = {mark.lake: mark for mark in broker.records(Mark)}.get(manifest.id)
    if hold is None:
        hold = HOLD_SECONDS if known is None else known.hold
    position = manifest.reached.get(store, BEGINNING)
    mark = Mark(
        lake=manifest.id,
        position=position,
        hold=hold,
        place=str(writing.folder),
        restored=True,
        told=manifest.told.get(store, BEGINNING),
    )
    found: dict[Position, LakeGap] = {}
    # Once more for a gap that a prune made, or made larger, since the last answer.
    while (kept := broker.put(mark)).gap is not None:
        gap = _gap_of(store, kept.gap, kept.told_at)
        found[gap.after] = gap
        writing.change(gaps=_with(writing.manifest().gaps, gap))
        mark = msgspec.structs.replace(mark, gap=kept.gap)
    writing.change(told={**manifest.told, store: position})
    return list(found.values())


def _gap_of(store: str, gap: Gap, at: float) -> LakeGap:
    return LakeGap(store=store, after=gap.after, until=gap.until, rows=gap.rows, found_at=at)


def _with(gaps: tuple[LakeGap, ...], gap: LakeGap) -> tuple[LakeGap, ...]:
    """These gaps with another one, which takes the place of itself as the store told it before."""
    others = [each for each in gaps if (each.store, each.after) != (gap.store, gap.after)]
    return (*others, gap)
