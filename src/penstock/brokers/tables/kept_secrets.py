"""Ended jobs that keep their secrets, encrypted, for a while: `keep_secrets` of a task.

The body says until when; a table of its own says it again, so that prune finds those whose time is
over without reading the bodies of all ended jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.brokers.tables.db import Db, TableStore
from penstock.enqueue.secrets import secrets_until, without_kept_secrets
from penstock.job import ENDED, State


def kept_rows(*rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The parameters of `keep_secrets` for those of these rows of jobs that keep secrets."""
    return [
        {"id": row["id"], "until": until}
        for some in rows
        for row in some
        if row["ended_at"] is not None
        and row["body"] is not None
        and (until := secrets_until(row["body"])) is not None
    ]


def forget_kept_secrets(store: TableStore, db: Db, now: float, most: int) -> int:
    """Delete secrets whose time is over, of so many jobs at most; of how many."""
    sql = store.sql
    rows = db.execute(sql.kept_over, {"now": now, "most": most}).fetchall()
    bodies = [
        {"id": row["id"], "body": without_kept_secrets(row["body"])}
        for row in rows
        if State(row["state"]) in ENDED  # one that runs again needs them
    ]
    if bodies:
        db.executemany(sql.put_body, bodies)
    if rows:
        db.executemany(sql.forget_kept, [{"id": row["id"]} for row in rows])
    db.execute(sql.forget_kept_gone, {"now": now})
    return len(rows)
