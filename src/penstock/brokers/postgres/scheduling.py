"""Schedules in PostgreSQL: a decision and its jobs are one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from penstock.brokers.postgres.enqueuing import PostgresIntake, enqueue_singles
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.job_actions import JobActions
from penstock.brokers.tables.scheduling import ScheduleRows
from penstock.schedules.schedule import Decision, Schedule


class PostgresSchedules(ScheduleRows[PostgresStore]):
    """As in every store in tables; its jobs are stored by the intake."""

    def __init__(self, store: PostgresStore, jobs: JobActions, intake: PostgresIntake) -> None:
        super().__init__(store, jobs)
        self._intake = intake

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        jobs = [decision.job for decision in decisions if decision.job is not None]
        new_jobs, now = self._intake.pack(jobs, None)
        lanes = self._intake.put_lanes(new_jobs)
        with self.store.writing() as db:
            store_jobs = partial(enqueue_singles, db, new_jobs.singles, now)
            held = self.decide(db, schedule, decisions, store_jobs)
        if held:
            self.store.forget_claimable(lanes)
            self.store.notify()
        return held

    def all(self) -> list[Schedule]:
        # One statement without a transaction: every worker calls this again and again.
        with self.store.connection() as connection:
            return self.within(PostgresDb(connection))
