"""Schedules in a file: a decision and its jobs are one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.brokers.sqlite.enqueuing import SqliteIntake
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.enqueue_packing import packed
from penstock.brokers.tables.job_actions import JobActions
from penstock.brokers.tables.scheduling import ScheduleRows
from penstock.schedules.schedule import Decision, Schedule


class SqliteSchedules(ScheduleRows[SqliteStore]):
    """Decide, beside what every store in tables does."""

    def __init__(self, store: SqliteStore, jobs: JobActions, intake: SqliteIntake) -> None:
        super().__init__(store, jobs)
        self._intake = intake

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        with self.store.writing() as db:
            handed = packed([decision.job for decision in decisions if decision.job is not None])
            change = Change(self.store, db, self.clock.now())
            store_jobs = partial(self._intake.enqueue_within, change, *handed)
            held = self.decide(db, schedule, decisions, store_jobs)
        if held:
            self.store.notify()
        return held
