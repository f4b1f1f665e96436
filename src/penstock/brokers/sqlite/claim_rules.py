"""What a claim may take where rules are in force: which lanes, how many, and which of their rows.

A claim without rules has none of this. One writer at a time makes it exact: what is counted here
cannot change before the claim is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.brokers.sqlite.claimable_lanes import ClaimableLane
from penstock.brokers.sqlite.key_turns import KeyTurns, Picked
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteDb, SqliteStore
from penstock.brokers.tables.db import Row
from penstock.brokers.tables.limit_usage import Usage, limit_place, limited
from penstock.job import Job, Lane
from penstock.rules.key_order import policies
from penstock.rules.limits import Room, slack_of
from penstock.rules.rule import Rule, rule_over


class ClaimUsage(Usage):
    """What stands against the limits, and is added to by a claim."""

    def write_down(self, started: Mapping[tuple[Rule, str | None], int]) -> None:
        """Remember what was started under rates, for as long as it counts."""
        for (rule, key), jobs in started.items():
            if rule.rate is None or not jobs:
                continue
            seconds = rule.rate[1]
            place = limit_place(rule, key)
            for row in self._db.execute(sql.starts, place).fetchall():
                at = self._at(row)
                if at <= self._lease_time - seconds - slack_of(seconds):
                    self._db.execute(sql.end_start, (row["id"],))
                elif at != row["at"]:  # of another boot, or of before a clock was set back
                    moved = (at, self._store.boot, row["id"])
                    self._db.execute(sql.move_start, moved)
            self._db.execute(
                sql.put_start,
                {
                    **place,
                    "boot": self._store.boot,
                    "at": self._lease_time,
                    "made_at": self._now,
                    "jobs": jobs,
                },
            )


class ClaimRules:
    """The rules and limits of one claim."""

    def __init__(self, store: SqliteStore, db: SqliteDb, rules: list[Rule], now: float) -> None:
        self._db = db
        self._rules = rules
        self._now = now
        self._by_job = [rule for rule in rules if rule.by_job]
        self._usage = ClaimUsage(store, db, now) if limited(rules) else None
        self._limits = None if self._usage is None else self._usage.limits(rules)
        self._free_in: float | None = None
        self.policies = policies(rules)  # of the queues that are handed out by key
        ruled = any(rule.tag is not None for rule in self._by_job)
        self._turning = KeyTurns(store, db, now, self._room_of, ruled=ruled)

    def most(self, lane: Lane, want: int) -> int:
        """How many jobs of this lane may be taken."""
        if want <= 0 or rule_over(self._rules, lane.queue, lane.task, self._now, lane.version):
            return 0
        if self._limits is None:
            return want
        room = self._limits.room(lane, want)
        if room.jobs <= 0:
            self._note(room)
        return room.jobs

    def by_job(self, lane: Lane) -> bool:
        """Whether jobs of this lane fare differently."""
        per_key = self._limits is not None and bool(self._limits.over(lane, per_key=True))
        return per_key or bool(self._over(lane))

    def _over(self, lane: Lane) -> list[Rule]:
        """The rules about single jobs of this lane."""
        return [
            rule
            for rule in self._by_job
            if rule.version in {None, lane.version} and rule.holds(lane.queue, lane.task, self._now)
        ]

    def due(self, offer: ClaimableLane, want: int) -> list[tuple[float, bytes]]:
        """The first due rows of a lane that nothing keeps back."""
        if not offer.loose:
            return []
        chosen: list[tuple[float, bytes]] = []
        # A key that is paused is full from the start: that is looked at before rules by tag are.
        left = {rule.key: 0 for rule in self._over(offer.lane) if rule.key and rule.tag is None}
        at: tuple[float, bytes] = (float("-inf"), b"")
        while len(chosen) < want:
            row = self._next_due(offer, at, [key for key, jobs in left.items() if jobs <= 0])
            if row is None:
                break
            at, key = (row["run_at"], row["id"]), row["key"]
            if key is not None and self._limits is not None:
                if key not in left:
                    room = self._limits.room(offer.lane, want, key)
                    left[key] = room.jobs
                    if room.jobs <= 0:
                        self._note(room)
                        continue
                left[key] -= 1
            chosen.append(at)
        return chosen

    def in_turn(
        self, offer: ClaimableLane, want: int, packed: int, cursors: dict[int, str]
    ) -> Picked:
        """Rows of a lane whose queue is handed out by key, and how many jobs without one."""
        policy = self.policies[offer.lane.queue]
        return self._turning.pick(offer, policy, want, packed, cursors)

    def _room_of(self, offer: ClaimableLane, want: int, key: str) -> int:
        if any(rule.key == key and rule.tag is None for rule in self._over(offer.lane)):
            return 0
        if self._limits is None:
            return want
        room = self._limits.room(offer.lane, want, key)
        if room.jobs <= 0:
            self._note(room)
        return room.jobs

    def _next_due(
        self, offer: ClaimableLane, after: tuple[float, bytes], full: list[str]
    ) -> Row | None:
        parameters = {
            "lane": offer.hash,
            "now": self._now,
            "run_at": after[0],
            "id": after[1],
            "full": msgspec.json.encode(full).decode(),
            "ruled": any(rule.tag is not None for rule in self._by_job),
        }
        return self._db.execute(sql.claim_picked, parameters).fetchone()

    def _note(self, room: Room) -> None:
        if room.free_in is not None and (self._free_in is None or room.free_in < self._free_in):
            self._free_in = room.free_in

    def took(self, lane: Lane, jobs: list[Job[Any]]) -> list[Job[Any]]:
        """Count these against their limits; as they are to be handed out."""
        limits = self._limits
        if limits is None or not jobs:
            return jobs
        for job in jobs:
            limits.took(lane, 1, job.key)
        within = limits.start_within(lane)
        if within is None:
            return jobs
        return [msgspec.structs.replace(job, start_within=within) for job in jobs]

    def finish(self) -> float | None:
        """Write down what was started; when more may start: a rate lets it, or a rule ends."""
        if self._usage is not None and self._limits is not None:
            self._usage.write_down(self._limits.started)
        times = [rule.until for rule in self._rules if rule.until is not None]
        if self._free_in is not None:
            times.append(self._now + self._free_in)
        return min(times, default=None)
