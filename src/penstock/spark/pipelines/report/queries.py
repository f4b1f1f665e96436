"""What a report shows, from rollups, as plain values. No Spark.

The page, the terminal and `--json` all show these values, so they cannot differ. Times are seconds
since the epoch, durations are seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, floor
from typing import Any

import msgspec

from penstock.broker.histogram import middle, percentile
from penstock.spark.pipelines.report.forecast import forecast
from penstock.spark.pipelines.report.rollup_source import Rollups
from penstock.spark.pipelines.rollups.attempts import ENDED, ERRORS, LAPSES
from penstock.spark.pipelines.rollups.histogram import RANKS
from penstock.spark.pipelines.rollups.tables import (
    BACKFILL,
    DAY,
    GRAINS,
    HOUR,
    MINUTE,
    STATES,
    floored,
)
from penstock.spark.untyped_arrow import arrow, compute

Row = dict[str, Any]
_INTERVALS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY)
_POINTS = 180  # of a plot, at most
_WEEK = 7 * DAY
_EVER = 253_370_764_800.0  # the year 9999
MOST = 50  # rows of a table


class Range(msgspec.Struct, frozen=True):
    """Which part of the history: attempts that ended from `since` up to `until`."""

    since: float = 0.0
    until: float = _EVER
    task: str | None = None
    queue: str | None = None

    def where(self, *names: str) -> dict[str, str]:
        """The values that rows must have in those of these columns that were asked for."""
        asked = {"task": self.task, "queue": self.queue}
        return {name: value for name in names if (value := asked[name]) is not None}


class ReportData(msgspec.Struct, kw_only=True):
    """What a report shows."""

    source: str = ""  # "store" or "lake"
    where: str = ""  # which one
    task: str | None = None  # only this one
    queue: str | None = None
    gaps: list[Row] = []  # what the lake will never have
    made_at: float = 0.0
    first_at: float | None = None  # the minutes in which the first and the last attempt ended
    last_at: float | None = None
    every: int = MINUTE  # seconds of the interval that begins with `at`
    total: Row = {}
    over_time: list[Row] = []  # by queue, the busiest ones
    tasks: list[Row] = []  # by queue, task and version
    weeks: list[Row] = []  # by queue and task: the last seven days, and `before` the seven earlier
    backfills: list[Row] = []  # by task
    tags: list[Row] = []
    failures: list[Row] = []
    depth: list[Row] = []
    open_jobs: list[Row] = []  # by queue, at the end of this history
    schedules: list[Row] = []
    flows: list[Row] = []  # by kind
    steps: list[Row] = []  # by kind and task
    workers: list[Row] = []
    forecast: list[Row] = []


def query_report(rollups: Rollups, asked: Range | None = None) -> ReportData:
    """Everything that a report of this range shows."""
    asked = asked or Range()
    data = ReportData(task=asked.task, queue=asked.queue, open_jobs=_open(rollups, asked))
    first, last = _ends(rollups, asked)
    if first is None or last is None:
        data.total = _loads([], [])[()]
        return data
    # A minute, hour or day at the edge is of the range as a whole minute.
    since, until = max(asked.since, first), min(asked.until, last + MINUTE)
    data.first_at, data.last_at = first, last
    data.every = interval_for(last - first)
    query = _Query(rollups, asked)
    days = query.load(since, until, DAY)
    data.total = _loads(days, [])[()]
    by = ["queue", "task", "version"]
    data.tasks = _most(loads_by(days, by), "busy")
    busiest = _busiest(days)
    fine = query.load(since, until, data.every)
    by = ["queue", "at"]
    data.over_time = sorted(
        (row for row in loads_by(fine, by) if row["queue"] in busiest),
        key=lambda row: (row["at"], row["queue"]),
    )
    data.weeks = query.weeks(until)
    hours = query.load(since, until, HOUR, "ended")
    hourly = [*merged(hours, ["queue", "at"], ("attempts", "busy"))]
    data.total["busiest_hour"] = _busiest_hour(hourly)
    data.forecast = _most(forecast(hourly), "slots")
    if asked.task is None:
        tags = [rollups.read("tag_days", since - since % DAY, until, asked.where("queue"))]
        by = ["tag", "value"]
        by_tag = loads_by(tags, by)
        data.tags = _most((row for row in by_tag if row["tag"] != BACKFILL), "attempts")
        data.backfills = _most((row for row in by_tag if row["tag"] == BACKFILL), "attempts")
    query.add_others(data, since, until, busiest)
    return data


def _busiest_hour(hourly: Sequence[Row]) -> int:
    hours: dict[float, int] = defaultdict(int)
    for row in hourly:
        hours[row["at"]] += row["attempts"]
    return max(hours.values(), default=0)


def interval_for(span: float) -> int:
    """The seconds that one point of a plot over this span covers."""
    return next((size for size in _INTERVALS if span / size <= _POINTS), _INTERVALS[-1])


def spans(since: float, until: float, coarsest: int) -> Iterator[tuple[str, float, float]]:
    """The rollups that cover a span: coarse ones inside, finer ones at its edges."""
    sizes = [(name, size) for name, size in GRAINS.items() if size <= max(coarsest, MINUTE)]
    name, size = sizes[-1]
    if size == MINUTE:
        yield name, floor(since / size) * size, ceil(until / size) * size
        return
    start, end = ceil(since / size) * size, floor(until / size) * size
    if start >= end:
        yield from spans(since, until, sizes[-2][1])
        return
    yield name, start, end
    if since < start:
        yield from spans(since, start, sizes[-2][1])
    if end < until:
        yield from spans(end, until, sizes[-2][1])


class _Query:
    def __init__(self, rollups: Rollups, asked: Range) -> None:
        self._rollups = rollups
        self._asked = asked

    def load(self, since: float, until: float, every: int, measure: str | None = None) -> list[Any]:
        """Rows of load in this span; `at` is the begin of their interval."""
        where = self._asked.where("task", "queue")
        if measure is not None:
            where["measure"] = measure
        tables = [
            self._rollups.read(name, start, end, where)
            for name, start, end in spans(since, until, every)
        ]
        return [at_intervals(table, every) for table in tables]

    def weeks(self, until: float) -> list[Row]:
        """By queue and task: the last seven days, and the seven before."""
        by = ["queue", "task"]
        now = _loads(self.load(until - _WEEK, until, DAY), by)
        before = _loads(self.load(until - 2 * _WEEK, until - _WEEK, DAY), by)
        for name, row in now.items():
            row["before"] = before.get(name)
        return _most(_listed(now, by), "jobs")

    def add_others(self, data: ReportData, since: float, until: float, busiest: set[str]) -> None:
        """The tables that are by day or hour."""
        asked, day = self._asked, since - since % DAY
        where = asked.where("task", "queue")
        data.failures = _most(
            merged_failures(self._rollups.read("failures", day, until, where)), "attempts"
        )
        depth = self._rollups.read("depth", since, until, asked.where("queue"))
        data.depth = _depth(depth, data.every, busiest)
        if asked.task is None and asked.queue is None:
            data.workers = _most(
                _workers(self._rollups.read("workers", since - since % HOUR, until)), "busy"
            )
            data.schedules = _most(
                _schedules(self._rollups.read("schedules", day, until)), "late_longest"
            )
            data.flows = _most(_flows(self._rollups.read("flows", day, until)), "flows")
            data.steps = _most(_steps(self._rollups.read("flow_steps", day, until)), "spent")


def _ends(rollups: Rollups, asked: Range) -> tuple[float | None, float | None]:
    """The minutes of the first and of the last attempt."""
    where = {"measure": "ended", **asked.where("task", "queue")}
    days = _times(rollups.read("days", asked.since - asked.since % DAY, asked.until, where))
    if not days:
        return None, None
    ends: list[float] = []
    for day in (days[0], days[-1]):
        since, until = max(day, asked.since), min(day + DAY, asked.until)
        ends += _times(rollups.read("minutes", since - since % MINUTE, until, where))
    return (min(ends), max(ends)) if ends else (None, None)


def _times(table: Any) -> list[float]:
    return sorted(at.timestamp() for at in set(table.column("at").to_pylist()))


def at_intervals(table: Any, every: int) -> Any:
    """The rows with `at` as the begin of an interval, in microseconds."""
    place = table.schema.names.index("at")
    at = floored(table.column("at").cast(arrow.int64()), every)
    return table.set_column(place, "at", at)


def _loads(tables: Sequence[Any], by: list[str]) -> dict[tuple[Any, ...], Row]:
    """Counts and percentiles by these columns."""
    loads: dict[tuple[Any, ...], Row] = {} if by else {(): _no_load()}
    histograms: dict[tuple[Any, ...], dict[str, dict[int, int]]] = defaultdict(
        lambda: {"wait": {}, "run": {}}
    )
    ended, timed = (_measured(tables, histogram=histogram) for histogram in (False, True))
    for row in merged(ended, [*by, "state", "reason"], ("attempts", "busy")):
        name = tuple(row[key] for key in by)
        if name not in loads:
            loads[name] = _no_load()
        _count(loads[name], row)
    # Tuples, not rows as above: these are hundreds of thousands.
    for *values, measure, bucket, attempts in _columns(
        timed, [*by, "measure", "bucket"], ("attempts",)
    ):
        histograms[tuple(values)][measure][bucket] = attempts
    for name, load in loads.items():
        load["success_rate"] = load["succeeded"] / load["jobs"] if load["jobs"] else None
        for measure, counts in histograms[name].items():
            for rank, part in RANKS.items():
                load[f"{measure}_{rank}"] = percentile(counts, part)
    return loads


def _no_load() -> Row:
    counts = ("attempts", "jobs", *ENDED, "retries", "lapses")
    return {**dict.fromkeys(counts, 0), "busy": 0.0}


def _count(load: Row, row: Row) -> None:
    attempts, state, reason = row["attempts"], row["state"], row["reason"]
    load["attempts"] += attempts
    load["busy"] += row["busy"] or 0.0
    if state in ENDED:
        load["jobs"] += attempts
        load[state] += attempts
    elif reason in ERRORS:
        load["retries"] += attempts
    if reason in LAPSES:
        load["lapses"] += attempts


def merged(
    tables: Sequence[Any], by: list[str], sums: Sequence[str], how: str = "sum"
) -> Iterator[Row]:
    """Rows of several tables, merged by addition; times in seconds."""
    for values in _columns(tables, by, sums, how):
        yield dict(zip((*by, *sums), values, strict=True))


def _columns(
    tables: Sequence[Any], by: list[str], sums: Sequence[str], how: str = "sum"
) -> Iterator[tuple[Any, ...]]:
    if not tables:
        return iter(())
    whole = arrow.concat_tables([table.select([*by, *sums]) for table in tables])
    found = whole.group_by(by).aggregate([(name, how) for name in sums])
    if "at" in by:
        place = found.schema.names.index("at")
        seconds = compute.divide(found.column("at").cast(arrow.float64()), 1e6)
        found = found.set_column(place, "at", seconds)
    names = [*by, *(f"{name}_{how}" for name in sums)]
    return zip(*(found.column(name).to_pylist() for name in names), strict=True)


def _measured(tables: Sequence[Any], *, histogram: bool) -> list[Any]:
    """The rows of histograms, or the others."""
    chosen = compute.is_valid if histogram else compute.is_null
    return [table.filter(chosen(table.column("bucket"))) for table in tables]


def loads_by(tables: Sequence[Any], by: list[str]) -> list[Row]:
    """Counts and percentiles of rows of load, by these columns."""
    return _listed(_loads(tables, by), by)


def _listed(loads: Mapping[tuple[Any, ...], Row], by: list[str]) -> list[Row]:
    return [dict(zip(by, name, strict=True)) | load for name, load in loads.items()]


def _busiest(tables: Sequence[Any]) -> set[str]:
    """The queues with most attempts: there may be a queue per customer."""
    loads = loads_by(tables, ["queue"])
    return {row["queue"] for row in _most(loads, "attempts")}


def _open(rollups: Rollups, asked: Range) -> list[Row]:
    rows = [row for row in rollups.open_jobs() if asked.queue in {None, row["queue"]}]
    return _most(({**row, "at": row["at"].timestamp()} for row in rows), "ready", drop=("day",))


def merged_failures(table: Any) -> Iterator[Row]:
    """Failures of all days, by queue, task, reason and signature."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in table.to_pylist():
        row |= {name: row[name].timestamp() for name in ("first_at", "last_at")}
        del row["at"]
        known = found.setdefault(
            (row["queue"], row["task"], row["reason"], row["signature"]),
            {**row, "attempts": 0, "ended": 0},
        )
        known["attempts"] += row["attempts"]
        known["ended"] += row["ended"]
        known["first_at"] = min(known["first_at"], row["first_at"])
        if row["last_at"] >= known["last_at"]:
            known["last_at"], known["example"] = row["last_at"], row["example"]
    yield from found.values()


def _depth(table: Any, every: int, busiest: set[str]) -> list[Row]:
    rows = merged([at_intervals(table, every)], ["queue", "at"], (*STATES, "oldest"), "max")
    chosen = (row for row in rows if row["queue"] in busiest or len(busiest) < MOST)
    return sorted(chosen, key=lambda row: (row["at"], row["queue"]))


def _workers(table: Any) -> Iterator[Row]:
    hours: dict[str, list[Row]] = defaultdict(list)
    for row in merged([at_intervals(table, HOUR)], ["worker", "at"], ("attempts", "busy")):
        hours[row["worker"]].append(row)
    for worker, rows in hours.items():
        yield {
            "worker": worker,
            "attempts": sum(row["attempts"] for row in rows),
            "busy": sum(row["busy"] for row in rows),
            "hours": len(rows),
            "at_a_time": max(row["busy"] for row in rows) / HOUR,
            "first_at": min(row["at"] for row in rows),
            "last_at": max(row["at"] for row in rows),
        }


def _schedules(table: Any) -> Iterator[Row]:
    late: dict[str, dict[int, int]] = defaultdict(dict)
    decided: dict[str, Row] = {}
    sums = ("enqueued", "skipped", "jobs")
    for row in merged([table], ["schedule", "bucket"], sums):
        known = decided.setdefault(row["schedule"], {"enqueued": 0, "skipped": 0})
        if row["bucket"] is None:
            known |= {name: row[name] or 0 for name in ("enqueued", "skipped")}
        else:
            late[row["schedule"]][row["bucket"]] = row["jobs"]
    for schedule, row in decided.items():
        yield {"schedule": schedule, **row, **_spread("late", late[schedule], "p99")}


def _flows(table: Any) -> Iterator[Row]:
    elapsed: dict[str, dict[int, int]] = defaultdict(dict)
    bad: dict[str, int] = defaultdict(int)
    for row in merged([table], ["kind", "bucket"], ("flows", "bad")):
        elapsed[row["kind"]][row["bucket"]] = row["flows"]
        bad[row["kind"]] += row["bad"]
    for kind, counts in elapsed.items():
        row = {"kind": kind, "flows": sum(counts.values()), "bad": bad[kind]}
        yield {**row, **_spread("elapsed", counts, "p95")}


def _spread(name: str, counts: dict[int, int], high: str) -> Row:
    return {
        f"{name}_p50": percentile(counts, 0.5),
        f"{name}_{high}": percentile(counts, RANKS[high]),
        f"{name}_longest": middle(max(counts)) if counts else None,
    }


def _steps(table: Any) -> Iterator[Row]:
    rows = [*merged([table], ["kind", "task"], ("paths", "run", "gap", "again"))]
    whole: dict[str, float] = defaultdict(float)
    for row in rows:
        row["spent"] = row["run"] + row["gap"]
        whole[row["kind"]] += row["spent"]
    for row in rows:
        means = {name: row[name] / row["paths"] for name in ("run", "gap")}
        yield {**row, **means, "share": row["spent"] / (whole[row["kind"]] or 1.0)}


def _most(rows: Iterable[Row], by: str, drop: Sequence[str] = ()) -> list[Row]:
    """The rows with the highest value in the column `by`."""
    ordered = sorted(rows, key=lambda row: (-(row[by] or 0), *map(str, row.values())))
    return [{name: row[name] for name in row if name not in drop} for row in ordered[:MOST]]
