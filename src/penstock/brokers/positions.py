"""Positions and ends of slices as texts, in stores that count their history with numbers.

A position is a number of 20 digits with leading zeros. The ends of a slice of the history are
positions, those of a slice of jobs are ids as 32 hexadecimal digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from itertools import pairwise

from penstock.broker.position import BEGINNING, Position, foreign
from penstock.broker.slice import HISTORY, Selection, Slice
from penstock.errors import Refused

FARTHEST_POSITION = (1 << 63) - 1
FARTHEST_ID = (1 << 128) - 1
_POSITION = re.compile(r"[0-9]{20}")
_ID = re.compile(r"[0-9a-f]{32}")


def position_text(number: int) -> Position:
    return f"{number:020d}" if number else BEGINNING


def number_of(position: Position) -> int:
    """The number in a position of this kind of store; anything else is refused."""
    if position == BEGINNING:
        return 0
    number = int(position) if _POSITION.fullmatch(position) else -1
    if not 1 <= number <= FARTHEST_POSITION:
        raise foreign(position, f"one has 20 digits, as in {position_text(1)}")
    return number


def own(position: Position) -> Position:
    """A position that this kind of store can have made; these sort as texts."""
    number_of(position)
    return position


def id_text(number: int) -> str:
    return f"{number:032x}"


def id_number(text: str) -> int:
    """The number of an id at the end of a slice of jobs."""
    if not _ID.fullmatch(text):
        raise Refused(f"{text!r} is no end of a slice of jobs: take one that this store cut")
    return int(text, 16)


def slices_between(
    selection: Selection, after: int, until: int, bounds: Collection[int]
) -> list[Slice]:
    """The slices from one end to the other that these bounds cut; none where there is nothing."""
    if until <= after:
        return []
    text: Callable[[int], str] = position_text if selection.table in HISTORY else id_text
    inner = sorted({bound for bound in bounds if after < bound < until})
    ends = [text(bound) for bound in (after, *inner, until)]
    return [Slice(selection, low, high) for low, high in pairwise(ends)]


def even_bounds(after: int, until: int, at_most: int) -> list[int]:
    """Bounds that cut a span of numbers into as many parts of one length."""
    span, parts = until - after, max(1, at_most)
    return [after + span * part // parts for part in range(1, parts)]
