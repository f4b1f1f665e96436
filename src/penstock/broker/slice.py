"""Slices: parts of a table that several processes read at once, each by itself.

A slice is a value: the store cuts them, and whoever plans sends them to those who read. Within a
slice all rows come from one look at the store; its ends are texts that this store alone compares.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import msgspec

from penstock.broker.position import Position
from penstock.errors import Refused

Table = Literal["attempts", "events", "gauges", "jobs", "results"]
HISTORY: frozenset[str] = frozenset({"attempts", "events", "gauges"})


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


class Slice(msgspec.Struct, frozen=True):
    """The rows of a selection behind `after`, up to and with `until`."""

    selection: Selection
    after: str
    until: str


class Reach(msgspec.Struct, frozen=True):
    """How far a history may be read: what comes to be later is behind `position`."""

    store: str  # the store's id: positions are its own
    position: Position
    full: bool = False  # as many rows of the selection as were asked for are up to there


def check_last(
    after: Position | None,
    job: str | None,
    kind: str | Collection[str] | None,
    before: Position | None,
) -> tuple[str, ...]:
    """The kinds that are wanted of the last rows; refused where they would be passed over."""
    if (kind is not None or before is not None) and (after is not None or job is not None):
        raise Refused("history: kind and before are for the last rows: after=None, and no job")
    kinds = (kind,) if isinstance(kind, str) else tuple(dict.fromkeys(kind or ()))
    if len(kinds) > 1 and "attempt" in kinds:
        raise Refused("history: attempts are a kind to ask for by itself")
    return kinds
