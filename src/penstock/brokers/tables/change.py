"""The writes of one transaction, collected and sent together at its end, one statement per kind.

Collected because a round trip may cost as much as the work. So nothing may be read back before
`finish`; a verb that has to (a claim, after jobs expired) finishes first and may then go on with
the same change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.brokers.tables import flow_needs
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.kept_secrets import kept_rows
from penstock.brokers.tables.rows import packed_again, text_of
from penstock.enqueue.ids import FIRST_LASTING, to_bytes
from penstock.flows.spawn_links import spawned_event
from penstock.job import Job, Outcome, State

_SUCCESS_WIDTH = 10


class EventRow(NamedTuple):
    """A row of history as the statement `event` takes it, but for successes out of parcels."""

    kind: str
    at: float
    job: bytes | None = None  # or the flow, of the kind "flow"
    lane: int | None = None
    attempt: int | None = None
    failures: int = 0
    lapses: int = 0
    repeats: int = 0
    state: State | None = None
    reason: str | None = None
    key: str | None = None
    enqueued_at: float | None = None
    run_at: float | None = None
    started_at: float | None = None
    worker: str | None = None
    tags: str | None = None
    error: str | None = None
    body: bytes | None = None
    result: bytes | None = None
    data: bytes | None = None
    keep_until: float | None = None


class Change:
    """Made by every verb that writes: `finish` goes last before the commit."""

    __slots__ = (
        *("db", "deleted", "ended", "ends", "events", "freed", "lost", "marked", "moved", "now"),
        *(
            "not_done",
            "readied",
            "rows",
            "spawned",
            "sql",
            "store",
            "successes",
            "tally",
            "unclaimed",
        ),
        *("unreported", "woken"),
    )

    def __init__(self, store: TableStore, db: Db, now: float) -> None:
        self.store = store
        self.sql = store.sql
        self.db = db
        self.now = now
        self.tally: Counter[tuple[int, State, int]] = Counter()
        self.events: list[Any] = []  # the fields of `EventRow`s, row after row
        self.successes: list[Any] = []  # and of succeed.sql: the hot path binds half as many
        self.moved: list[dict[str, Any]] = []  # rows of jobs, as `settle` takes them
        self.rows: list[dict[str, Any]] = []  # new ones, for `enqueue`
        # By lane: jobs whose claims out of parcels are undone, with their stored ids.
        self.unclaimed: defaultdict[int, list[tuple[bytes, Job[Any]]]] = defaultdict(list)
        self.deleted: list[tuple[bytes]] = []  # ids of rows to delete
        # Of those, ids of jobs that did not succeed: if they are lasting ones, they may come again.
        self.not_done: list[tuple[bytes]] = []
        self.freed: list[dict[str, Any]] = []  # unique keys
        self.marked: list[tuple[bytes, int]] = []  # leases, with what is left of them
        self.ended: list[tuple[int]] = []  # leases of which nothing is left
        self.ends: flow_needs.Ends = {}  # jobs of flows that ended, by their nodes
        self.lost: set[flow_needs.Place] = set()  # where jobs that ended without success are gone
        # What ended, waits or runs again, spawned: its place in a flow, and the outcome.
        self.spawned: list[tuple[flow_needs.Place | None, Outcome]] = []
        self.unreported: list[Job[Any]] = []  # for `Traits.ended`, as they stand now
        self.woken: set[int] = set()  # once finished, lanes whose jobs waited for others until now
        self.readied = False  # once finished, whether anything is ready that was not

    def free(self, job: Job[Any], raw: bytes, until: str) -> None:
        """Release the job's unique key, if it is held until this."""
        if job.unique is not None:
            self.freed.append({"key": job.unique.key, "job": raw, "until": until})

    def forget_lasting(self, raw: bytes) -> None:
        """The job is gone and was not done: forget its id, if that is a lasting one."""
        if raw >= FIRST_LASTING:
            self.not_done.append((raw,))

    def take_unique(self, job: Job[Any], raw: bytes) -> bool:
        """Take the job's unique key; False if another job holds it."""
        unique = job.unique
        if unique is None:
            return True
        taken = self.db.execute(
            self.sql.take_unique,
            {
                "key": unique.key,
                "job": raw,
                "until": unique.until,
                "expires_at": None if unique.seconds is None else self.now + unique.seconds,
                "now": self.now,
            },
        )
        return taken.rowcount > 0

    def member_ended(self, body: bytes, *, good: bool) -> None:
        """A job ended; if it is in a flow, its node is counted when the change is finished."""
        place = flow_needs.place_of(body)
        if place is not None:
            jobs, bad = self.ends.get(place, (0, 0))
            self.ends[place] = jobs + 1, bad + (not good)

    def members_succeeded(self, bodies: Sequence[bytes]) -> None:
        """The same for many jobs that succeeded; mostly none is in a flow, or all in one node."""
        for place, jobs in flow_needs.places_of(bodies):
            before, bad = self.ends.get(place, (0, 0))
            self.ends[place] = before + jobs, bad

    def spawn(self, job: Job[Any], outcome: Outcome) -> None:
        """Store what this job spawned, when the change is finished."""
        if outcome.spawned:
            # Of one that waits for them itself, nobody else has to wait for them.
            waits = outcome.state is State.WAITING
            place = None if waits else flow_needs.place_of(job.body)
            self.spawned.append((place, outcome))
            self.add_event("event", spawned_event(outcome), job, job.lane.hash)

    def add_event(self, kind: str, data: bytes, job: Job[Any] | None, lane: int | None) -> None:
        """A history row that is not an attempt: an action and its author, or progress of a job."""
        if job is None:
            self.events += EventRow(kind, self.now, data=data)
        else:
            self.events += EventRow(
                kind,
                self.now,
                job=to_bytes(job.id),
                lane=lane,
                attempt=job.attempt,
                failures=job.failures,
                lapses=job.lapses,
                repeats=job.repeats,
                state=job.state,
                reason=job.reason,
                key=job.key,
                enqueued_at=job.enqueued_at,
                run_at=job.run_at,
                worker=job.worker,
                tags=text_of(job.tags),
                data=data,
            )

    def flow_event(self, flow: bytes, data: bytes) -> None:
        """An event of a flow as a whole."""
        self.events += EventRow("flow", self.now, job=flow, data=data)

    def write_places(self) -> None:
        """Write rows of jobs, unique keys and leases, so that they can be read."""
        sql, db = self.sql, self.db
        kept = kept_rows(self.moved, self.rows)
        parcels = [row for each in self.unclaimed.items() for row in packed_again(*each)]
        self.unclaimed.clear()
        for statement, parameters in (
            (sql.settle, self.moved),
            (sql.enqueue, self.rows),
            (sql.keep_secrets, kept),
            (sql.enqueue_parcel, parcels),
            (sql.delete, self.deleted),
            (sql.forget_lasting, self.not_done),
            (sql.free_unique, self.freed),
            (sql.mark_lease, self.marked),
            (sql.end_lease, self.ended),
        ):
            if parameters:
                db.executemany(statement, parameters)
                parameters.clear()

    def finish(self) -> None:
        """Write everything: rows, flows, history, and a count per lane, state and minute."""
        sql, db = self.sql, self.db
        self.write_places()
        if self.lost:
            flow_needs.give_up(self)
        if self.ends:
            flow_needs.count_ends(self)
        if self.successes:
            db.insert(sql.succeed, _SUCCESS_WIDTH, self.successes)
            self.successes.clear()
        if self.events:
            db.insert(sql.event, len(EventRow._fields), self.events)
            self.events.clear()
        counts = [(*place, jobs) for place, jobs in self.tally.items() if jobs]
        self.readied = self.readied or any(
            jobs > 0 and state is State.READY for _, state, _, jobs in counts
        )
        if counts:
            db.executemany(sql.tally, counts)
        self.tally.clear()

    def after_commit(self) -> None:
        """Wake workers for jobs that waited for others and are ready now; report ends."""
        if self.woken:
            self.store.forget_claimable()
            self.store.notify(self.woken)
        if self.unreported:
            self.report_ends()

    def report_ends(self) -> None:
        """After the commit: report what ended without a worker's word."""
        if self.store.traits.ended is not None:
            for job in self.unreported:
                self.store.traits.ended(job)
        self.unreported.clear()
