"""What there is to claim: the lanes with work, best first, remembered for a moment.

Finding them costs a few microseconds a lane, so a worker goes on with what it found: until a lane
runs short, 50 ms have passed (late committers are found then), or this process wrote something.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import can_run
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.rows import made_at
from penstock.job import Lane
from penstock.rules.queue_turns import QueueTurns

_FRESH_SECONDS = 0.05
_SHARE = 20  # looking takes at most a twentieth of the time


class ClaimableLane(NamedTuple):
    rank: float
    head: float
    hash: int
    lane: Lane
    loose: bool  # it has rows of its own, beside parcels

    @property
    def worth(self) -> float:
        return -self.rank


class SqliteClaimableLanes:
    """The lanes that workers of one declaration may be handed jobs from."""

    def __init__(self) -> None:
        self.lanes: list[ClaimableLane] = []
        self.turns = QueueTurns()
        self.cursors: dict[int, str] = {}  # the key that had the last turn in a lane
        self.next_due: float | None = None  # when the next job of these lanes is due
        self._for: Any = None
        self._at = 0.0
        self._good_for = 0.0

    def forget(self) -> None:
        self._for = None

    def fresh(self, worker: WorkerRow, queues: Collection[str] | None, now: float) -> bool:
        return self._for == _takes(worker, queues) and 0 <= now - self._at < self._good_for

    def refresh(
        self,
        store: TableStore,
        db: Db,
        worker: WorkerRow,
        queues: Collection[str] | None,
        now: float,
    ) -> None:
        """Look again, from the bottom."""
        began = time.perf_counter()
        heads: dict[int, float] = {}
        loose: dict[int, float | None] = {}  # lanes with rows of their own: when the next is due
        for row in db.execute(sql.busy_lanes, {"now": now}):
            number, first, run_at = row["lane"], row["first"], row["run_at"]
            head = made_at(first) if run_at is None else run_at
            heads[number] = min(head, heads.get(number, head))
            if run_at is not None:
                loose[number] = row["next_due"]
        self.lanes = sorted(
            # Ageing: a minute of waiting is worth one step of priority. Sorted ascending.
            ClaimableLane(
                -(lane.priority + max(0.0, now - head) / 60), head, number, lane, number in loose
            )
            for number, head in heads.items()
            if can_run(worker, queues, lane := store.lane(db, number))
        )
        times = (loose.get(lane.hash) for lane in self.lanes)
        self.next_due = min((at for at in times if at is not None), default=None)
        self._for = _takes(worker, queues)
        self._at = now
        self._good_for = max(_FRESH_SECONDS, (time.perf_counter() - began) * _SHARE)


def _takes(worker: WorkerRow, queues: Collection[str] | None) -> tuple[object, ...]:
    """What decides which lanes a worker may be handed jobs from: see `can_run`."""
    return worker.app, worker.tasks, worker.tags, queues
