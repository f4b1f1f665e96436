"""Statistics: what ended in a minute, in ten minutes and in an hour, kept in the history.

Whoever writes the gauges of a minute also counts the attempts that were committed since the last
time, by the minute in which they ended. A row of the kind `minute` says so at once; those of ten
minutes and of an hour follow when they are over, so that a chart of two weeks reads 336 rows. A row
that comes late is another row of the same span: readers add them up.

Counts are exact. Histograms are of a sample where a minute had more attempts than `SAMPLE`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple, TypeVar

import msgspec

from penstock.broker.gauge import MINUTE, Gauge
from penstock.broker.histogram import bucket_of_duration
from penstock.job import State

SPANS = {60: "minute", 600: "ten_minutes", 3600: "hour"}  # seconds, and the kind of the rows
SAMPLE = 20_000
MOST_ROWS = 500_000  # of the history, counted at a time
_SET_BACK = 5  # minutes; a clock that went back farther begins anew
MOST_SERIES = 200  # of each kind in a span: those with the most attempts

Histogram = dict[int, int]


class TaskSpan(msgspec.Struct, array_like=True):
    """The attempts of one task in one queue that ended; sums in seconds."""

    queue: str
    task: str
    succeeded: int = 0
    failed: int = 0  # for good
    again: int = 0  # the job runs again
    ran: float = 0.0
    waited: float = 0.0
    run: Histogram = {}
    wait: Histogram = {}

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.again

    @property
    def name(self) -> tuple[str, str]:
        return self.queue, self.task

    def add(self, other: TaskSpan) -> None:
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.again += other.again
        self.ran += other.ran
        self.waited += other.waited
        _add(self.run, other.run)
        _add(self.wait, other.wait)


class WorkerSpan(msgspec.Struct, array_like=True):
    """The attempts of one worker that ended."""

    worker: str
    ended: int = 0
    failed: int = 0  # or run again
    ran: float = 0.0

    @property
    def name(self) -> str:
        return self.worker

    def add(self, other: WorkerSpan) -> None:
        self.ended += other.ended
        self.failed += other.failed
        self.ran += other.ran


class QueueSpan(msgspec.Struct, array_like=True):
    """Where the jobs of a queue stood: of several gauges the most."""

    queue: str
    ready: int = 0
    running: int = 0
    held: int = 0  # paused or limited
    failed: int = 0
    oldest: float = 0.0  # seconds that the oldest due job waited

    @property
    def name(self) -> str:
        return self.queue

    @property
    def ended(self) -> int:
        """What decides which queues are kept where there are too many."""
        return self.ready + self.running + self.held + self.failed

    def add(self, other: QueueSpan) -> None:
        self.ready = max(self.ready, other.ready)
        self.running = max(self.running, other.running)
        self.held = max(self.held, other.held)
        self.failed = max(self.failed, other.failed)
        self.oldest = max(self.oldest, other.oldest)


class SpanStats(msgspec.Struct):
    """One span; `at` is its start. `read_at`: what ended before that is counted somewhere."""

    at: float
    seconds: int = 60
    read_at: float = 0.0
    tasks: list[TaskSpan] = []
    workers: list[WorkerSpan] = []
    queues: list[QueueSpan] = []
    started: int = 0  # workers that started
    code: list[str] = []  # digests of code that was not there before: a deploy
    left_out: int = 0  # series beyond MOST_SERIES
    holds: bool = False  # there were jobs when it was read last: a worker writes every minute then

    def add(self, other: SpanStats) -> None:
        if other.read_at >= self.read_at:
            same = other.read_at == self.read_at
            self.holds = other.holds or (same and self.holds)
        self.read_at = max(self.read_at, other.read_at)
        self.tasks = _merged(self.tasks, other.tasks)
        self.workers = _merged(self.workers, other.workers)
        self.queues = _merged(self.queues, other.queues)
        self.started += other.started
        self.code += [each for each in other.code if each not in self.code]
        self.left_out = max(self.left_out, other.left_out)

    def bounded(self) -> SpanStats:
        """With at most `MOST_SERIES` of each kind."""
        lengths = (len(self.tasks), len(self.workers), len(self.queues))
        over = sum(max(0, length - MOST_SERIES) for length in lengths)
        if not over:
            return self
        return msgspec.structs.replace(
            self,
            tasks=_most(self.tasks),
            workers=_most(self.workers),
            queues=_most(self.queues),
            left_out=max(over, self.left_out),
        )

    @property
    def empty(self) -> bool:
        return not (self.tasks or self.queues or self.started or self.code)


AnySpan = TypeVar("AnySpan", TaskSpan, WorkerSpan, QueueSpan)


def _merged(ours: list[AnySpan], theirs: Iterable[AnySpan]) -> list[AnySpan]:
    found = {each.name: each for each in ours}
    for each in theirs:
        if each.name in found:
            found[each.name].add(each)
        else:
            # A copy: the row it comes from is written, too.
            found[each.name] = msgspec.convert(msgspec.to_builtins(each), type(each))
    return list(found.values())


def _most(series: list[AnySpan]) -> list[AnySpan]:
    return nlargest(MOST_SERIES, series, key=lambda each: each.ended)


def _add(ours: Histogram, theirs: Histogram) -> None:
    for bucket, count in theirs.items():
        ours[bucket] = ours.get(bucket, 0) + count


class EndedAttempts(NamedTuple):
    """Attempts that ended in a minute, alike but for their times; sums in seconds."""

    queue: str
    task: str
    worker: str
    state: State | None
    minute: int
    jobs: int
    ran: float
    waited: float


class SampledAttempt(NamedTuple):
    """One attempt, which stands for `weight` of them."""

    queue: str
    task: str
    minute: int
    ran: float
    waited: float
    weight: int = 1


class Counted(msgspec.Struct, frozen=True):
    """What the store keeps of the last count: how far, and the longer spans that are not over."""

    position: int = 0
    at: float = 0.0
    code: tuple[str, ...] = ()
    open: tuple[SpanStats, ...] = ()  # by SPANS, but for the first


class Gauged(msgspec.Struct, frozen=True):
    """What the store keeps of the last gauges: their minute, and the queues that were not empty."""

    minute: int = -1
    queues: tuple[str, ...] = ()
    counted: Counted = Counted()  # of the statistics that are written with them

    def due(self, minute: int) -> bool:
        """Whether this minute has no gauges yet."""
        return not minute <= self.minute <= minute + _SET_BACK

    def wanted(self, newest: int | None, now: float) -> bool:
        """Whether there is something to say of an empty store: rows not counted, a span is over."""
        over = any(span.at + span.seconds <= now for span in self.counted.open)
        return bool(self.queues) or over or (newest or 0) > self.counted.position

    def after(self, minute: int, gauges: Iterable[Gauge], counted: Counted) -> Gauged:
        return Gauged(minute, tuple(gauge.queue for gauge in gauges if not gauge.empty), counted)


def minutes_of(
    ended: Iterable[EndedAttempts], sampled: Iterable[SampledAttempt], now: float
) -> list[SpanStats]:
    """The minutes in which attempts ended, oldest first."""
    tasks: dict[int, dict[tuple[str, str], TaskSpan]] = {}
    workers: dict[int, dict[str, WorkerSpan]] = {}
    for each in ended:
        task = tasks.setdefault(each.minute, {}).setdefault(
            (each.queue, each.task), TaskSpan(each.queue, each.task, run={}, wait={})
        )
        worker = workers.setdefault(each.minute, {}).setdefault(
            each.worker, WorkerSpan(each.worker)
        )
        good = each.state is State.SUCCEEDED
        again = each.state is State.READY
        task.add(
            TaskSpan(
                each.queue,
                each.task,
                each.jobs * good,
                each.jobs * (not good and not again),
                each.jobs * again,
                each.ran,
                each.waited,
            )
        )
        worker.add(WorkerSpan(each.worker, each.jobs, each.jobs * (not good), each.ran))
    for attempt in sampled:
        task = tasks.get(attempt.minute, {}).get((attempt.queue, attempt.task))
        if task is not None:
            _add(task.run, {bucket_of_duration(attempt.ran): attempt.weight})
            _add(task.wait, {bucket_of_duration(attempt.waited): attempt.weight})
    return [
        SpanStats(
            at=minute * MINUTE,
            read_at=now,
            tasks=list(found.values()),
            workers=list(workers[minute].values()),
        )
        for minute, found in sorted(tasks.items())
    ]


def counted(  # noqa: PLR0917  what a store gathers
    before: Counted,
    minutes: Sequence[SpanStats],
    gauges: Iterable[Gauge],
    started: Sequence[tuple[float, str]],
    position: int,
    now: float,
) -> tuple[Counted, list[SpanStats]]:
    """What to keep, and the rows to write.

    `started`: when each live worker did, and the digest of its code.
    """
    gauges = list(gauges)
    holds = any(not each.empty for each in gauges)
    this = SpanStats(
        at=now // MINUTE * MINUTE,
        read_at=now,
        holds=holds,
        queues=[
            QueueSpan(
                each.queue,
                each.ready,
                each.running,
                each.paused + each.limited,
                each.failed,
                each.oldest or 0.0,
            )
            for each in gauges
        ],
        started=sum(before.at <= at for at, _ in started) if before.at else 0,
    )
    code = tuple(sorted({digest for _, digest in started if digest}))
    if before.code:
        this.code = [digest for digest in code if digest not in before.code]
    spans = {span.at: msgspec.structs.replace(span, holds=holds) for span in minutes}
    if not this.empty:
        if this.at in spans:
            spans[this.at].add(this)
        else:
            spans[this.at] = this
    rows = [span.bounded() for _, span in sorted(spans.items())]
    kept: list[SpanStats] = []
    for seconds in list(SPANS)[1:]:
        standing = next((span for span in before.open if span.seconds == seconds), None)
        over, standing = _rolled(standing, seconds, rows[:], now)
        rows += over
        kept += [] if standing is None else [standing]
    return Counted(position, now, code or before.code, tuple(kept)), rows


def _rolled(
    standing: SpanStats | None, seconds: int, minutes: Sequence[SpanStats], now: float
) -> tuple[list[SpanStats], SpanStats | None]:
    """The spans of this length that are over, and the one that is not."""
    spans: dict[float, SpanStats] = {} if standing is None else {standing.at: standing}
    for minute in minutes:
        if minute.seconds != MINUTE:
            continue
        at = minute.at // seconds * seconds
        spans.setdefault(at, SpanStats(at=at, seconds=seconds)).add(minute)
    last = now // seconds * seconds
    over = [span.bounded() for at, span in sorted(spans.items()) if at < last]
    return over, spans.get(last)
