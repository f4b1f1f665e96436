"""The schedules of the memory broker: a dictionary by name; decisions are fenced by the revision.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.broker.checks import check_name, check_no_path
from penstock.broker.values import Action
from penstock.brokers.memory.store import MemoryStore
from penstock.job import Job
from penstock.schedules.schedule import Decision, Schedule, decided, event_data, holds, replaced


class MemorySchedules:
    """Every schedule as it is kept."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept = store.schedules

    def put(self, schedule: Schedule, author: str, reason: str) -> Schedule:
        check_name("schedule", schedule.name)
        check_no_path("task", schedule.job.task)
        before = self._kept.get(schedule.name)
        after = replaced(before, schedule, self._store.clock.now())
        if after is not before:
            self._kept[schedule.name] = after
            # Workers then read their timetables anew.
            self._store.rules_version += 1
            self._record(schedule.name, Decision(says="put", author=author, reason=reason))
        return after

    def clear(self, name: str, author: str, reason: str) -> bool:
        if self._kept.pop(name, None) is None:
            return False
        self._record(name, Decision(says="removed", author=author, reason=reason))
        return True

    def decide(
        self,
        schedule: Schedule,
        decisions: Sequence[Decision],
        enqueue: Callable[[list[Job[Any]]], object],
        act: Callable[[Action, list[str], str, str], object],
    ) -> bool:
        stored = self._kept.get(schedule.name)
        if stored is None or not holds(stored, schedule):
            return False
        enqueue([decision.job for decision in decisions if decision.job is not None])
        for decision in decisions:
            if decision.cancels is not None:
                act("cancel", [decision.cancels], f"schedule {schedule.name}", "overlap")
            self._record(schedule.name, decision)
        self._kept[schedule.name] = decided(stored, decisions, self._store.clock.now())
        return True

    def all(self) -> list[Schedule]:
        return [self._kept[name] for name in sorted(self._kept)]

    def _record(self, name: str, decision: Decision) -> None:
        data = event_data(name, decision, self._store.clock.now())
        self._store.record("schedule", decision.job, data=data)
