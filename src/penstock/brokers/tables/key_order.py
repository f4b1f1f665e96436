"""Order per key, as the tables have it in one transaction: who stands before whom."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.brokers.tables.db import Db, TableStore
from penstock.enqueue.ids import to_bytes
from penstock.job import Job, State
from penstock.rules.key_order import policies
from penstock.rules.rule import Rule

_LAST_ID = b"\xff" * 16


class KeyOrder:
    """The lines of a store's ordered queues, one for each key."""

    def __init__(self, store: TableStore, db: Db) -> None:
        self._store = store
        self._db = db
        self._lanes: dict[str, str] = {}

    def behind(self, queue: str, key: str, raw: bytes, policy: str) -> bytes | None:
        """The job that this one waits for: one that runs, or the first that comes before it."""
        parameters = {"lanes": self._lanes_of(queue), "key": key, "id": raw}
        row = self._db.execute(self._store.sql.behind, parameters).fetchone()
        if row["running"] is not None:
            return row["running"]
        failed = row["failed"] if policy == "wait" else None
        return min((raw for raw in (row["ready"], failed) if raw is not None), default=None)

    def first_ready(self, queue: str, key: str, lane: int) -> bytes | None:
        """The first job of this key that is ready in any other lane of its queue."""
        others = [other for other in msgspec.json.decode(self._lanes_of(queue)) if other != lane]
        lanes = msgspec.json.encode(others).decode()
        parameters = {"lanes": lanes, "key": key, "id": _LAST_ID}
        return self._db.execute(self._store.sql.behind, parameters).fetchone()["ready"]

    def _lanes_of(self, queue: str) -> str:
        if queue not in self._lanes:
            found = self._db.execute(self._store.sql.queue_lanes, (queue,)).fetchall()
            self._lanes[queue] = msgspec.json.encode([row["hash"] for row in found]).decode()
        return self._lanes[queue]


def behind(store: TableStore, db: Db, rules: list[Rule], job: Job[Any]) -> bytes | None:
    """The job that this ready one waits for, if its queue is ordered."""
    policy = policies(rules).get(job.queue)
    if policy in {None, "fair"} or not job.key or job.state is not State.READY:
        return None
    return KeyOrder(store, db).behind(job.queue, job.key, to_bytes(job.id), policy or "")
