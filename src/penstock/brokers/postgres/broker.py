"""PostgresBroker: its parts, and which of them does each verb.

`retried` is around every verb that may deadlock with another: what the server rolled back is tried
again. retrying.py has the three cases.
"""

from __future__ import annotations

from functools import partial

from penstock.app.clock import AnyClock
from penstock.broker.records import Records
from penstock.broker.values import RETENTION_SECONDS
from penstock.brokers.postgres.claiming import PostgresClaims
from penstock.brokers.postgres.enqueuing import PostgresIntake
from penstock.brokers.postgres.errors import as_penstock_errors
from penstock.brokers.postgres.job_actions import PostgresJobActions
from penstock.brokers.postgres.moving import PostgresMoving
from penstock.brokers.postgres.pruning import PostgresPruning
from penstock.brokers.postgres.reading import PostgresLooks
from penstock.brokers.postgres.recovery import PostgresRecovery
from penstock.brokers.postgres.renewing import PostgresRenewals
from penstock.brokers.postgres.retrying import retried
from penstock.brokers.postgres.rules import PostgresRules
from penstock.brokers.postgres.scanning import PostgresScans
from penstock.brokers.postgres.scheduling import PostgresSchedules
from penstock.brokers.postgres.settling import PostgresSettlements
from penstock.brokers.postgres.staging import PostgresStaging
from penstock.brokers.postgres.store import PostgresStore
from penstock.brokers.postgres.transaction import PostgresTransaction
from penstock.brokers.tables.audit import audit
from penstock.brokers.tables.lake_marks import MarkRows
from penstock.brokers.tables.plain_records import PlainRecordRows
from penstock.brokers.tables.signalling import Signals
from penstock.brokers.tables.whole_flows import WholeFlows


class PostgresBroker:
    """A Broker over a schema of its own in a PostgreSQL database."""

    def __init__(  # noqa: PLR0915  a line for each verb
        self,
        url: str,
        clock: AnyClock | None = None,
        *,
        retention: float = RETENTION_SECONDS,
        create: bool = True,
    ) -> None:
        self.store = store = PostgresStore(url, clock, retention=retention, create=create)
        self.clock = store.clock
        self.traits = store.traits

        self._intake = intake = PostgresIntake(store)
        settlements = PostgresSettlements(store, intake.store_spawned)
        self._settle_within = settlements.settle_within
        claims = PostgresClaims(store, settlements)
        renewals = PostgresRenewals(store, settlements.settle_within)
        moving = PostgresMoving(store, renewals)
        jobs = PostgresJobActions(store)
        flows = WholeFlows(store, jobs)
        schedules = PostgresSchedules(store, jobs, intake)
        marks = MarkRows(store)
        rules = PostgresRules(store)
        plain = partial(PlainRecordRows, store, rules)
        records = Records(rules, schedules, marks, plain)
        looks = PostgresLooks(store)
        staging = PostgresStaging(store, intake)
        scans = PostgresScans(store, looks.count, looks.workers)

        # Core
        self.enqueue = intake.enqueue
        self.claim = claims.claim
        self.settle = claims.settle
        self.renew = renewals.renew
        self.note = retried(settlements.note)
        self.wait = claims.wait
        self.wake = store.listener.wake
        self.recover = retried(PostgresRecovery(store, claims, settlements.settle_within).recover)
        self.prune = PostgresPruning(store, marks, staging.discard).prune
        self.gauge = scans.gauge
        self.get = looks.get
        self.get_many = looks.get_many
        self.count = looks.count
        self.history = looks.history
        self.why = looks.why

        # Control
        self.act = retried(flows.act)
        self.signal = retried(Signals(store, jobs).signal)
        self.put = retried(records.put)
        self.clear = retried(records.clear)
        self.decide_schedule = retried(schedules.decide_schedule)
        self.audit = retried(partial(audit, store))

        # Look
        self.find = looks.find
        self.notes = looks.notes
        self.flow = flows.flow
        self.flows = flows.flows
        self.outputs = looks.outputs
        self.records = records.records
        self.workers = looks.workers

        # Bulk
        self.stage = staging.stage
        self.commit_write = staging.commit_write
        self.discard = staging.discard
        self.reach = scans.reach
        self.slices = scans.slices
        self.scan = scans.scan

        # Capabilities
        self.join = intake.join
        self.take_out = retried(moving.take_out)
        self.bring_in = retried(moving.bring_in)
        self.limit_uses = looks.limit_uses

    def begin(self) -> PostgresTransaction:
        """A transaction that is committed together with a job's end: the capability "begins"."""
        with as_penstock_errors(self.store.where):
            return PostgresTransaction(self.store, self._settle_within)

    def close(self) -> None:
        self.store.listener.close()
        self._intake.close()
        self.store.close_connections()
