"""SqliteBroker: the parts that a file's store is made of, and which of them does each verb."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from penstock.app.clock import AnyClock
from penstock.broker.records import Records
from penstock.broker.values import RETENTION_SECONDS
from penstock.brokers.sqlite.claiming import SqliteClaims
from penstock.brokers.sqlite.enqueuing import SqliteIntake
from penstock.brokers.sqlite.errors import as_penstock_errors
from penstock.brokers.sqlite.moving import SqliteMoving
from penstock.brokers.sqlite.pruning import SqlitePruning
from penstock.brokers.sqlite.renewing import SqliteRenewals
from penstock.brokers.sqlite.scanning import SqliteScans
from penstock.brokers.sqlite.scheduling import SqliteSchedules
from penstock.brokers.sqlite.staging import SqliteStaging
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.sqlite.transaction import SqliteTransaction
from penstock.brokers.sqlite.waiting import SqliteWaiting
from penstock.brokers.tables.audit import audit
from penstock.brokers.tables.gauging import gauge
from penstock.brokers.tables.job_actions import JobActions
from penstock.brokers.tables.lake_marks import MarkRows
from penstock.brokers.tables.plain_records import PlainRecordRows
from penstock.brokers.tables.reading import Looks
from penstock.brokers.tables.recovery import Recovery
from penstock.brokers.tables.rule_rows import RuleRows
from penstock.brokers.tables.settling import Settlements
from penstock.brokers.tables.signalling import Signals
from penstock.brokers.tables.whole_flows import WholeFlows


class SqliteBroker:
    """A Broker over one file, which is made if it is not there."""

    def __init__(  # noqa: PLR0915  a line for each verb
        self,
        path: str | Path,
        clock: AnyClock | None = None,
        *,
        retention: float = RETENTION_SECONDS,
        create: bool = True,
    ) -> None:
        self.store = store = SqliteStore(path, clock, retention=retention, create=create)
        self.clock = store.clock
        self.traits = store.traits
        self.traits.places = partial(_places, store.path)

        intake = SqliteIntake(store)
        settlements = Settlements(store, intake.store_spawned)
        renewals = SqliteRenewals(store, settlements.settle_within)
        claims = SqliteClaims(store, settlements.settle_within, renewals)
        waiting = SqliteWaiting(store)
        jobs = JobActions(store)
        flows = WholeFlows(store, jobs)
        schedules = SqliteSchedules(store, jobs, intake)
        marks = MarkRows(store)
        rules = RuleRows(store)
        records = Records(rules, schedules, marks, partial(PlainRecordRows, store, rules))
        looks = Looks(store)
        staging = SqliteStaging(store, intake)
        moving = SqliteMoving(store, intake, renewals)
        scans = SqliteScans(store)

        # Core
        self.enqueue = intake.enqueue
        self.claim = claims.claim
        self.settle = settlements.settle
        self.renew = renewals.renew
        self.note = settlements.note
        self.wait = waiting.wait
        self.wake = waiting.wake
        self.recover = Recovery(store, settlements.settle_within).recover
        self.prune = SqlitePruning(store, marks).prune
        self.gauge = partial(gauge, store, looks.count, looks.workers)
        self.get = looks.get
        self.get_many = looks.get_many
        self.count = looks.count
        self.history = looks.history
        self.why = looks.why
        self.close = waiting.close

        # Control
        self.act = flows.act
        self.signal = Signals(store, jobs).signal
        self.put = records.put
        self.clear = records.clear
        self.decide_schedule = schedules.decide_schedule
        self.audit = partial(audit, store)

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
        self.take_out = moving.take_out
        self.bring_in = moving.bring_in
        self.limit_uses = looks.limit_uses

        self._settle_within = settlements.settle_within

    def begin(self) -> SqliteTransaction:
        """A transaction of the file that ends with a job: the capability "begins"."""
        with as_penstock_errors(self.store.path):
            return SqliteTransaction(self.store, self._settle_within)


def _places(path: Path) -> dict[str, tuple[str, ...]]:
    # A copy has another inode, and one on another disk or machine mostly another device, too.
    found = path.stat()
    return {"": (f"{found.st_dev}:{found.st_ino}",)}
