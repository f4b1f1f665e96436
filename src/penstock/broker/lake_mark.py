"""Marks: how far lakes have the history of a store, which is pruned only below.

A lake tells its mark after its own manifest is written: a store may know less than a lake has,
never more. What a lake has not yet is kept for the mark's `hold`; what goes after that is written
down in the mark's gap before it goes, and stays there until the lake has said that it knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.broker.checks import check_name, check_text
from penstock.broker.slice import ahead
from penstock.errors import Refused

HOLD_SECONDS = 30 * 86400.0
STILL_SECONDS = 7 * 86400.0  # half of the retention: from then on a lake is likely to hold history
_TELL_AGAIN_SECONDS = 86400.0  # a gap grows with every prune; the history is told once a day


class Gap(msgspec.Struct, frozen=True):
    """History behind `after`, up to and with `until`, that was pruned before a lake had it."""

    after: int
    until: int
    rows: int | None = None  # None: they were not counted


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A lake has every row of this history up to and with `position`."""

    lake: str  # the id in its manifest
    position: int = 0
    hold: float = HOLD_SECONDS  # how long rows are kept for it, beyond their retention
    place: str = ""  # where it is, for people
    gap: Gap | None = None
    told_at: float = 0.0  # when the lake last said how far it has come
    gap_at: float = 0.0  # when the history last told of the gap
    # Of one that is put: the lake was restored, and its mark may go back. Never kept.
    restored: bool = False


def check_mark(mark: Mark, newest: int) -> None:
    """Refuse a mark that cannot be one of a history that has come so far."""
    check_name("lake", mark.lake)
    check_text("place", mark.place)
    if not mark.hold >= 0:
        raise Refused(f"lake {mark.lake}: history is kept for 0 seconds or more, not {mark.hold}")
    if mark.position < 0:
        raise Refused(f"lake {mark.lake}: no position is below 0, as {mark.position} is")
    if mark.position > newest:
        raise ahead(mark.position, newest)


def moved(kept: Mark | None, mark: Mark, now: float, oldest: Callable[[], int | None]) -> Mark:
    """The mark as it is to be kept; `oldest` finds the first row that the history still has."""
    position = mark.position
    if kept is not None and not mark.restored:
        position = max(position, kept.position)
    gap = None if kept is None or kept.gap == mark.gap else kept.gap
    # All that is known of the time in which this lake was not, or as one that had more.
    if position and (kept is None or position < kept.position):
        first = oldest()
        if first is not None and first > position + 1:
            gap = _joined(gap, Gap(position, first - 1))
    return Mark(
        lake=mark.lake,
        position=position,
        hold=mark.hold,
        place=mark.place,
        gap=gap,
        told_at=now,
        gap_at=0.0 if kept is None or gap is None else kept.gap_at,
    )


def widened(kept: Mark, rows: int, until: int, now: float) -> tuple[Mark, bool]:
    """The mark when so many rows are about to go; and whether the history is to tell of it."""
    gap = _joined(kept.gap, Gap(kept.position, until, rows))
    tells = kept.gap is None or now - kept.gap_at >= _TELL_AGAIN_SECONDS
    at = now if tells else kept.gap_at
    return msgspec.structs.replace(kept, gap=gap, gap_at=at), tells


def known_to(kept: Mark) -> int:
    """The position behind which nothing is in the lake, nor written down as lost to it."""
    return kept.position if kept.gap is None else max(kept.position, kept.gap.until)


def mark_says(kept: Mark | None, after: Mark) -> str | None:
    """What the history has to tell of a mark that was set; None: it only went on."""
    if kept is None:
        return "begun"
    return "set back" if after.position < kept.position else None


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
    return f"{rows} of the history (behind position {gap.after:,}, up to {gap.until:,})"


def _joined(one: Gap | None, other: Gap) -> Gap:
    if one is None:
        return other
    rows = None if one.rows is None or other.rows is None else one.rows + other.rows
    return Gap(min(one.after, other.after), max(one.until, other.until), rows)
