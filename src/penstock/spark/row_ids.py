"""Which job a row is, for rows that have an id of their own."""

from __future__ import annotations

from penstock.enqueue.ids import derived_id


def row_id(
    task: str, id: object, *, key: str | None = None, unique: str | None = None, app: str = ""
) -> str:
    """The id of the job that a row with this `id` becomes: the same, whenever it is written.

    A row that has a `key` or a `unique` key is in the bucket of that: with another it is another
    job. `app` is the name of the program that runs it, if it has one.
    """
    parts = ("spark", app, task, str(id)) if app else ("spark", task, str(id))
    return derived_id(*parts, bucket=key if unique is None else unique)
