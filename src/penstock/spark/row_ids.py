"""Which job a row is, for rows that have an id of their own."""

from __future__ import annotations

from penstock.enqueue.ids import derived_id


def row_id(task: str, id: object) -> str:
    """The id of the job that a row with this `id` becomes: the same, whenever it is written."""
    return derived_id("spark", task, str(id))
