"""Look: readers of the history never see a row before all rows with lower positions."""

from __future__ import annotations

import time
from collections.abc import Collection

from penstock.broker.position import BEGINNING, Position
from penstock.broker.slice import check_last
from penstock.broker.views import Event
from penstock.brokers.positions import number_of
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.reading import Looks

_WAIT_SECONDS = 0.5  # how long a reader waits for open transactions
_PAUSE_SECONDS = 0.005


class PostgresLooks(Looks[PostgresStore]):
    """Look, as every store in tables does; but history waits for transactions that may commit."""

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        if job is not None or after is None:
            return super().history(after, limit, job, kind=kind, before=before)
        check_last(after, job, kind, before)
        until = time.monotonic() + _WAIT_SECONDS
        parameters = {"after": number_of(after), "limit": limit}
        while True:
            with self.store.reading() as db:
                rows = db.execute(sql.history, parameters).fetchall()
                if not rows:
                    self.refuse_ahead(db, after)
                safe = [row for row in rows if row["safe"]]
                if len(safe) == len(rows) or time.monotonic() > until:
                    events = [self.event(db, row) for row in safe]
                    break
            time.sleep(_PAUSE_SECONDS)
        if events:
            flush_wal(self.store)
        return events


def flush_wal(store: PostgresStore) -> None:
    """Make what was read durable.

    Commits of relaxed queues may be lost in a crash; other rows would then get positions that
    the reader has passed already.
    """
    with store.connection() as connection:
        db = PostgresDb(connection)
        written = db.execute(sql.written).fetchone()
        flushed = db.execute(sql.flushed, written).fetchone() if written else None
        if flushed and not flushed["flushed"]:
            db.execute(sql.flush)
