"""Marks of lakes over shards: a lake has a mark on each, and they are looked at as one.

They are put on each shard by itself: whoever fills a lake reads each history by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.broker.lake_mark import Gap, Mark
from penstock.broker.position import BEGINNING, Position
from penstock.brokers.sharded.positions import Places


def marks_as_one(kept: Mapping[str, Iterable[Mark]], shards: Iterable[str]) -> list[Mark]:
    """The marks of all shards, one for each lake; `kept` has those of each shard."""
    lakes: dict[str, dict[str, Mark]] = {}
    for shard, marks in kept.items():
        for mark in marks:
            lakes.setdefault(mark.lake, {})[shard] = mark
    names = list(shards)
    return [_as_one(lakes[lake], names) for lake in sorted(lakes)]


def _as_one(marks: Mapping[str, Mark], shards: Iterable[str]) -> Mark:
    newest = max(marks.values(), key=lambda mark: mark.told_at)
    places = {name: marks[name].position if name in marks else BEGINNING for name in shards}
    return msgspec.structs.replace(
        newest,
        position=_text(places),
        hold=max(mark.hold for mark in marks.values()),
        # The one that was told least lately says how far the lake is behind.
        told_at=min(mark.told_at for mark in marks.values()),
        gap=_gap(marks, places),
        gap_at=max(mark.gap_at for mark in marks.values()),
    )


def _gap(marks: Mapping[str, Mark], places: Mapping[str, Position]) -> Gap | None:
    gaps = {name: mark.gap for name, mark in marks.items() if mark.gap is not None}
    if not gaps:
        return None
    rows = [gap.rows for gap in gaps.values()]
    return Gap(
        _text({**places, **{name: gap.after for name, gap in gaps.items()}}),
        _text({**places, **{name: gap.until for name, gap in gaps.items()}}),
        None if None in rows else sum(count or 0 for count in rows),
    )


def _text(places: Mapping[str, Position]) -> Position:
    return BEGINNING if set(places.values()) == {BEGINNING} else str(Places(places))
