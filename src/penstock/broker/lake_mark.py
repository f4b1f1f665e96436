"""Marks: how far lakes have the history of a store, which is pruned only below.

A lake tells its mark after its own commit: a store may know less than a lake has,
never more. What a lake has not yet is kept for the mark's `hold`; what goes after that is written
down in the mark's gap before it goes, and stays there until the lake has said that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.broker.checks import check_name, check_text
from penstock.broker.position import BEGINNING, Order, Position, ahead
from penstock.errors import Refused

HOLD_SECONDS = 30 * 86400.0
STILL_SECONDS = 7 * 86400.0  # half of the retention: from then on a lake is likely to hold history
_TELL_AGAIN_SECONDS = 86400.0  # a gap grows with every prune; the history is told once a day


class Gap(msgspec.Struct, frozen=True):
    """History behind `after`, up to and with `until`, that was pruned before a lake had it."""

    after: Position
    until: Position
    rows: int | None = None  # None: they were not counted


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A lake has every row of this history up to and with `position`."""

    lake: str  # the id in its log
    position: Position = BEGINNING
    hold: float = HOLD_SECONDS  # how long rows are kept for it, beyond their retention
    place: str = ""  # where it is, for people
    gap: Gap | None = None
    told_at: float = 0.0  # when the lake last said how far it has come
    gap_at: float = 0.0  # when the history last told of the gap
    # Of one that is put: the lake was restored, and its mark may go back. Never kept.
    restored: bool = False
    # Of one that is put: how far the lake told the store before. Never kept.
    told: Position = BEGINNING


def check_mark(mark: Mark, newest: Position, order: Order) -> None:
    """Refuse a mark that cannot be one of a history that has come so far."""
    check_name("lake", mark.lake)
    check_text("place", mark.place)
    if not mark.hold >= 0:
        raise Refused(f"lake {mark.lake}: history is kept for 0 seconds or more, not {mark.hold}")
    if order(mark.position) > order(newest):
        raise ahead(mark.position, newest)


def moved(
    kept: Mark | None,
    mark: Mark,
    now: float,
    order: Order,
    pruned_to: Callable[[], Position | None],
) -> Mark:
    """The mark as it is to be kept.

    `pruned_to` finds the position just before the first row that the history still has.
    """
    position = mark.position
    if kept is not None and order(kept.position) < order(mark.told):
        raise Refused(
            f"the store knows the lake {place_of(mark)} up to position {kept.position}, and was"
            f" told {mark.told}: it was restored from an older backup, and other rows"
            " are counted by those positions now. Begin a new lake with --lake, and keep this one"
            " for what the store has lost. (If it was only a copy of this lake that was run:"
            f" penstock pipeline forget --lake {place_of(mark)}, then run it again)"
        )
    if kept is not None and not mark.restored:
        position = max(position, kept.position, key=order)
    gap = None if kept is None or kept.gap == mark.gap else kept.gap
    # All that is known of the time in which this lake was not, or as one that had more.
    if position != BEGINNING and (kept is None or order(position) < order(kept.position)):
        until = pruned_to()
        if until is not None and order(until) > order(position):
            gap = _joined(gap, Gap(position, until), order)
    return Mark(
        lake=mark.lake,
        position=position,
        hold=mark.hold,
        place=mark.place,
        gap=gap,
        told_at=now,
        gap_at=0.0 if kept is None or gap is None else kept.gap_at,
    )


def widened(kept: Mark, rows: int, until: Position, now: float, order: Order) -> tuple[Mark, bool]:
    """The mark when so many rows are about to go; and whether the history is to tell of it."""
    gap = _joined(kept.gap, Gap(kept.position, until, rows), order)
    tells = kept.gap is None or now - kept.gap_at >= _TELL_AGAIN_SECONDS
    at = now if tells else kept.gap_at
    return msgspec.structs.replace(kept, gap=gap, gap_at=at), tells


def known_to(kept: Mark, order: Order) -> Position:
    """The position behind which nothing is in the lake, nor written down as lost to it."""
    return kept.position if kept.gap is None else max(kept.position, kept.gap.until, key=order)


def mark_says(kept: Mark | None, after: Mark, order: Order) -> str | None:
    """What the history has to tell of a mark that was set; None: it only went on."""
    if kept is None:
        return "begun"
    return "set back" if order(after.position) < order(kept.position) else None


def mark_data(says: str, mark: Mark, author: str = "", reason: str = "") -> dict[str, Any]:
    """What an event of a lake holds: begun, set back, gap, or forgotten."""
    data: dict[str, Any] = {"says": says, "lake": mark.lake, "place": mark.place}
    if author:
        data["author"] = author
    if reason:
        data["reason"] = reason
    if mark.gap is not None:
        data |= {"after": mark.gap.after, "until": mark.gap.until, "rows": mark.gap.rows}
    return data | {"position": mark.position}


def place_of(mark: Mark) -> str:
    """How a person names a lake."""
    return mark.place or mark.lake


def gap_text(gap: Gap) -> str:
    """What is missing, in words."""
    rows = "rows" if gap.rows is None else f"{gap.rows:,} row{'' if gap.rows == 1 else 's'}"
    return f"{rows} of the history (behind position {gap.after}, up to {gap.until})"


def _joined(one: Gap | None, other: Gap, order: Order) -> Gap:
    if one is None:
        return other
    rows = None if one.rows is None or other.rows is None else one.rows + other.rows
    after = min(one.after, other.after, key=order)
    return Gap(after, max(one.until, other.until, key=order), rows)
