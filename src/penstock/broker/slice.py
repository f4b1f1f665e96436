"""Slices: parts of a table that several processes read at once, each by itself.

A slice is a value: whoever plans makes them, and sends them to those who read. Within a slice all
rows come from one look at the store; its ends are positions of the history, or ids as numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import msgspec

from penstock.errors import Refused

Table = Literal["attempts", "events", "gauges", "jobs", "results"]
HISTORY: frozenset[str] = frozenset({"attempts", "events", "gauges"})
FARTHEST_POSITION = (1 << 63) - 1
FARTHEST_ID = (1 << 128) - 1


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a table are wanted. Empty means any.

    A store may give more of them than these: whoever reads looks again.
    """

    table: Table
    queue: tuple[str, ...] = ()
    task: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    since: float | None = None  # of the history: at or after
    until: float | None = None  # and up to
    flow: str | None = None  # of jobs and results: only those of a flow, or of one of its nodes
    node: str | None = None
    bodies: bool = True  # with body and result, by far the widest columns

    @property
    def kind(self) -> str | None:
        """The kind of the rows in the history; None: all but attempts and gauges."""
        return {"attempts": "attempt", "gauges": "gauge"}.get(self.table)

    @property
    def farthest(self) -> int:
        """An end that no row is behind."""
        return FARTHEST_POSITION if self.table in HISTORY else FARTHEST_ID


class Slice(msgspec.Struct, frozen=True):
    """The rows of a selection behind `after`, up to and with `until`."""

    selection: Selection
    after: int
    until: int


class Reach(msgspec.Struct, frozen=True):
    """How far a history may be read: what comes to be later is behind `position`."""

    store: str  # the store's id: positions are its own
    position: int


def check_last(after: int | None, job: str | None, kind: str | None, before: int | None) -> None:
    """Refuse `kind` and `before` where they would be passed over."""
    if (kind is not None or before is not None) and (after is not None or job is not None):
        raise Refused("history: kind and before are for the last rows: after=None, and no job")


def ahead(after: int, newest: int) -> Refused:
    """What is said of a position that a history has not come to."""
    return Refused(
        f"position {after} is ahead of this history, which has come to {newest}: it is of another"
        " store, or of this one before it was restored from a backup"
    )


def slices_between(selection: Selection, after: int, until: int, bounds: list[int]) -> list[Slice]:
    """The slices from one end to the other that these bounds cut; none where there is nothing."""
    if until <= after:
        return []
    inner = sorted({bound for bound in bounds if after < bound < until})
    ends = [after, *inner, until]
    return [Slice(selection, low, high) for low, high in pairwise(ends)]


def even_bounds(after: int, until: int, at_most: int) -> list[int]:
    """Bounds that cut a span of numbers into as many parts of one length."""
    span, parts = until - after, max(1, at_most)
    return [after + span * part // parts for part in range(1, parts)]
