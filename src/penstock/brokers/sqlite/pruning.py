"""Prune: what ended long ago is forgotten, a page at a time."""

from __future__ import annotations

import time

from penstock.broker.values import STAGED_SECONDS
from penstock.brokers.sqlite.enqueuing import pruned_before
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db
from penstock.brokers.tables.flow_needs import place_of
from penstock.brokers.tables.kept_secrets import forget_kept_secrets
from penstock.brokers.tables.lake_marks import MarkRows
from penstock.brokers.tables.worker_rows import expire
from penstock.job import State

PRUNED_AT_ONCE = 1000  # about 10 ms
PRUNE_REST_SECONDS = 0.001


class SqlitePruning:
    """Prune."""

    def __init__(self, store: SqliteStore, marks: MarkRows) -> None:
        self.store = store
        self.clock = store.clock
        self._marks = marks

    def prune(self, before: float) -> int:
        # Page by page: whoever wants to write meanwhile, a heartbeat for one, gets its turn.
        removed, after = 0, 0
        more = True
        while more:
            with self.store.writing() as db:
                change = Change(self.store, db, self.clock.now())
                if not after:
                    self._marks.write_gaps(change, before)
                pruned, after, more = self._prune_page(change, before, after)
                if not more:
                    pruned += self._prune_rest(db, before)
            removed += pruned
            change.after_commit()
            time.sleep(PRUNE_REST_SECONDS)  # threads of this process do not queue for its lock
        return removed

    def _prune_page(self, change: Change, before: float, after: int) -> tuple[int, int, bool]:
        """Forget some of each; how many rows, how far in the history, whether there is more."""
        db, now = change.db, change.now
        expire(change)
        # First of all: from now on ids from before are refused, and need not be remembered.
        latest = max(before, pruned_before(db))
        db.execute(sql.put_meta, {"name": "pruned_before", "value": repr(latest)})
        below = int(max(before, 0) * 1000).to_bytes(6, "big") + bytes(10)
        parameters = {"before": before, "below": below, "now": now, "most": PRUNED_AT_ONCE}
        jobs = db.execute(sql.prune_jobs, parameters).fetchall()
        for row in jobs:
            change.tally[row["lane"], State(row["state"]), row["minute"]] -= 1
            change.deleted.append((row["id"],))
            change.forget_lasting(row["id"])
            if place := place_of(row["body"]):
                change.lost.add(place)
        change.finish()
        page = db.execute(sql.prune_page, {**parameters, "after": after}).fetchone()
        last, stays = page["last"] or after, page["stays"]
        span = {"after": after, "end": last + 1 if stays is None else stays, "now": now}
        removed = len(jobs) + db.execute(sql.prune, span).rowcount
        sent = [
            db.execute(statement, parameters).rowcount
            for statement in (sql.prune_sent, sql.prune_derived)
        ]
        flows = [
            db.execute(statement, parameters).rowcount
            for statement in (
                *(sql.prune_members, sql.prune_needs, sql.prune_nodes, sql.prune_found),
                sql.prune_flows,
            )
        ]
        # Not counted: the rows stay.
        bodies = db.execute(sql.prune_bodies, parameters).rowcount
        states = db.execute(sql.prune_states, parameters).rowcount
        secrets = forget_kept_secrets(self.store, db, now, PRUNED_AT_ONCE)
        more = (stays is None and last > after) or PRUNED_AT_ONCE in {
            len(jobs),
            *sent,
            flows[-1],
            bodies,
            states,
            secrets,
        }
        return removed + sum(sent) + flows[-1], last if stays is None else stays - 1, more

    def _prune_rest(self, db: Db, before: float) -> int:
        """What belongs to nothing any more."""
        now = self.clock.now()
        parameters = {"before": before, "now": now, "staged": STAGED_SECONDS}
        removed = sum(
            db.execute(statement, parameters).rowcount
            for statement in (sql.prune_notes, sql.prune_batches, sql.prune_published)
        )
        # Not counted: these are no rows that anybody put there.
        for statement in (
            *(sql.prune_tags, sql.prune_workers, sql.prune_tallies, sql.prune_unique),
            sql.prune_sealed,
        ):
            db.execute(statement, parameters)
        db.execute(sql.prune_starts, parameters)
        db.execute(sql.prune_staged, parameters)
        return removed
