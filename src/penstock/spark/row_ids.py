"""The job id of a row, derived from the row's own id."""

from __future__ import annotations

from penstock.enqueue.ids import derived_id


def row_id(
    task: str, id: object, *, key: str | None = None, unique: str | None = None, app: str = ""
) -> str:
    """The id of the job that a row with this `id` becomes: the same, whenever it is written.

    A `key` or a `unique` key decides the bucket of the id: the same row with another key is another
    job. `app` is the name of the app that runs it, if it has one.
    """
    parts = ("spark", app, task, str(id)) if app else ("spark", task, str(id))
    return derived_id(*parts, bucket=key if unique is None else unique)
