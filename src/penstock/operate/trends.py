"""Rates, waits, runs and depth over an hour, a day or two weeks, from the store alone.

Made of the statistics that workers write into the history (`broker.span_stats`). A time in which
nobody wrote any, though there were jobs, is a gap: None, never zero and never a line drawn across.
After a row that shows no job at all, silence is zero: nothing happened, and nobody writes then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.broker.histogram import percentile
from penstock.broker.span_stats import SPANS, Histogram, QueueSpan, SpanStats, TaskSpan, WorkerSpan
from penstock.broker.views import Event
from penstock.errors import Refused
from penstock.operate.time_text import duration_text
from penstock.operate.to_json import event_data

MOST_ROWS = 1000  # of each kind: more than the longest range has
MOST_RULES = 200  # rows about pauses that are looked at
MOST_MARKS = 60
SILENT = 150.0  # seconds without a row while there were jobs; longer ones are a gap


class TrendRange(NamedTuple):
    """How far a chart goes back, and what its points stand for; in seconds."""

    name: str
    length: int
    step: int


RANGES = {
    each.name: each
    for each in (
        TrendRange("hour", 3600, 60),
        TrendRange("day", 86400, 600),
        TrendRange("fortnight", 14 * 86400, 3600),
    )
}

Numbers = list[float | None]
History = Callable[..., Sequence[Event]]


class TimeMark(NamedTuple):
    """Something on the time axis: a deploy, workers that started, a pause."""

    at: float
    kind: str
    says: str


class TaskTotals(msgspec.Struct, frozen=True, kw_only=True):
    """All attempts of one task in one queue that ended in the range; times in seconds."""

    queue: str
    task: str
    ended: int
    succeeded: int
    failed: int
    again: int
    wait: float | None  # median
    wait_p95: float | None
    run: float | None
    run_p95: float | None


class Trend(msgspec.Struct, frozen=True, kw_only=True):
    """Points in time, and a number or None for each of them in every series."""

    over: str
    step: int
    at: list[float]  # the beginning of each step
    succeeded: Numbers  # a second
    failed: Numbers  # a second; for good
    again: Numbers  # a second: the job runs again
    wait: Numbers  # seconds, on average
    wait_p50: Numbers
    wait_p95: Numbers
    run: Numbers
    run_p50: Numbers
    run_p95: Numbers
    ready: Numbers  # the most in the step
    running: Numbers
    held: Numbers
    kept_failed: Numbers
    oldest: Numbers
    marks: list[TimeMark]
    tasks: list[TaskTotals]
    workers: list[str]
    known: bool  # anything was ever measured

    @property
    def ended(self) -> int:
        return sum(each.ended for each in self.tasks)


class TrendFilter(NamedTuple):
    """Of which queue, task or worker; None: of all."""

    queue: str | None = None
    task: str | None = None
    worker: str | None = None


def parse_range(name: str) -> TrendRange:
    """The range of this name; refused with the names that there are."""
    found = RANGES.get(name or "hour")
    if found is None:
        raise Refused(f"{name[:40]!r} is no range: {', '.join(RANGES)}")
    return found


def read_trend(
    history: History, now: float, over: str = "hour", only: TrendFilter | None = None
) -> Trend:
    """The trend up to now; `history` is the broker's verb."""
    span, only = parse_range(over), only or TrendFilter()
    begins = now // span.step * span.step - span.length
    slots, marked, known = _slots(history, span, begins, now)
    # Without the step that has just begun, which would look like a drop.
    ats = _steps(span, begins)
    whole = [slots.get(at) for at in ats]
    tasks = [
        None if each is None else [task for task in each.tasks if _is_wanted(task, only)]
        for each in whole
    ]
    queues = [
        None
        if each is None
        else [queue for queue in each.queues if only.queue in {None, queue.name}]
        for each in whole
    ]
    workers = [
        None
        if each is None
        else [worker for worker in each.workers if only.worker in {None, worker.name}]
        for each in whole
    ]
    rates = _worker_rates(workers, span.step) if only.worker else _task_rates(tasks, span.step)
    depth_known = only.task is None and only.worker is None
    return Trend(
        over=span.name,
        step=span.step,
        at=ats,
        **rates,
        **_depths(queues if depth_known else [None] * len(ats)),
        marks=_marks(history, marked, begins),
        tasks=_totals([task for each in tasks if each for task in each]),
        workers=sorted({worker.name for each in whole if each for worker in each.workers}),
        known=known,
    )


def _steps(span: TrendRange, begins: float) -> list[float]:
    return [begins + number * span.step for number in range(span.length // span.step)]


def _is_wanted(task: TaskSpan, only: TrendFilter) -> bool:
    return only.queue in {None, task.queue} and only.task in {None, task.task}


def _slots(
    history: History, span: TrendRange, begins: float, now: float
) -> tuple[dict[float, SpanStats], list[SpanStats], bool]:
    """The statistics of each step, zeros where nothing happened; no entry is a gap.

    Also the rows as they are, for what is marked.
    """
    rows = _rows(history, SPANS[span.step])
    known = bool(rows)
    if span.step > min(SPANS):
        # What is not over yet is only in the rows of minutes.
        last = max((row.at + row.seconds for row in rows), default=begins)
        minutes = _rows(history, SPANS[min(SPANS)])
        rows += [row for row in minutes if row.at >= last]
        known = known or bool(minutes)
    slots: dict[float, SpanStats] = {}
    for row in rows:
        at = row.at // span.step * span.step
        slots.setdefault(at, SpanStats(at=at, seconds=span.step)).add(row)
    _fill_silence(slots, [*_steps(span, begins)], span.step, now)
    return slots, [row for row in rows if row.at >= begins], known


def _fill_silence(
    slots: dict[float, SpanStats], steps: Sequence[float], step: int, now: float
) -> None:
    """Zeros where nobody writes because there are no jobs, or where only a minute is missing."""
    known = sorted(slots)
    for at in steps:
        if at in slots:
            continue
        place = bisect_left(known, at)
        if not place:
            continue  # before the first row
        before = slots[known[place - 1]]
        end = known[place] if place < len(known) else now
        if not before.holds:
            slots[at] = SpanStats(at=at, seconds=step)
        elif end - (before.at + step) <= SILENT:
            slots[at] = SpanStats(at=at, seconds=step, queues=before.queues)


def _rows(history: History, kind: str) -> list[SpanStats]:
    rows: list[SpanStats] = []
    for event in history(None, MOST_ROWS, kind=kind):
        try:
            rows.append(msgspec.json.decode(event.data or b"", type=SpanStats))
        except msgspec.MsgspecError:
            continue  # of another release
    return rows


def _task_rates(steps: Sequence[list[TaskSpan] | None], step: int) -> dict[str, Any]:
    sums = [None if each is None else _summed(each) for each in steps]

    def of(value: Callable[[TaskSpan], float | None]) -> Numbers:
        return [None if each is None else value(each) for each in sums]

    return {
        "succeeded": of(lambda each: each.succeeded / step),
        "failed": of(lambda each: each.failed / step),
        "again": of(lambda each: each.again / step),
        "wait": of(lambda each: _average(each.waited, each.ended)),
        "wait_p50": of(lambda each: percentile(each.wait, 0.5)),
        "wait_p95": of(lambda each: percentile(each.wait, 0.95)),
        "run": of(lambda each: _average(each.ran, each.ended)),
        "run_p50": of(lambda each: percentile(each.run, 0.5)),
        "run_p95": of(lambda each: percentile(each.run, 0.95)),
    }


def _worker_rates(steps: Sequence[list[WorkerSpan] | None], step: int) -> dict[str, Any]:
    """Of a worker the rows have counts and run times alone."""
    none: Numbers = [None] * len(steps)
    ended = [None if each is None else sum(worker.ended for worker in each) for each in steps]
    bad = [None if each is None else sum(worker.failed for worker in each) for each in steps]
    ran = [None if each is None else sum(worker.ran for worker in each) for each in steps]
    pairs = zip(ended, bad, strict=True)
    return {
        "succeeded": [None if a is None or b is None else (a - b) / step for a, b in pairs],
        "failed": [None if each is None else each / step for each in bad],
        "again": none,
        "wait": none,
        "wait_p50": none,
        "wait_p95": none,
        "run": [
            None if a is None or b is None else _average(a, b)
            for a, b in zip(ran, ended, strict=True)
        ],
        "run_p50": none,
        "run_p95": none,
    }


def _depths(steps: Sequence[list[QueueSpan] | None]) -> dict[str, Numbers]:
    def of(value: Callable[[list[QueueSpan]], float]) -> Numbers:
        return [None if each is None else value(each) for each in steps]

    return {
        "ready": of(lambda queues: sum(each.ready for each in queues)),
        "running": of(lambda queues: sum(each.running for each in queues)),
        "held": of(lambda queues: sum(each.held for each in queues)),
        "kept_failed": of(lambda queues: sum(each.failed for each in queues)),
        "oldest": of(lambda queues: max((each.oldest for each in queues), default=0.0)),
    }


def _average(total: float, number: int) -> float | None:
    return total / number if number else None


def _summed(tasks: Sequence[TaskSpan]) -> TaskSpan:
    whole = TaskSpan("", "", run={}, wait={})
    for each in tasks:
        whole.add(each)
    return whole


def _totals(tasks: Sequence[TaskSpan]) -> list[TaskTotals]:
    found: dict[tuple[str, str], TaskSpan] = {}
    for each in tasks:
        found.setdefault(each.name, TaskSpan(*each.name, run={}, wait={})).add(each)
    totals = [
        TaskTotals(
            queue=each.queue,
            task=each.task,
            ended=each.ended,
            succeeded=each.succeeded,
            failed=each.failed,
            again=each.again,
            wait=_rank(each.wait, 0.5),
            wait_p95=_rank(each.wait, 0.95),
            run=_rank(each.run, 0.5),
            run_p95=_rank(each.run, 0.95),
        )
        for each in found.values()
    ]
    return sorted(totals, key=lambda each: (-each.ended, each.queue, each.task))


def _rank(histogram: Histogram, rank: float) -> float | None:
    return percentile(histogram, rank)


def _marks(history: History, rows: Sequence[SpanStats], begins: float) -> list[TimeMark]:
    """Deploys and starts, of the rows; pauses and blocks, of what people did."""
    marks: list[TimeMark] = []
    for row in rows:
        if row.code:
            marks.append(TimeMark(row.at, "deploy", f"new code: {', '.join(row.code)[:60]}"))
        elif row.started:
            number = "1 worker" if row.started == 1 else f"{row.started} workers"
            marks.append(TimeMark(row.at, "start", f"{number} started"))
    ruled = (_rule_mark(event) for event in history(None, MOST_RULES, kind="rule"))
    marks += [mark for mark in ruled if mark is not None and mark.at >= begins]
    return sorted(marks)[-MOST_MARKS:]


def _rule_mark(event: Event) -> TimeMark | None:
    data = event_data(event)
    if (kind := data.get("kind")) not in {"pause", "block"}:
        return None
    what = data.get("queue") or event.queue or data.get("task") or event.task or "some jobs"
    did = {"pause": "paused", "block": "blocked"}[kind] if data.get("set", True) else "runs again"
    author = f" by {data['author']}" if data.get("author") else ""
    return TimeMark(event.at, kind, f"{what} {did}{author}")


# Slow today


def slow_text(history: History, now: float, only: TrendFilter) -> str | None:
    """A sentence if runs of the last hour took much longer than in the two weeks before."""
    hour = read_trend(history, now, "hour", only)
    before = read_trend(history, now, "fortnight", only)
    recent = _whole(hour.tasks)
    usual = _whole(before.tasks)
    if recent is None or usual is None or hour.ended < _LEAST or before.ended < 4 * hour.ended:
        return None
    if recent < SLOWER * usual:
        return None
    return (
        f"the attempts of the last hour ran {_seconds(recent)} (median), {recent / usual:.1f} "
        f"times as long as in the two weeks before ({_seconds(usual)})"
    )


SLOWER = 2.0
_LEAST = 10  # attempts in the hour, to say anything


def _whole(tasks: Sequence[TaskTotals]) -> float | None:
    """The median run over tasks, each weighed by its attempts."""
    known = [(each.run, each.ended) for each in tasks if each.run is not None]
    number = sum(ended for _, ended in known)
    return sum(run * ended for run, ended in known) / number if number else None


def _seconds(value: float) -> str:
    return (
        f"{1000 * value:.0f} ms"
        if value < 1
        else (f"{value:.1f} s" if value < 60 else duration_text(value))
    )
