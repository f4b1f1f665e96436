"""Rollups of attempts: load by task and by tag, failures, and how busy workers were.

**Wait** is from due to started, **run** from started to ended. After a retry `run_at` is when the
next attempt is due: such rows have no known wait.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.run.error_text import headline
from penstock.spark.pipelines.rollups.histogram import buckets
from penstock.spark.pipelines.rollups.tables import (
    BACKFILL,
    DAY,
    GRAINS,
    HOUR,
    MINUTE,
    conformed,
    floored,
    from_rows,
)
from penstock.spark.untyped_arrow import arrow, compute
from penstock.task.backfill import KEY, TAG

ENDED = ("succeeded", "failed", "cancelled")
LAPSES = ("crashed", "lost")
ERRORS = ("error", "timeout")
COLUMNS = (
    *("job", "queue", "task", "version", "state", "reason", "key", "worker", "tags", "error"),
    *("enqueued_at", "run_at", "started_at", "ended_at"),
)
_SECOND = 1_000_000
_PAIRS = arrow.list_(arrow.struct([("key", arrow.string()), ("value", arrow.string())]))
_LONGEST = 160
_QUOTED = re.compile("'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile("0x[0-9a-fA-F]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+")


def rollup_attempts(batches: Iterable[Any]) -> dict[str, Any]:
    """The tables that are made of attempts alone."""
    facts: list[Any] = []
    tagged: list[Any] = []
    failures: _Failures = {}
    workers: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0.0])
    for rows in batches:
        of_batch = _facts(rows)
        facts.append(of_batch)
        tagged.append(_tagged(of_batch, rows))
        _add_failures(rows, failures)
        _add_workers(rows, workers)
    if not facts:
        return {}
    whole, by_tag = arrow.concat_tables(facts), arrow.concat_tables(tagged)
    return {
        **{name: _load(name, whole, GRAINS[name]) for name in GRAINS},
        "tag_days": _load("tag_days", by_tag, DAY),
        "failures": from_rows("failures", list(_failure_rows(failures))),
        "workers": from_rows(
            "workers",
            [
                {"worker": worker, "at": at, "attempts": attempts, "busy": busy}
                for (worker, at), (attempts, busy) in workers.items()
            ],
        ),
    }


def micros(rows: Any, name: str) -> Any:
    """A column of times, in microseconds."""
    return rows.column(name).cast(arrow.timestamp("us", "UTC")).cast(arrow.int64())


def signature(error: str | None, reason: str | None) -> str:
    """What failures of one kind have in common: the headline without numbers and quoted words."""
    # An error may be a megabyte on one line: only its beginning is used.
    line = headline(error, 200_000)[: 4 * _LONGEST]
    return _NUMBER.sub("#", _QUOTED.sub("'…'", line))[:_LONGEST] or reason or "failed"


def _facts(rows: Any) -> Any:
    """One row per attempt, with what is counted of it."""
    ended, started = micros(rows, "ended_at"), micros(rows, "started_at")
    due = compute.max_element_wise(micros(rows, "enqueued_at"), micros(rows, "run_at"))
    in_time = compute.fill_null(compute.less_equal(due, started), fill_value=False)
    final = compute.is_in(rows.column("state"), arrow.array(ENDED))
    wait = compute.if_else(
        compute.or_(in_time, final), _spent(due, started), arrow.scalar(None, arrow.int64())
    )
    run = _spent(started, ended)
    return arrow.table(
        {
            **{name: rows.column(name) for name in ("queue", "task", "version", "state", "reason")},
            "at": floored(ended, MINUTE),
            "wait": buckets(wait),
            "run": buckets(run),
            "busy": compute.divide(run.cast(arrow.float64()), float(_SECOND)),
        }
    )


def _spent(start: Any, end: Any) -> Any:
    spent = compute.subtract(end, start)
    return compute.if_else(compute.less(spent, 0), 0, spent)


def _tagged(facts: Any, rows: Any) -> Any:
    """One row per attempt and tag; a partition of a backfill counts for its task."""
    tags = rows.column("tags").cast(_PAIRS)
    parents = compute.list_parent_indices(tags)
    pairs = compute.list_flatten(tags)
    names, values = pairs.field(0), pairs.field(1)
    filled = compute.and_(
        compute.equal(names, TAG),
        compute.fill_null(compute.equal(rows.column("key"), KEY), fill_value=False).take(parents),
    )
    chosen = facts.take(parents)
    return chosen.append_column("tag", compute.if_else(filled, BACKFILL, names)).append_column(
        "value", compute.if_else(filled, chosen.column("task"), values)
    )


def _load(name: str, facts: Any, every: int) -> Any:
    """Counts by state and reason, and the histograms, of each interval."""
    by = ["queue", "tag", "value"] if name == "tag_days" else ["queue", "task", "version"]
    at = facts.schema.names.index("at")
    facts = facts.set_column(at, "at", floored(facts.column("at"), every))
    ended = facts.group_by([*by, "at", "state", "reason"], use_threads=False).aggregate(
        [([], "count_all"), ("busy", "sum")]
    )
    tables = [_named(ended, "ended", {"count_all": "attempts", "busy_sum": "busy"})]
    for measure in ("wait", "run"):
        counted = facts.filter(compute.is_valid(facts.column(measure)))
        histogram = counted.group_by([*by, "at", measure], use_threads=False)
        names = {"count_all": "attempts", measure: "bucket"}
        tables.append(_named(histogram.aggregate([([], "count_all")]), measure, names))
    return arrow.concat_tables([conformed(name, table) for table in tables])


def _named(rows: Any, measure: str, names: dict[str, str]) -> Any:
    named = rows.rename_columns([names.get(name, name) for name in rows.schema.names])
    return named.append_column("measure", arrow.repeat(measure, rows.num_rows))


_Failures = dict[tuple[str, str, str | None, str, int], list[Any]]


def _add_failures(rows: Any, failures: _Failures) -> None:
    reasons = compute.is_in(rows.column("reason"), arrow.array([*LAPSES, *ERRORS]))
    bad = rows.filter(compute.or_(compute.equal(rows.column("state"), "failed"), reasons))
    names = ("queue", "task", "reason", "error", "state", "job")
    columns = [bad.column(name).to_pylist() for name in names]
    for queue, task, reason, error, state, job, at in zip(
        *columns, micros(bad, "ended_at").to_pylist(), strict=True
    ):
        day = at - at % (DAY * _SECOND)
        key = (queue, task, reason, signature(error, reason), day)
        known = failures.setdefault(key, [0, 0, at, at, job])
        known[0] += 1
        known[1] += state == "failed"
        known[2] = min(known[2], at)
        if at >= known[3]:
            known[3], known[4] = at, job


def _failure_rows(failures: _Failures) -> Iterator[dict[str, Any]]:
    for (queue, task, reason, text, day), (attempts, ended, first, last, job) in failures.items():
        yield {
            "queue": queue,
            "task": task,
            "reason": reason,
            "signature": text,
            "at": day,
            "attempts": attempts,
            "ended": ended,
            "first_at": first,
            "last_at": last,
            "example": job,
        }


def _add_workers(rows: Any, workers: dict[tuple[str, int], list[float]]) -> None:
    """Seconds in each hour; an attempt that spans hours counts in each of them."""
    hour = HOUR * _SECOND
    started, ended = micros(rows, "started_at"), micros(rows, "ended_at")
    ran = arrow.table(
        {
            "worker": rows.column("worker"),
            "started": started,
            "ended": ended,
            "first": floored(started, HOUR),
            "last": floored(ended, HOUR),
            "spent": compute.subtract(ended, started),
        }
    ).filter(compute.fill_null(compute.greater_equal(ended, started), fill_value=False))
    within = compute.equal(ran.column("first"), ran.column("last"))
    counted = (
        ran.filter(within)
        .group_by(["worker", "first"], use_threads=False)
        .aggregate([([], "count_all"), ("spent", "sum")])
    )
    for row in counted.to_pylist():
        known = workers[row["worker"], row["first"]]
        known[0] += row["count_all"]
        known[1] += row["spent_sum"] / _SECOND
    for row in ran.filter(compute.invert(within)).to_pylist():
        for at in range(row["first"], row["last"] + 1, hour):
            spent = min(row["ended"], at + hour) - max(row["started"], at)
            known = workers[row["worker"], at]
            known[0] += 1
            known[1] += spent / _SECOND
