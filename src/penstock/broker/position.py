"""Positions of a history: opaque texts, made by the store whose history it is.

Only that store compares two of them, or computes with one: whoever else has a position hands it
back to the store that it is of (offsets and lakes hold {store id: position}), and asks whether
two are equal, no more. A position that a store cannot have made is refused.

A lake is files, and holds rows of stores that may be gone: there nobody can ask. So the positions
of one store's rows, compared as texts, are in the order of its history: numbers have leading zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import Refused

Position = str
BEGINNING: Position = "0"  # of every history: all of its rows are behind it
Order = Callable[[Position], Any]  # the store's key: of two positions, the greater one is behind


def foreign(position: Position, form: str) -> Refused:
    """What is said of a text that is no position of a store; `form` says what one looks like."""
    return Refused(
        f"{position!r} is no position of this store: {form}, and {BEGINNING} is the beginning; take"
        " it from a row of its history"
    )


def ahead(after: Position, newest: Position) -> Refused:
    """What is said of a position that a history has not come to."""
    return Refused(
        f"position {after} is ahead of this history, which has come to {newest}: it is of another"
        " store, or of this one before it was restored from a backup"
    )
