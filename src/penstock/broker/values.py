"""What brokers answer with, and how long they remember."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from penstock.broker.views import WorkerRow
from penstock.enqueue.ids import is_derived
from penstock.job import Job, Outcome

Action = Literal["cancel", "retry", "delete"]  # what a person does to jobs
Settlement = tuple[Job[Any], Outcome]  # a claimed job, and how its attempt ended

RETENTION_SECONDS = 14 * 86400.0  # how long what ended is kept, and ids are remembered
STAGED_SECONDS = 86400.0  # how long a write that nobody adds to or publishes is kept
UNNAMED = "unnamed/"  # how the name of a write begins that nobody can ask for again


class Epoch(NamedTuple):
    """A write that is one of a stream's, counted up: a store keeps only the last of each stream."""

    stream: str
    number: int


class Committed(NamedTuple):
    """What is known of a committed write."""

    jobs: int
    token: str  # of the call that committed it
    # Left out by this call, since their derived ids were stored before, or by another part, with
    # another body.
    left_out: tuple[Job[Any], ...] = ()


def differs(job: Job[Any], stored: Job[Any] | None) -> bool:
    """Whether a job with a derived id was stored before in another form."""
    if stored is None or not is_derived(job.id):
        return False
    return (job.lane, job.body) != (stored.lane, stored.body)


class Batch(msgspec.Struct, frozen=True):
    """How far a bulk enqueue got: `count` rows under this id are stored."""

    id: str
    count: int = 0


class Enqueued(msgspec.Struct, frozen=True):
    """What became of an enqueue: all is stored, now or before, but for the `standing` ones."""

    known: frozenset[str] = frozenset()  # ids that were stored before, and were left as they are
    standing: Mapping[str, str] = {}  # not stored: id -> the job that holds its unique key
    batch: int = 0  # rows stored so far under the batch's id


class Wanted(msgspec.Struct, frozen=True):
    """What one worker asks for: up to `limit` jobs of these queues (None: of any).

    `sizes` bounds the number per task.
    """

    worker: WorkerRow
    limit: int = 1
    queues: Collection[str] | None = None
    sizes: Mapping[str, int] | None = None


class Claimed(msgspec.Struct, frozen=True):
    """What a claim handed out, and which of the settlements that it carried were accepted."""

    jobs: Sequence[list[Job[Any]]]  # for each `Wanted`, in their order
    # For each settlement: False if that attempt no longer held the job. None: the server that the
    # job is on is away, and nothing is known; it has to be sent again.
    accepted: Sequence[bool | None]
    # When to claim again although no hint came: the next job is due then, a rate limit lets more
    # start, or a rule ends. May be too early, never too late. None: at no time that is known.
    next_at: float | None = None


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
