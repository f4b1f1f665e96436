"""Broker: what every store of jobs promises.

About twenty verbs, in the language of jobs. The conformance suite in tests/brokers, one file per
verb, runs against every broker and is the definition; a new verb costs a test file and every store.

    enqueue --> claim --> settle            and beside it, for workers that die:
       hand over   work       work             renew --> (silence) --> recover

A **lease belongs to a worker**: whatever a worker claimed is held while its row is renewed. Every
write by a worker is fenced by (job id, attempt): a stale one changes nothing and is told so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from penstock.app.clock import Clock
from penstock.broker.filter import Filter
from penstock.broker.lake_mark import Mark
from penstock.broker.slice import Reach, Selection, Slice
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.flows.flow import Flow, FlowPage, FlowRow, Gift
from penstock.job import Job, Outcome, Parcel
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Decision, Schedule

RETENTION_SECONDS = 14 * 86400.0  # how long what ended is kept, and ids are remembered
STAGED_SECONDS = 86400.0  # how long a write that nobody adds to or publishes is kept


class Batch(msgspec.Struct, frozen=True):
    """How far a bulk enqueue got: `count` rows under this id are stored."""

    id: str
    count: int = 0


class Enqueued(msgspec.Struct, frozen=True):
    """What became of an enqueue: all is stored, now or before, but for the `standing` ones."""

    known: frozenset[str] = frozenset()  # ids that were stored before, and were left as they are
    standing: Mapping[str, str] = {}  # not stored: id -> the job that holds its unique key
    batch: int = 0  # rows stored so far under the batch's id


class Renewed(msgspec.Struct, frozen=True):
    """What a worker hears when it renews."""

    cancelled: frozenset[str] = frozenset()  # jobs it holds that somebody asked to cancel
    lapsed: frozenset[str] = frozenset()  # its workers that had been given up in the meantime


class Transaction(Protocol):
    """A transaction of the broker's own database: a job's effects and its end commit together."""

    connection: Any  # the driver's own connection, inside the transaction

    def settle(self, job: Job[Any], outcome: Outcome) -> bool:
        """Apply the outcome and commit everything; False, and nothing, if the attempt is stale."""
        ...

    def rollback(self) -> None: ...

    def broken_by(self, error: BaseException) -> bool:
        """Whether this error, raised inside, is the store's: a lost connection, no room left.

        What the database says about the statements themselves is not.
        """
        ...


class Broker(Protocol):
    """Stores jobs and hands them out."""

    clock: Clock
    # Queues whose jobs need not be on the disk when enqueue or settle returns: a crash of the
    # machine may lose the last that were enqueued, and run the last that ended again.
    relaxed: frozenset[str]
    # It works in another process, so that this one can run jobs meanwhile.
    apart: bool

    @property
    def poll_seconds(self) -> float:
        """How long a worker that waits for a hint need not look for itself."""
        ...

    # Hand over

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

    def stage(self, write: str, part: str, jobs: Sequence[Job[Any] | Parcel]) -> None:
        """Keep these jobs as more of one part of a write: nothing of it is seen until `publish`.

        They are checked as `enqueue` would. What this part holds already is left as it is, so that
        the same call may be made again.
        """
        ...

    def publish(self, write: str, parts: Mapping[str, int]) -> int:
        """Store what these parts of a write hold, all or nothing, and forget its other parts.

        `parts` says how many jobs each has; if one holds another number, all of it is refused. Ids
        that were stored before and standing unique jobs are left as they are. A write is published
        once: again, whatever its parts, stores nothing. Returns how many jobs were published.
        """
        ...

    def discard(self, write: str) -> None:
        """Forget what is staged of a write; what was published of it stays."""
        ...

    # Work

    def claim(
        self,
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> list[Job[Any]]:
        """Take due jobs that this worker can run: ready -> running, attempt + 1, held by a lease.

        Only tasks and versions that the worker declares (a job's version at most the worker's), and
        jobs that require tags only where the worker has them all; none that a rule keeps back, and
        no more than its limits leave, whoever else claims at the same time.
        Higher priority first, with ageing: a minute of waiting is worth one step of priority.
        Between equals the oldest first; first in, first out per lane. A queue under an order is
        handed out by key in turn, and under "wait" and "skip" one job of a key at a time, by id,
        whoever else claims: see `penstock.rules.key_order`. `sizes` bounds the number per task. A
        job that lapsed before, and an at-most-once job, come in a lease of their own.
        Registers or renews the worker's row on the way.
        """
        ...

    def settle(self, pairs: Sequence[tuple[Job[Any], Outcome]]) -> list[bool]:
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

    def settle_and_claim(
        self,
        pairs: Sequence[tuple[Job[Any], Outcome]],
        worker: WorkerRow,
        queues: Collection[str] | None = None,
        limit: int = 1,
        sizes: Mapping[str, int] | None = None,
    ) -> tuple[list[bool], list[Job[Any]]]:
        """Settle, then claim, in one round trip."""
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

    def rules_version(self) -> int:
        """A number that changes with the rules; cheap enough to look at before every start.

        A schedule that is put changes it too: then the timetables of all workers are read anew.
        """
        ...

    def begin(self) -> Transaction:
        """Open a transaction of the broker's own database; refused by a store that has none."""
        ...

    # Look after

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
        `set_mark`.
        """
        ...

    def gauge(self) -> int:
        """Write down where jobs stand, a row per queue; returns how many rows.

        Once a minute, whoever calls and however often: the first one does it, and the rows are of
        that whole minute. A queue that holds nothing has none, but for one of zeros when it had one
        before.
        """
        ...

    def cancel(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """End jobs that have not ended; returns those it applied to.

        A ready one is cancelled at once. A running one is told, and whichever comes first, its own
        end or the worker's word, stands. With `flow`, all jobs of that flow, in one transaction.
        `part_of` names the recorded deed of a person that this is a part of (see `record`).
        """
        ...

    def retry(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """Make failed and cancelled jobs ready again, counters at zero; scheduled ones due now.

        In a flow, the jobs that were cancelled because of it wait again. One that was itself
        cancelled because of a need waits, until that need is retried and succeeds; if the need is
        not there any more to be retried, it is left as it is. One that waited for a signal does so
        again, without a time limit if that is over. With `flow`, all jobs of that flow that ended
        without success, in one transaction.
        """
        ...

    def delete(
        self,
        ids: Sequence[str],
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
    ) -> list[str]:
        """Forget jobs that are not running: place, arguments and result. History rows stay.

        With `flow`, that flow as a whole: its jobs, its state, and what it is found by. Those that
        run are taken from their workers: whatever these still write of them is stale.
        """
        ...

    def signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        """End every job that waits for this signal, with the value (JSON) as its result.

        Returns their ids; none if nobody waits, and then nothing is kept: whoever comes to wait
        later waits for the next one. They succeed in one transaction, are counted in their flows,
        and have a history row each, of the kind "attempt" and without a worker, beside the one of
        the signal itself. What ended before, by another signal, by its expiry or by a cancel, stays
        as it is; so does one whose time is over.
        """
        ...

    def set_rule(self, rule: Rule) -> Rule:
        """Put a rule in force: once this returned, nothing it covers starts. Twice is once.

        Of a limit or an order: what was claimed before goes on. An order whose queue has another
        is refused: that one is to be taken back before.
        """
        ...

    def clear_rule(
        self,
        kind: RuleKind,
        queue: str | None = None,
        task: str | None = None,
        author: str = "",
        reason: str = "",
        *,
        version: int | None = None,
        tag: tuple[str, str] | None = None,
        key: str | None = None,
        per_key: bool = False,
    ) -> bool:
        """Take back the rule that names just this; False if there was none."""
        ...

    def put_schedule(self, schedule: Schedule, author: str = "", reason: str = "") -> Schedule:
        """Keep a schedule under its name, and return it as it is kept; the same again is nothing.

        One that is new begins now, and so does one whose times changed: no slot before is ever
        decided. Any other change leaves how far it is decided, and whether it is paused, as it is.
        """
        ...

    def clear_schedule(self, name: str, author: str = "", reason: str = "") -> bool:
        """Forget a schedule; its jobs stay. False if there was none."""
        ...

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        """Decide slots of a schedule, as it was read: all of it, or nothing.

        One transaction: jobs are stored, jobs to be replaced are cancelled, the history has an
        event for each decision, and the schedule's position moves on. False, and nothing, if
        anybody changed or decided the schedule since it was read.
        """
        ...

    def set_mark(self, mark: Mark, *, back: bool = False) -> Mark:
        """Keep how far a lake has this history; returns the mark as it is kept, with its gap.

        Rows behind it are pruned `mark.hold` seconds later than others, and named in its gap before
        they go. A gap stays until a mark is set that names it. A mark goes on, never back, but with
        `back`, from a lake that was restored. Refused if the position is not of this history.
        """
        ...

    def clear_mark(self, lake: str, author: str = "", reason: str = "") -> bool:
        """Forget a lake: nothing is kept for it any more. False if there was none."""
        ...

    def record(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        """Write down in the history what a person did that no other verb has a row for.

        The kinds are those in `views.RECORDED`; `data` says what and how many.
        """
        ...

    # Look

    def get(self, job_id: str) -> Job[Any] | None:
        """The job wherever it is now, ended ones included while they are kept."""
        ...

    def notes(self, job_id: str, kind: str | None = None) -> list[Note]:
        """What the job noted, oldest first."""
        ...

    def find(self, filter: Filter, after: str | None = None, limit: int = 100) -> Page:
        """Jobs that match, newest first, ended ones included while they are kept."""
        ...

    def count(self) -> list[Count]:
        """Where jobs stand, per queue and task; costs the same for a million jobs as for ten."""
        ...

    def history(
        self,
        after: int | None = 0,
        limit: int = 1000,
        job: str | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Event]:
        """What happened, in the order it was committed.

        A reader that goes on from the last position it saw never misses a row. `after=None`: the
        last ones as they stand now, gauges left out, oldest first, for people to look at. Of the
        whole history these can be the last of one `kind`, gauges too, and those `before` a
        position: a rare kind costs the same among a million attempts.
        """
        ...

    def reach(
        self,
        selection: Selection,
        after: int = 0,
        at_most: int | None = None,
        patience: float = 0.5,
    ) -> Reach:
        """How far the history may be read from `after`: every row up to there is committed.

        Rows of whoever commits later are behind it; those who write at this moment have so many
        seconds to end. With `at_most`, no more of the selection's rows than that are in between. It
        is `after` itself while there is nothing more. Refused if `after` is not of this history.
        """
        ...

    def slices(
        self, selection: Selection, after: int = 0, until: int | None = None, at_most: int = 1
    ) -> list[Slice]:
        """Cut what is wanted into about equal parts: no row is in two, none of it in no part.

        Of the history from `after` up to and with `until`; None is all that there is by the time it
        is read.
        """
        ...

    def scan(self, part: Slice) -> Iterator[Any]:
        """The rows of a slice, of one look at the store, as Arrow record batches (`brokers.arrow`).

        Of an attempt or a job as they are stored, but secrets. Refused where there is no pyarrow.
        """
        ...

    def why(self, job_id: str) -> Why:
        """Why the job is where it is."""
        ...

    def flow(self, flow_id: str) -> FlowRow | None:
        """A flow and its nodes, needs before those who need them; None if it is not known."""
        ...

    def flows(
        self,
        name: str | None = None,
        find: Mapping[str, str] | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> FlowPage:
        """Flows of this name that have all of these properties, newest id first.

        A property that is a list is found by each of its elements. Costs the same among a million.
        """
        ...

    def gifts(self, node: str) -> list[Gift]:
        """The outputs of a node's jobs, in their order."""
        ...

    def rules(self) -> list[Rule]: ...

    def schedules(self) -> list[Schedule]:
        """Every schedule as it is kept, by name."""
        ...

    def marks(self) -> list[Mark]:
        """How far every lake has this history, by its name."""
        ...

    def workers(self) -> list[WorkerRow]:
        """Every worker row, those that lapsed included until they are recovered."""
        ...

    def close(self) -> None: ...
