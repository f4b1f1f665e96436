"""Limits: what runs and what started lately, as the tables have it in one transaction.

What runs is counted by leases and rows, lapsed ones until they are recovered. It is read once, when
this is made: what a claim takes afterwards is counted by `Limits` itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.rows import SETTLED
from penstock.job import Lane
from penstock.rules.limits import Limits, Use
from penstock.rules.rule import Rule, RuleKind

_AHEAD_SECONDS = 1.0  # a start so far in the future is one of before a clock was set back


class Usage:
    """What stands against the limits of a store."""

    def __init__(self, store: TableStore, db: Db, now: float) -> None:
        self._store = store
        self._db = db
        self._now = now
        self._lease_time = store.lease_time()
        self._running = self._read_running()

    def _read_running(self) -> Counter[tuple[Lane, str, str | None]]:
        running: Counter[tuple[Lane, str, str | None]] = Counter()
        db, store = self._db, self._store
        for row in db.execute(store.sql.running_leases).fetchall():
            marks = row["marks"]
            held = len(marks) - marks.count(SETTLED)
            running[store.lane(db, row["lane"]), row["worker"], None] += held
        for row in db.execute(store.sql.running_rows).fetchall():
            running[store.lane(db, row["lane"]), row["worker"], row["key"]] += row["jobs"]
        return running

    def limits(self, rules: list[Rule]) -> Limits:
        return Limits(rules, self.use_of, self._lease_time)

    def use_of(self, rule: Rule, key: str | None) -> Use:
        """What stands against a limit, of this key or in all."""
        running = sum(self.holders(rule, key).values())
        if rule.rate is None:
            return Use(running, ())
        rows = self._db.execute(self._store.sql.starts, limit_place(rule, key)).fetchall()
        return Use(running, [(self._at(row), row["jobs"]) for row in rows])

    def _at(self, row: Any) -> float:
        """When it was, in the time that leases run in now."""
        if row["boot"] != self._store.boot:
            return self._lease_time - max(0.0, self._now - row["made_at"])
        return self._lease_time if row["at"] > self._lease_time + _AHEAD_SECONDS else row["at"]

    def holders(self, rule: Rule, key: str | None) -> dict[str, int]:
        """How many jobs under this limit each worker holds."""
        found: Counter[str] = Counter()
        for (lane, worker, of_key), jobs in self._running.items():
            if (
                rule.queue in {None, lane.queue}
                and rule.task in {None, lane.task}
                and key in {None, of_key}
            ):
                found[worker] += jobs
        return {worker: jobs for worker, jobs in found.items() if jobs}


class LimitStanding:
    """How due jobs fare under the rules and limits of a store: for counting them."""

    def __init__(self, store: TableStore, db: Db, now: float, rules: list[Rule]) -> None:
        self._store = store
        self._db = db
        self._parameters = {"now": now}
        self._limits = Usage(store, db, now).limits(rules) if limited(rules) else None
        self._by_job = any(rule.by_job for rule in rules)
        self._per_key = any(rule.per_key for rule in rules)

    def sort(self, due: Mapping[int, int]) -> Iterator[tuple[Lane, int, int, int]]:
        """Of each lane with so many due jobs, how many are paused, limited and ready."""
        db, store, paused = self._db, self._store, Counter[int]()
        if self._by_job:
            for row in db.execute(store.sql.count_held, self._parameters).fetchall():
                paused[row["lane"]] = row["jobs"]
        by_key: defaultdict[int, dict[str, int]] = defaultdict(dict)
        if self._per_key:
            for row in db.execute(store.sql.count_by_key, self._parameters).fetchall():
                by_key[row["lane"]][row["key"]] = row["jobs"]
        lanes = [(store.lane(db, number), number) for number in due]
        if self._limits is not None:  # they give what room there is in this order
            lanes.sort(key=lambda each: (each[0].queue, each[0].task, each[1]))
        for lane, number in lanes:
            held = min(paused[number], due[number]) if number in paused else 0
            left = due[number] - held
            ready = left if self._limits is None else self._room(lane, left, by_key[number])
            yield lane, held, left - ready, ready

    def _room(self, lane: Lane, due: int, by_key: Mapping[str, int]) -> int:
        limits = self._limits
        if limits is None:
            return due
        keyless = max(0, due - sum(by_key.values()))
        ready = 0
        for key, jobs in ((None, keyless), *by_key.items()):
            # What is counted here is not there any more for the other lanes that a limit covers.
            taken = max(0, min(jobs, due - ready, limits.room(lane, jobs).jobs))
            if key is not None:
                taken = max(0, min(taken, limits.room(lane, jobs, key).jobs))
            limits.took(lane, taken, key)
            ready += taken
        return ready


def limited(rules: list[Rule]) -> bool:
    """Whether any limit is in force."""
    return any(rule.kind is RuleKind.LIMIT for rule in rules)


def limit_place(rule: Rule, key: str | None) -> dict[str, Any]:
    """Where starts under a limit are kept, as parameters of `starts`."""
    return {
        "queue": rule.queue or "",
        "task": rule.task or "",
        "per_key": rule.per_key,
        "key": key or "",
    }
