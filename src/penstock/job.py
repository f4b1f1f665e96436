"""Jobs, and what can become of them.

A job is one call of a task, written down so that another process can make it.
Everything here is a plain value: no store, no registry. Times are seconds since the epoch,
ids are UUID text; people see both in their own form at the edges.

    waiting --needs ended--> ready --claim--> running --settle--> succeeded
       ^                       ^                 |                failed
       |                       +-- retry, lapse -+                cancelled
       +-- waits for jobs that it queued --------+

A job that waits for a time is `ready` with a later `run_at`; paused is a property of a queue or a
task (a rule), never of a job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import msgspec

from penstock.enqueue.ids import MOST_IN_PARCEL, next_id, offset_of, prefix_of
from penstock.flows.outputs import Output

if TYPE_CHECKING:
    from penstock.enqueue.handle import Handle

R = TypeVar("R")

EMPTY_BODY = b'{"args":{}}'
PARCEL_BYTES = 64 * 1024

# Our own tags: on every job of a detached task, and on what it enqueues (see operate.job_tree).
DETACHED: Mapping[str, str] = {"detached": "yes"}
CORRELATION = "correlation"  # the tag that goes from job to job
PARENT = "penstock.parent"  # a name that no program has for a tag of its own


class State(StrEnum):
    WAITING = "waiting"  # waits for the jobs it needs, or for a signal
    READY = "ready"  # may be claimed once run_at has passed
    RUNNING = "running"  # claimed, until it is settled or its lease lapses
    SUCCEEDED = "succeeded"
    FAILED = "failed"  # no attempt left; kept, and can be retried
    CANCELLED = "cancelled"  # by a person, or because it expired


ENDED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})


class Unique(msgspec.Struct, frozen=True):
    """While the job that holds `key` stands, no second one is stored.

    `until` says when it stops standing: "started", "ended", or "time" (then `seconds` from enqueue,
    whatever becomes of the job; `seconds` with the other two is a limit as well). With `replace`
    the second takes the place of the first, as long as that was never claimed; not stored.
    """

    key: str
    until: str = "ended"
    seconds: float | None = None
    replace: bool = False


class Lane(msgspec.Struct, frozen=True):
    """What jobs have in common when it comes to handing them out: a worker may take all or none."""

    queue: str
    task: str
    version: int = 1
    priority: int = 0
    runs_on: tuple[str, ...] = ()
    app: str = ""  # the program whose workers run it, see App.name

    @property
    def hash(self) -> int:
        """Eight bytes that stand for the lane in every store; signed, as SQL integers are."""
        return _hash(self)


@lru_cache(4096)
def _hash(lane: Lane) -> int:
    name = msgspec.json.encode(
        [lane.app, lane.queue, lane.task, lane.version, lane.priority, sorted(lane.runs_on)]
    )
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)


# gc=False: made once, of what was there before, a job or an outcome is never part of a cycle, and
# a worker holds thousands that the collector need not visit.
class Job(msgspec.Struct, Generic[R], frozen=True, kw_only=True, gc=False):
    """One call of a task. The first group is the caller's; the second is what the store adds."""

    task: str
    body: bytes = EMPTY_BODY  # JSON, see codec.Body: arguments, headers, options of this one job
    id: str = msgspec.field(default_factory=next_id)
    queue: str = "default"
    version: int = 1
    priority: int = 0  # higher first, -100 to 100
    run_at: float | None = None  # None: at once
    key: str | None = None
    unique: Unique | None = None
    runs_on: tuple[str, ...] = ()  # worker tags it requires
    app: str = ""  # the program whose workers run it; "" is that of all unnamed ones
    tags: Mapping[str, str] = {}
    search: Mapping[str, str] = {}  # argument fields that `find` has indexed, as text
    expires_at: float | None = None  # not started by then: cancelled
    at_most_once: bool = False

    state: State = State.READY
    attempt: int = 0  # claims so far: the fence
    failures: int = 0  # limited by the retry rule
    lapses: int = 0  # the crash budget
    spared: int = 0  # crashes in a row of workers that held it and are not known to have begun it
    repeats: int = 0  # runs asked for by a strategy
    enqueued_at: float = 0.0
    claimed_at: float | None = None
    ended_at: float | None = None
    keep_until: float | None = None  # once ended, kept until then; None: for the retention
    worker: str | None = None
    start_within: float | None = None  # under a rate: so long after its claim it may begin
    reason: str | None = None  # why it ended, or why it was put back
    error: str | None = None  # of the last failed attempt: headline and traceback, see error_text
    result: bytes | None = None  # JSON
    lease: Any = None  # the store's own note of where this claim is written; opaque to others
    owner: Any = None  # the App that stores it; set by Task.job
    given: Any = None  # what other jobs give to it, see compose.Given; set by Task.job
    provisional: Any = None  # made before the store's clock was known, see provisional.Provisional
    final: str | None = None  # the id that it was first enqueued under, see provisional.make_final

    @property
    def lane(self) -> Lane:
        return Lane(self.queue, self.task, self.version, self.priority, self.runs_on, self.app)

    @property
    def plain(self) -> bool:
        """Nothing about it needs a row of its own: it may travel in a parcel."""
        return (
            self.run_at is None
            and not self.attempt
            and self.key is None
            and self.unique is None
            and self.expires_at is None
            and not self.tags
            and not self.search
            and not self.at_most_once
        )

    @property
    def detached(self) -> bool:
        """Whether it is a job of a detached task; its tag says so, without the code."""
        return bool(self.tags) and self.tags.get("detached") == DETACHED["detached"]

    @property
    def output(self) -> R:
        """What the job will return, as an argument of another one, which then waits for it."""
        return cast("R", Output(self))

    def enqueue(self, *, on_failure: Literal["cancel", "continue"] = "cancel") -> Handle[R]:
        """Store the job, and with it every job that it needs. Sent again, it is stored once.

        `on_failure` says what becomes of jobs of the flow whose need did not succeed, as far as
        they do not say so themselves: they are cancelled, or run with what there is.
        """
        if self.owner is None:
            message = f"job {self.id} belongs to no app; make it with task.job(...)"
            raise TypeError(message)
        return self.owner.enqueue([self], on_failure=on_failure)[0]


class Parcel(msgspec.Struct, frozen=True):
    """Plain jobs of one lane, written together; their ids follow on from the first."""

    id: str
    lane: Lane
    bodies: Sequence[bytes]

    def ids(self) -> list[str]:
        head, first = prefix_of(self.id), offset_of(self.id)
        return [f"{head}{offset:03x}" for offset in range(first, first + len(self.bodies))]


def count_jobs(jobs: Iterable[Job[Any] | Parcel]) -> int:
    """How many jobs these are, those in parcels included."""
    return sum(len(job.bodies) if isinstance(job, Parcel) else 1 for job in jobs)


def cut(
    lane: Lane, bodies: Sequence[bytes], first: Callable[[], str], extra_bytes: int = 0
) -> list[Parcel]:
    """These bodies in parcels, with ids from `first`; each body will grow by `extra_bytes`.

    A parcel has at most 128 jobs and 64 KiB.
    """
    parcels: list[Parcel] = []
    start = 0
    while start < len(bodies):
        part = list(bodies[start : start + MOST_IN_PARCEL])
        size = sum(map(len, part)) + extra_bytes * len(part)
        while size > PARCEL_BYTES and len(part) > 1:
            size -= len(part.pop()) + extra_bytes
        parcels.append(Parcel(first(), lane, part))
        start += len(part)
    return parcels


def pack(jobs: Iterable[Job[Any] | Parcel]) -> tuple[list[Parcel], list[Job[Any]]]:
    """Sort what is to be stored: plain neighbours into parcels, everything else one by one."""
    parcels: list[Parcel] = []
    single: list[Job[Any]] = []
    open_runs: dict[tuple[Lane, str], tuple[str, list[bytes], int, int]] = {}

    def close(run: tuple[Lane, str]) -> None:
        first, bodies, _, _ = open_runs.pop(run)
        parcels.append(Parcel(first, run[0], bodies))

    for job in jobs:
        if isinstance(job, Parcel):
            parcels.append(job)
            continue
        if not job.plain:
            single.append(job)
            continue
        run, offset, size = (job.lane, prefix_of(job.id)), offset_of(job.id), len(job.body)
        if run in open_runs:
            first, bodies, following, taken = open_runs[run]
            fits = len(bodies) < MOST_IN_PARCEL and taken + size <= PARCEL_BYTES
            if offset == following and fits:
                bodies.append(job.body)
                open_runs[run] = (first, bodies, following + 1, taken + size)
                continue
            close(run)
        open_runs[run] = (job.id, [job.body], offset + 1, size)
    for run in list(open_runs):
        close(run)
    return parcels, single


class Fault(msgspec.Struct, frozen=True, gc=False):
    """What an attempt raised, and where: `/srv/shop.py:12 in charge`."""

    exception: str  # its class, with its module
    place: str | None = None


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """Where one attempt leads: the next state, and what to remember."""

    state: State
    reason: str | None = None
    result: bytes | None = None
    error: str | None = None
    run_at: float | None = None  # when to run again; only with READY, None = at once
    failures: int = 0  # what it adds to the job's counters
    lapses: int = 0
    repeats: int = 0
    spared: int = 0  # what it sets the job's counter to
    unclaim: bool = False  # its claim is undone: it is ready again in its old place
    keep: bool = True  # False: the job is deleted, only the history row of the attempt stays
    keep_for: float | None = None  # seconds that an ended job is kept; None: the retention
    started_at: float | None = None  # None: the attempt never began, and leaves no history row
    ended_at: float | None = None
    # Jobs and parcels that are stored with it, and the flow that joins them (`flow.Flow`), which is
    # the job's own if it is in one. Any: a union of these has no wire form.
    spawned: tuple[Any, ...] = ()
    flow: Any = None
    fault: Fault | None = None  # for the worker's log; no store keeps it


def succeeded(result: bytes | None = None) -> Outcome:
    return Outcome(State.SUCCEEDED, result=result)


def failed(error: str, reason: str = "error") -> Outcome:
    return Outcome(State.FAILED, reason, error=error, failures=1)


def try_again(error: str, run_at: float, reason: str = "error") -> Outcome:
    return Outcome(State.READY, reason, error=error, run_at=run_at, failures=1)


def put_back(reason: str, run_at: float | None = None) -> Outcome:
    """Ready again, with nothing counted."""
    return Outcome(State.READY, reason, run_at=run_at)


def unclaimed(spared: int = 0) -> Outcome:
    """Ready again as if it had not been claimed: for all that is known it had not begun."""
    return Outcome(State.READY, spared=spared, unclaim=True)


def is_put_back(outcome: Outcome) -> bool:
    """Whether the job is ready again, or will be, and nothing was counted on it."""
    counted = outcome.failures or outcome.lapses or outcome.repeats
    return outcome.state in {State.READY, State.WAITING} and not counted


def outcome_word(outcome: Outcome) -> str:
    """Where an attempt led, for counters: its state, "again", or "put_back"."""
    if outcome.state not in {State.READY, State.WAITING}:
        return outcome.state.value
    return "put_back" if is_put_back(outcome) else "again"


def lapsed(error: str | None = None) -> Outcome:
    """The process that ran it is gone: counted on the crash budget, which the store checks.

    `error` is the evidence: how it ended, as far as that is known.
    """
    return Outcome(State.READY, "crashed", error=error, lapses=1)


CRASH_BUDGET = 3  # unless the body says another number
