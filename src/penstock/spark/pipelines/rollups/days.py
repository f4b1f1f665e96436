"""Rollups that need whole days: flows, schedules and depth.

The critical path of a flow is found from times alone, backwards: the step that ended last; before
it, of the steps that had ended when it began, the one that ended last; and so on. The runs of these
steps and the gaps before them, in which a job was due and no worker ran it, add up to its time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from penstock.spark.pipelines.rollups.attempts import ENDED, micros
from penstock.spark.pipelines.rollups.histogram import buckets
from penstock.spark.pipelines.rollups.tables import (
    DAY,
    MINUTE,
    STATES,
    conformed,
    floored,
    from_rows,
)
from penstock.spark.untyped_arrow import arrow, compute

STEP_COLUMNS = (
    *("shard", "job", "task", "state", "attempt", "flow", "node"),
    *("enqueued_at", "started_at", "ended_at"),
)
EVENT_COLUMNS = ("shard", "kind", "at", "job", "data")
# A flow is counted on the day on which its final job ended, with its steps of these days; a job of
# a schedule with the decisions of these.
FLOW_DAYS, SCHEDULE_DAYS = 2, 8
_SECOND = 1_000_000
_DAY = DAY * _SECOND


class _Step(msgspec.Struct):
    task: str
    started: int
    ended: int
    again: int = 0


class _Flow(msgspec.Struct):
    enqueued: int = 1 << 62
    final: tuple[int, str] | None = None  # when the final job ended, and its task
    bad: bool = False
    steps: dict[str, _Step] = {}


class _Decision(msgspec.Struct):
    """What a schedule decided about a slot."""

    schedule: str = ""
    says: str = ""
    slot: str | None = None
    slots: int = 1


def rollup_days(
    attempts: Iterable[Any], events: Iterable[Any], gauges: Iterable[Any], day: int | None = None
) -> dict[str, Any]:
    """Flows and schedule decisions that ended on a day (its begin in microseconds), or on any."""
    flows = _Flows()
    schedules = _Schedules(events, day)
    for rows in attempts:
        flows.add(rows)
        schedules.add(rows)
    return {**flows.tables(day), "schedules": schedules.table(), "depth": depth(gauges)}


class _Flows:
    def __init__(self) -> None:
        self._flows: dict[tuple[str, str], _Flow] = {}
        # Attempts that were followed by another do not name their flow; the job's last one does.
        self._earlier: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, rows: Any) -> None:
        # Retried attempts first: of a job they are before the last one in any case.
        states = compute.is_in(rows.column("state"), arrow.array(ENDED))
        for shard, job, started in _tuples(
            rows.filter(compute.invert(states)), ("shard", "job"), ("started_at",)
        ):
            if started is not None:
                first, count = self._earlier.get((shard, job), (started, 0))
                self._earlier[shard, job] = min(first, started), count + 1
        members = rows.filter(compute.and_(states, compute.is_valid(rows.column("flow"))))
        times = ("enqueued_at", "started_at", "ended_at")
        for row in _tuples(members, ("shard", "job", "task", "state", "flow", "node"), times):
            self._add_member(row)

    def _add_member(self, row: tuple[Any, ...]) -> None:
        shard, job, task, state, name, node, enqueued, started, ended = row
        flow = self._flows.setdefault((shard, name), _Flow())
        flow.enqueued = min(flow.enqueued, enqueued)
        flow.bad |= state != "succeeded"
        if node == name:
            flow.final = (ended, task)
        if started is None:
            return
        first, again = self._earlier.pop((shard, job), (started, 0))
        step = flow.steps.setdefault(node, _Step(task, first, ended))
        step.started, step.ended = min(step.started, first), max(step.ended, ended)
        step.again += again

    def tables(self, day: int | None) -> dict[str, Any]:
        elapsed: Counter[tuple[str, int, int, bool]] = Counter()
        paths: dict[tuple[str, str, int], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0])
        for flow in self._flows.values():
            if flow.final is None or not flow.steps:
                continue
            at = flow.final[0] - flow.final[0] % _DAY
            if day is not None and at != day:
                continue
            last = max(step.ended for step in flow.steps.values())
            kind = flow.final[1]
            elapsed[kind, at, max(0, last - flow.enqueued), flow.bad] += 1
            before = flow.enqueued
            for step in _critical_path(flow):
                known = paths[kind, step.task, at]
                known[0] += 1
                known[1] += (step.ended - step.started) / _SECOND
                known[2] += (step.started - before) / _SECOND
                known[3] += step.again
                before = step.ended
        spent = buckets(arrow.array([key[2] for key in elapsed], arrow.int64())).to_pylist()
        return {
            "flows": from_rows(
                "flows",
                [
                    {"kind": kind, "at": at, "bucket": bucket, "flows": many, "bad": many * bad}
                    for ((kind, at, _, bad), many), bucket in zip(
                        elapsed.items(), spent, strict=True
                    )
                ],
            ),
            "flow_steps": from_rows(
                "flow_steps",
                [
                    {
                        "kind": kind,
                        "task": task,
                        "at": at,
                        "paths": count,
                        "run": run,
                        "gap": gap,
                        "again": again,
                    }
                    for (kind, task, at), (count, run, gap, again) in paths.items()
                ],
            ),
        }


def _critical_path(flow: _Flow) -> list[_Step]:
    path: list[_Step] = []
    for step in sorted(flow.steps.values(), key=lambda step: (-step.ended, -step.started)):
        if not path or step.ended <= path[-1].started:
            path.append(step)
    return path[::-1]


class _Schedules:
    def __init__(self, events: Iterable[Any], day: int | None) -> None:
        self._day = day
        self._slots: dict[tuple[str, str], tuple[str, int]] = {}  # job -> its schedule and slot
        self._decided: Counter[tuple[str, int, str]] = Counter()
        self._late: list[tuple[str, int, int]] = []
        for rows in events:
            decisions = rows.filter(compute.equal(rows.column("kind"), "schedule"))
            for shard, job, data, at in _tuples(decisions, ("shard", "job", "data"), ("at",)):
                self._decide(shard, job, _decision(data), at)

    def _decide(self, shard: str, job: str | None, decision: _Decision, at: int) -> None:
        if decision.slot is None:
            return
        enqueued = decision.says.startswith("enqueued")
        if enqueued and job is not None:
            slot = round(_SECOND * datetime.fromisoformat(decision.slot).timestamp())
            self._slots[shard, job] = decision.schedule, slot
        at -= at % _DAY
        if self._day in {None, at}:
            self._decided[decision.schedule, at, "enqueued"] += enqueued
            self._decided[decision.schedule, at, "skipped"] += decision.slots - enqueued

    def add(self, rows: Any) -> None:
        if not self._slots:
            return
        first = rows.filter(compute.equal(rows.column("attempt"), 1))
        for shard, job, started, ended in _tuples(
            first, ("shard", "job"), ("started_at", "ended_at")
        ):
            if started is not None and (shard, job) in self._slots:
                schedule, slot = self._slots[shard, job]
                at = ended - ended % _DAY
                if self._day in {None, at}:
                    self._late.append((schedule, at, max(0, started - slot)))

    def table(self) -> Any:
        late = buckets(arrow.array([spent for _, _, spent in self._late], arrow.int64()))
        jobs = Counter(
            (schedule, at, bucket)
            for (schedule, at, _), bucket in zip(self._late, late.to_pylist(), strict=True)
        )
        return from_rows(
            "schedules",
            [
                *(
                    {"schedule": schedule, "at": at, what: number}
                    for (schedule, at, what), number in self._decided.items()
                ),
                *(
                    {"schedule": schedule, "at": at, "bucket": bucket, "jobs": number}
                    for (schedule, at, bucket), number in jobs.items()
                ),
            ],
        )


def depth(gauges: Iterable[Any]) -> Any:
    """The highest count of each state per queue and minute; counts of several shards add up."""
    tables = [arrow.Table.from_batches([rows]) for rows in gauges]
    if not tables:
        return from_rows("depth", [])
    rows = arrow.concat_tables(tables)
    moments = rows.group_by(["queue", "at"], use_threads=False).aggregate(
        [*((state, "sum") for state in STATES), ("oldest", "max")]
    )
    at = moments.schema.names.index("at")
    minutes = (
        moments.set_column(at, "at", floored(micros(moments, "at"), MINUTE))
        .group_by(["queue", "at"], use_threads=False)
        .aggregate([*((f"{state}_sum", "max") for state in STATES), ("oldest_max", "max")])
    )
    names = [name.partition("_")[0] for name in minutes.schema.names]
    return conformed("depth", minutes.rename_columns(names))


def _decision(data: str | None) -> _Decision:
    try:
        return msgspec.json.decode(data or "{}", type=_Decision)
    except msgspec.MsgspecError:
        return _Decision()  # damaged: the other rows can be read


def _tuples(rows: Any, names: Iterable[str], times: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    columns = [rows.column(name).to_pylist() for name in names]
    columns += [micros(rows, name).to_pylist() for name in times]
    return zip(*columns, strict=True)
