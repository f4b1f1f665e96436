"""What a store shows: rows of its history, counts, pages of jobs, workers, notes, explanations.

Plain values, the same from every broker; people and pipelines read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import Any

import msgspec

from penstock.broker.checks import legible
from penstock.broker.position import Position
from penstock.errors import Refused
from penstock.job import Job, State

LEASE_SECONDS = 15.0
# Kinds of history rows that only `audit` writes.
RECORDED = (
    *("enqueue", "backfill", "operation", "login", "login_failed", "export", "forget_rows"),
    "move",  # of buckets of shards
)
# Kinds that only `gauge` writes, several a minute: not for people who read the history.
MEASURED = ("gauge", "minute", "ten_minutes", "hour")
QUEUED = b'{"name":"queued","value":{}}'  # data of the event with which a detached job begins


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One row of history: an attempt that ended (kind "attempt"), or a rarer event.

    Kinds beside it: cancel, retry, delete, signal, rule, queue, schedule, subscription, worker (its
    settings), progress;
    enqueue, backfill, operation, login, login_failed, export, forget_rows and move, of people (see
    `RECORDED`); event, of a name that the job gives it, and of a detached job "queued" and
    "started"; gauge, see `gauge`; minute, ten_minutes and hour, see `span_stats`; lake, see
    `lake_mark`; and flow, of a flow as a whole, under the flow's id: `data` has `says` (queued,
    ended, cancel, retry, delete), `jobs`, and the flow's name and properties, if any.
    """

    position: Position
    kind: str
    at: float
    job: str | None = None
    app: str | None = None  # None: of no job
    queue: str | None = None
    task: str | None = None
    version: int | None = None
    priority: int | None = None
    attempt: int | None = None
    failures: int = 0  # as the attempt left them
    lapses: int = 0
    state: State | None = None  # where the attempt led
    reason: str | None = None
    key: str | None = None
    enqueued_at: float | None = None
    run_at: float | None = None
    started_at: float | None = None
    worker: str | None = None
    tags: Mapping[str, str] = {}
    error: str | None = None
    body: bytes | None = None  # with the last row of a job, declared secrets redacted
    result: bytes | None = None
    data: bytes | None = None  # JSON, of the rarer events and of signals: who, why, how far
    login: str | None = None  # of the database, which wrote it there itself; None: it has none


class Count(msgspec.Struct, frozen=True):
    """How many jobs of a program's task in one queue stand where.

    Ended ones but failed are history.
    """

    queue: str
    task: str
    ready: int = 0  # may be claimed now
    scheduled: int = 0  # waits for its time
    waiting: int = 0  # waits for the jobs it needs, or for a signal
    paused: int = 0  # would be ready, but for a rule
    running: int = 0
    failed: int = 0
    limited: int = 0  # would be ready, but for a limit
    app: str = ""

    @property
    def total(self) -> int:
        """All that is still to end."""
        held = self.paused + self.limited
        return self.ready + self.scheduled + self.waiting + held + self.running


PLACES = ("ready", "scheduled", "waiting", "paused", "running", "failed", "limited")


def by_queue(counts: Sequence[Count]) -> list[Count]:
    """Counts of the tasks of a queue, of every program, added up; their task is empty."""
    sums: dict[str, Count] = {}
    for count in counts:
        queue, sofar = count.queue, sums.get(count.queue)
        numbers = msgspec.structs.astuple(count)[2:-1]
        if sofar is not None:
            numbers = map(add, numbers, msgspec.structs.astuple(sofar)[2:-1])
        sums[queue] = Count(queue, "", *numbers)
    return list(sums.values())


def by_task(counts: Sequence[Count]) -> list[Count]:
    """Counts of a task in a queue, of every program, added up."""
    tasks: dict[str, list[Count]] = {}
    for count in counts:
        tasks.setdefault(count.task, []).append(count)
    sums = (
        msgspec.structs.replace(count, task=task)
        for task, of_task in tasks.items()
        for count in by_queue(of_task)
    )
    return sorted(sums, key=lambda count: (count.queue, count.task))


class Page(msgspec.Struct, frozen=True):
    """What `find` found. `after` goes into the next call; None: there is no more.

    A filter on argument fields that are not indexed looks at a bounded number of jobs:
    `examined` says how many, and a page may be short, or empty, with `after` set.
    """

    jobs: Sequence[Job[Any]]
    after: str | None = None
    examined: int = 0


class Why(msgspec.Struct, frozen=True):
    """Why a job is where it is: one sentence for people, a cause for programs.

    Causes: unknown, ended, running, time, needs, signal, paused, blocked, no_worker, no_app,
    no_task, no_queue, no_version, no_tags, no_shard, limit, order (it waits behind a job of its
    key), stuck (behind one that failed), next.
    """

    job: str
    state: State | None
    cause: str
    sentence: str
    # How many due jobs of its lane are before it; None: it is not ready, or they are not counted.
    ahead: int | None = None

    def __str__(self) -> str:
        return self.sentence


MANAGER, RECEIVER = "manager-", "receiver/"  # how the ids of their rows begin


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One child process: what it can run, and until when it is believed to be alive."""

    id: str
    app: str = ""  # of which program: it is handed jobs of that one alone
    tasks: Mapping[str, int] = {}  # names it knows (aliases too), each with its highest version
    # Of each task that is not named after its function: which one it is, as `module:function`.
    places: Mapping[str, str] = {}
    tags: frozenset[str] = frozenset()
    queues: tuple[str, ...] | None = None  # None: every queue
    host: str = ""
    pid: int = 0
    lease: float = LEASE_SECONDS
    started_at: float = 0.0
    penstock: str = ""  # its release
    code: str = ""  # a digest of the program's own code, see app.code_digest
    claimed_at: float | None = None  # its last claim that worked: no recent one means trouble
    running: int = 0  # jobs it holds now
    began: tuple[str, ...] | None = None  # those of them that have begun; None: it does not say
    alive: bool = True  # as `workers` found it
    stale: int = 0  # outcomes that it sent too late: another attempt held the job by then
    # Jobs that it claimed and put back, uncounted, since it started: by queue, and by the reason.
    put_back: Mapping[str, Mapping[str, int]] = {}
    group: str = ""  # the name of the worker whose process this is, see `WorkerSettings`
    threads: int = 0  # how many jobs it may run at a time; 0: it does not say
    async_slots: int = 0
    quiet: bool = False  # it claims nothing, as an operator asked
    shards: tuple[str, ...] | None = None  # where it claims, see `?claim=`; None: everywhere

    @property
    def state(self) -> str:
        """One word: busy, idle, detached (a process of its own, for one job), manager or lapsed."""
        if not self.alive:
            return "lapsed"
        if self.queues == ():
            return "manager" if self.id.startswith(MANAGER) else "detached"
        return "busy" if self.running else "idle"

    @property
    def receiver(self) -> str:
        """Of a receiver: whose token it has, and its name. Empty for a worker."""
        return self.id.removeprefix(RECEIVER) if self.id.startswith(RECEIVER) else ""


class Note(msgspec.Struct, frozen=True):
    """Something a running job leaves behind: the latest per (kind, name) is kept with the job.

    Kinds: progress, snapshot, step, log; jobs, which it queued and waits for; application, of a job
    that is one on Spark; event, which goes to the history alone; and state, which goes to the state
    of the job's flow.
    """

    kind: str
    name: str = ""
    value: bytes = b"null"  # JSON
    at: float = 0.0
    told: bool = True  # of progress: the history has it as well


def audit_data(
    kind: str, author: str, reason: str, data: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The data of the history row that `audit` writes."""
    if kind not in RECORDED:
        raise Refused(f"{kind!r} is not recorded by itself; there are {', '.join(RECORDED)}")
    return {**(data or {}), "author": legible(author), "reason": legible(reason)}


def author_and_reason(author: str, reason: str, part_of: str | None = None) -> dict[str, str]:
    """The data of the history row of an action; `part_of`: a flow, or a recorded operation."""
    data = {"author": legible(author), "reason": legible(reason)}
    return data | ({"part_of": part_of} if part_of else {})
