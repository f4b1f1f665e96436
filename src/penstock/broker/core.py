"""Core: what producers and workers call. Enqueue, claim, settle; leases; upkeep; reading a job."""

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
    """What producers and workers call."""

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

        Sending again is safe: an id that was stored before, even if its job has ended since, is
        left as it is. So is the job that holds a unique key. An id older than the retention, or
        more than a minute ahead of the store's clock, is refused.

        `batch` counts the rows of a bulk enqueue: these continue from row `batch.count`. Refused if
        the store has another count; without jobs, the answer is the store's count.

        `connection` writes in the caller's own transaction (the capability "joins"); a connection
        to another database is refused.

        `flow` declares the nodes that these jobs belong to (each body names its node). Jobs of a
        node with needs, and jobs of `flow.WAIT_TASK`, are stored as waiting. If some of the ids
        were stored before and others not, all are refused.
        """
        ...

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        """Hand out due jobs to these workers: ready -> running, attempt + 1, held by a lease.

        First `settlements` are applied, as `settle` does, in the same round trip. The workers' rows
        are registered, or renewed.

        A worker is handed only jobs of its app, of tasks that it declares, of a version at most the
        one that it declares, and whose `runs_on` tags it all has. Nothing that a rule holds back is
        handed out, and no more than limits allow, however many claim at the same time.

        Order: higher priority first; each minute of waiting counts as one step of priority.
        Within a queue the oldest of equals first, and within a lane first in, first out. Queues of
        equal priority share what there is room for (see `rules.queue_turns`). A queue under an
        order rule is handed out by key in turn; with "wait" and "skip" one job of a key at a time,
        by id, with "batch" the first few of a key together (see `penstock.rules.key_order`). A
        store without the capability "order across buckets" keeps this order within each bucket of
        ids.

        A job that lapsed before, and an at-most-once job, come in a lease of their own. Of the jobs
        that were spared a lapse (see `recover`) one claim hands out at most 128.

        If these workers could take more, the answer says when the next job falls due for them: no
        hint is sent at that time.
        """
        ...

    def settle(self, pairs: Sequence[Settlement]) -> Sequence[bool | None]:
        """Apply outcomes to claimed jobs; False for each that this attempt no longer holds.

        None, of a store on several servers: the one that the job is on is away, others are not, and
        this outcome has to be sent again. Of a single outcome that is an error.

        State, counters, result, unique key and history change in one transaction;
        `broker.settlement.settled` decides them. A lapse beyond the crash budget is `failed:
        crashed`; a lapse of an at-most-once job is `failed: lost` at once. A job that somebody
        cancelled is not run again: an outcome that leads to READY ends it as cancelled.

        A job of a flow that ended, with or without success, is counted in the same transaction.
        When the last job of a node has ended, every node that needs it has one need less; a node
        without needs left is decided: its jobs become ready, or, if a job of a need did not succeed
        and the node's `on_failure` is not "continue", they are cancelled with the reason "needs"
        and count as ended in turn.

        Jobs that the outcome spawned are stored in the same transaction, unless the job ended
        without success. The nodes of its flow are added to the job's own flow, and nodes that need
        the job's node need the last of the new ones as well.

        An outcome that leads to WAITING spawns jobs that the job itself waits for, uncounted. The
        last node of its flow is the job's own, named after the job, and needs some of the others:
        stored as a new node, or, if the job is in a flow, these needs are added to the node that it
        has, which waits again. It is made ready however they end.
        """
        ...

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        """Keep these workers alive for another lease.

        `holding` names the jobs that the (one) worker knows of. Others that the store holds for it
        are put back uncounted: so a claim whose answer was lost strands nothing.
        """
        ...

    def note(self, job: Job[Any], note: Note) -> bool:
        """Keep a note of a running job; False if this attempt no longer holds it.

        A note of the kind "state" is a JSON object that is merged into the current state of the
        job's flow (see `flows.state`); False as well if that flow is gone.
        """
        ...

    def wait(self, queues: Collection[str] | None, timeout: float) -> bool:
        """Sleep until something may have been made ready: True on a hint, False at the timeout.

        A job that was enqueued for a later time is a hint when it is stored, and none when it falls
        due: `claim` answers when that is.
        """
        ...

    def wake(self) -> None:
        """End every `wait` of this process, or the next one if none is under way.

        Called from other threads and from signal handlers.
        """
        ...

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        """Make jobs of dead workers ready again; returns how many jobs.

        Dead is a worker whose lease ran out. `by` names the worker that calls: it recovers others
        only if it was itself alive throughout its last lease, so that after an outage the first one
        back does not recover everybody else's jobs.

        Of a worker whose lease ran out, the jobs that its last renewal named as begun count a
        lapse, and at-most-once jobs. The others are spared: their claims are undone, and they keep
        their place in the queue. A job that is spared three times in a row counts a lapse.

        `dead` names one worker that is known to be gone. `started` are those of its jobs that had
        begun: only these count a lapse, the claims of the others are undone. As a mapping,
        `started` says of each how it ended; that becomes its error.
        """
        ...

    def prune(self, before: float) -> int:
        """Delete what ended before this time: history, ended jobs, notes, ids; returns the rows.

        History that a lake does not have yet is kept longer, and so are the jobs that are read from
        it: see `broker.lake_mark`.
        """
        ...

    def gauge(self) -> int:
        """Write a history row per queue that says how many jobs are where; returns the rows.

        Once a minute, however many call it: the first call of a minute writes, the rows carry the
        start of that minute. An empty queue has no row, but for one of zeros after its last.
        """
        ...

    def get(self, job_id: str) -> Job[Any] | None:
        """The job as it is now, ended ones included while they are kept."""
        ...

    def count(self) -> list[Count]:
        """How many jobs are where, per queue and task; costs the same for ten jobs or a million."""
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
        """The rows of the history after a position, in the order they were committed.

        A reader that continues from the last position it saw never misses a row. Refused if a
        position is none of this store's, or `after` is ahead of its history.

        `after=None`: the last rows, oldest first, without gauges. These may be narrowed to one
        `kind` (also gauges), or to several kinds that are not attempts, and to rows `before` a
        position: rare kinds cost the same among a million attempts.
        """
        ...

    def why(self, job_id: str) -> Why:
        """Why the job is in its state: a cause for programs, a sentence for people."""
        ...

    def close(self) -> None: ...
