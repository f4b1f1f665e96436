"""The apps whose jobs are encrypted: `sealed_apps` and `mark_sealed` of `Traits`."""

from __future__ import annotations

from penstock.brokers.tables.db import TableStore


def sealed_apps(store: TableStore) -> frozenset[str]:
    """The names of the apps whose jobs are encrypted."""
    with store.reading() as db:
        return frozenset(row["app"] for row in db.execute(store.sql.sealed_apps).fetchall())


def mark_sealed(store: TableStore, app: str) -> None:
    """Remember that jobs of this app are encrypted, from now on for the retention."""
    with store.writing() as db:
        db.execute(store.sql.mark_sealed, {"app": app, "now": store.clock.now()})
