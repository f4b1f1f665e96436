"""Recover the jobs of lapsed workers; on the way, fold counts and create partitions."""

from __future__ import annotations

import time
from collections.abc import Collection

from psycopg import errors

from penstock.brokers.postgres.claiming import PostgresClaims
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresStore
from penstock.brokers.tables.recovery import Recovery, SettleWithin

AHEAD_DAYS = 7
FOLD_SECONDS = 5.0
LOCK_SECONDS = 0.1  # so long a chore waits for a lock
_DAY = 86400


class PostgresRecovery:
    """Recover; and the chores that come with a worker's regular call of it."""

    def __init__(
        self, store: PostgresStore, claims: PostgresClaims, settle_within: SettleWithin
    ) -> None:
        self.store = store
        self.clock = store.clock
        self._claims = claims
        self._recover = Recovery(store, settle_within).recover
        self._folded_at = -1.0
        self._days_made = -1

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        recovered = 0
        if dead is not None or by is None or not self._claims.nobody_lapsed():
            recovered = self._recover(by, dead, started)
            if recovered:
                self.store.claimable.start_from_bottom()
        if dead is not None:
            self._claims.registered.pop(dead, None)  # else a supervisor's list grows for ever
        if by is not None:
            self._do_chores()
        return recovered

    def _do_chores(self) -> None:
        """Fold the counts every few seconds; create partitions once a day."""
        now = time.monotonic()
        if self._folded_at < 0:
            self._folded_at = now  # a new worker has nothing to fold yet
        elif now - self._folded_at >= FOLD_SECONDS and self._claims.moved:
            self._folded_at, self._claims.moved = now, False
            fold(self.store)
        day = int(self.clock.now() // _DAY)
        if self._days_made != day:
            self._days_made = day
            make_days(self.store)


def fold(store: PostgresStore) -> None:
    """Replace the rows that transactions added to the counts by their sums."""
    with store.writing(durable=False) as db:
        db.execute(sql.fold)


def make_days(store: PostgresStore) -> None:
    """Create the missing partitions of today and the coming week."""
    today = int(store.clock.now() // _DAY)
    with store.connection() as connection:
        for day in range(today, today + AHEAD_DAYS + 1):
            try:
                with store.transaction(connection, lock_seconds=LOCK_SECONDS) as db:
                    db.execute(sql.make_day, (day,))
            except (
                errors.LockNotAvailable,
                errors.CheckViolation,
                errors.InsufficientPrivilege,
            ):
                continue  # rows of that day go to the default partition and are pruned row by row
