"""What a producer and a worker need: hand over, claim, settle, and what keeps leases honest."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from penstock.app.clock import AnyClock
from penstock.broker.position import BEGINNING, Position
from penstock.broker.traits import Traits
from penstock.broker.values import Batch, Claimed, Enqueued, Renewed, Settlement, Wanted
from penstock.broker.views import Count, Event, Note, Why, WorkerRow
from penstock.flows.flow import Flow
from penstock.job import Job, Parcel


class Core(Protocol):
    """What a producer and a worker need: hand over, claim, settle, and what keeps leases honest."""

    clock: AnyClock

    traits: Traits

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        """Store all of these jobs, or none.

        An id that was stored before, even if its job has ended since, is left as it is; so is the
        standing job of a unique key. An id older than the retention, or more than a minute ahead of
        the store's clock, is refused. With `batch`, the rows count on from `batch.count`: another
        count than the store's is refused, and no jobs at all asks for the count. `connection` joins
        the caller's transaction, where the store can; another database is refused.

        With `flow`, these are the jobs of its nodes (their bodies say of which), and those of a
        node with needs, or of `flow.WAIT_TASK`, are stored as `waiting`. If one of the ids was
        stored before, all were.
        """
        ...

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        """Hand out due jobs to these workers: ready -> running, attempt + 1, held by a lease.

        First `settlements` are applied, as `settle` does, in the same round trip.

        Only tasks and versions that the worker declares (a job's version at most the worker's), and
        jobs that require tags only where the worker has them all; none that a rule keeps back, and
        no more than its limits leave, whoever else claims at the same time.
        Higher priority first, with ageing: a minute of waiting is worth one step of priority.
        Between equals the oldest first; first in, first out per lane. A queue under an order is
        handed out by key in turn, and under "wait" and "skip" one job of a key at a time, by id,
        whoever else claims: see `penstock.rules.key_order`. A job that lapsed before, and an
        at-most-once job, come in a lease of their own. Registers or renews the workers' rows.
        """
        ...

    def settle(self, pairs: Sequence[Settlement]) -> list[bool]:
        """Apply outcomes to claimed jobs; False for each that this attempt no longer holds.

        State, counters, result, unique key and history are one transaction. A lapse beyond the
        crash budget is `failed: crashed`; of an at-most-once job it is `failed: lost` at once. A
        cancelled job is not run again: an outcome that leads to READY ends it as cancelled.

        A job of a flow that has ended, however it ended, is counted in the same transaction. When
        the last job of a node has ended, whoever needs it has one need less; without needs left
        its jobs are ready. If a job of a need did not succeed, they are cancelled instead with the
        reason "needs", and count as ended in turn, unless the node's `on_failure` is "continue".

        What an outcome spawned is stored in the same transaction, unless the job ends without
        success. The nodes of its flow are added to the job's own, and whoever needs the job's node
        needs those of them, too, that none of the others does.
        """
        ...

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        """Keep these workers alive for another lease.

        `holding` names the jobs that the (one) worker knows of: anything else that the store holds
        for it is put back uncounted, so that a claim whose answer was lost strands nothing.
        """
        ...

    def note(self, job: Job[Any], note: Note) -> bool:
        """Keep a note of a running job; False if this attempt no longer holds it.

        One of the kind "state" is a JSON object, and is merged into the state of the job's flow as
        it stands at that moment (see flows.state); False also if there is no such flow any more.
        """
        ...

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        """Sleep until there may be something to claim: True on a hint, False at the timeout."""
        ...

    def wake(self) -> None:
        """End every `wait` of this process, or the next one if none is under way.

        A worker's threads call it when they have something for the one that waits, and so do
        signal handlers.
        """
        ...

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        """Make ready again what dead workers held, with a lapse each; returns how many jobs.

        Dead are the workers whose lease ran out. `by` is a worker that looks: it acts only if it
        was itself alive throughout its last lease, so that the first one back after an outage does
        not give up everybody else. `dead` names one worker known to be gone, and `started` those of
        its jobs that had begun: only these count a lapse, the others are put back uncounted.
        """
        ...

    def prune(self, before: float) -> int:
        """Forget what ended before this time: history, kept jobs, notes, ids; returns the rows.

        History that a lake has not yet stays longer, and so do jobs that are read out of it: see
        `penstock.broker.lake_mark`.
        """
        ...

    def gauge(self) -> int:
        """Write down where jobs stand, a row per queue; returns how many rows.

        Once a minute, whoever calls and however often: the first one does it, and the rows are of
        that whole minute. A queue that holds nothing has none, but for one of zeros when it had one
        before.
        """
        ...

    def get(self, job_id: str) -> Job[Any] | None:
        """The job wherever it is now, ended ones included while they are kept."""
        ...

    def count(self) -> list[Count]:
        """Where jobs stand, per queue and task; costs the same for a million jobs as for ten."""
        ...

    def history(
        self,
        after: Position | None = BEGINNING,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | Collection[str] | None = None,
        before: Position | None = None,
    ) -> list[Event]:
        """What happened, in the order it was committed.

        A reader that goes on from the last position it saw never misses a row. Refused if a
        position is none of this store's, or `after` is one that its history has not come to.
        `after=None`: the last ones as they stand now, gauges left out, oldest first, for people to
        look at. Of the whole history these can be the last of one `kind`, gauges too, or of
        several that are not attempts, and those `before` a position: rare kinds cost the same
        among a million attempts.
        """
        ...

    def why(self, job_id: str) -> Why:
        """Why the job is where it is."""
        ...

    def close(self) -> None: ...
