"""What is to be made: each partition is current, stale or missing, by the versions that there are.

A version is named after what it was made from: the number of the code, a hash of the versions of
its inputs, and how often it was made of the same. So a table says by itself whether it is current,
and the name of the version that is to come is known before anything runs.

    3-9f2ab4c1….0        code 3, these inputs, made once
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from penstock.task.dataset_graph import Graph, Key, Partition
from penstock.task.interval import Interval

_DIGITS = 24


class PartitionState(StrEnum):
    CURRENT = "current"
    STALE = "stale"
    MISSING = "missing"


class PartitionVersion(msgspec.Struct, frozen=True):
    """A partition as its table has it now."""

    run: str
    rows: int = 0
    bytes: int = 0

    @property
    def base(self) -> str:
        return base_of(self.run)

    @property
    def code(self) -> str:
        return self.run.partition("-")[0]


class CheckResult(msgspec.Struct, frozen=True):
    """What a check counted in one run."""

    name: str
    bad: int
    at_most: int = 0
    on_failure: str = "fail"

    @property
    def passed(self) -> bool:
        return self.bad <= self.at_most


class Made(msgspec.Struct, frozen=True, kw_only=True, tag="made"):
    """A version of a partition, and the run that made it; kept with the job and in the table."""

    dataset: str
    partition: str
    run: str
    job: str
    attempt: int
    rows: int
    bytes: int
    inputs: list[Any]
    checks: list[CheckResult] = []
    seconds: float = 0.0
    found: bool = False  # an earlier attempt, or another job, had committed it


class PipelineRun(msgspec.Struct, frozen=True, kw_only=True, tag="pipeline_run"):
    """What one call of `run` enqueued: runs of partitions, by dataset."""

    enqueued: dict[str, int]
    retried: int = 0
    open: int = 0  # jobs that were there before
    waiting: int = 0  # partitions that follow, once what they need is current


Versions = Mapping[str, Mapping[str, PartitionVersion]]  # by dataset and partition
SourceVersion = Callable[[str, int, Partition], str]


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where a partition stands."""

    dataset: str
    partition: str
    state: PartitionState
    because: str = ""  # in words
    waits_for: tuple[Key, ...] = ()  # not current themselves
    version: PartitionVersion | None = None
    base: str | None = None  # of the version to come; None: an input has no version yet
    over: bool = True  # its interval, by now

    @property
    def key(self) -> Key:
        return self.dataset, self.partition

    @property
    def due(self) -> bool:
        """Whether it is to be made, and can be."""
        return self.state is not PartitionState.CURRENT and self.over and not self.waits_for


def base_of(run: str) -> str:
    return run.rpartition(".")[0]


def run_name(base: str, again: int) -> str:
    return f"{base}.{again}"


def base_name(code: int, inputs: Any) -> str:
    """The name of what is made by this code of these versions."""
    return f"{code}-{hashlib.sha256(msgspec.json.encode(inputs)).hexdigest()[:_DIGITS]}"


def closure(
    graph: Graph, targets: Iterable[tuple[str, Partition]]
) -> dict[str, dict[str, Partition]]:
    """These partitions and all that they need, by dataset."""
    found: dict[str, dict[str, Partition]] = {}
    remaining = list(targets)
    while remaining:
        name, partition = remaining.pop()
        known = found.setdefault(name, {})
        text = str(partition)
        if text in known:
            continue
        known[text] = partition
        for ref, parts in graph.parents(name, partition):
            remaining += [(ref.name, each) for each in parts]
        remaining += graph.before(name, partition)
    return found


def no_version(*_: object) -> str:
    """Of sources that say nothing of themselves: they never make anything stale."""
    return ""


def make_plan(
    graph: Graph,
    targets: Iterable[tuple[str, Partition]],
    versions: Versions,
    source_version: SourceVersion = no_version,
    now: datetime | None = None,
) -> dict[Key, PartitionPlan]:
    """Where each of these partitions stands, and each that they need; in order of need.

    Intervals that end after `now` are not over, and nothing is made of them.
    """
    needed = closure(graph, targets)
    inputs_of = Inputs(graph, versions, source_version)
    plans: dict[Key, PartitionPlan] = {}
    for name in graph.order:
        for partition in sorted(needed.get(name, {}).values(), key=_in_time):
            plan = _plan_one(inputs_of, name, partition, plans, now)
            plans[plan.key] = plan
    return plans


def _in_time(partition: Partition) -> Any:
    return partition.start.timestamp() if isinstance(partition, Interval) else 0


class Inputs:
    """What partitions are made of, by the versions that there are."""

    def __init__(
        self, graph: Graph, versions: Versions, source_version: SourceVersion = no_version
    ) -> None:
        self.graph = graph
        self.versions = versions
        self._source_version = source_version

    def of(self, name: str, partition: Partition) -> list[Any] | None:
        """The versions of all that a partition is made of; None if one of them is not there."""
        found: list[Any] = []
        for ref, parts in self.graph.parents(name, partition):
            table = self.versions.get(ref.name, {})
            texts = [str(each) for each in parts]
            if any(text not in table for text in texts):
                return None
            found.append([ref.name, [[text, table[text].run] for text in texts]])
        sources = self.graph.nodes[name].sources
        return [*found, *([n, self._source_version(name, n, partition)] for n in range(sources))]


def _plan_one(
    inputs_of: Inputs,
    name: str,
    partition: Partition,
    plans: Mapping[Key, PartitionPlan],
    now: datetime | None,
) -> PartitionPlan:
    graph = inputs_of.graph
    version = inputs_of.versions.get(name, {}).get(str(partition))
    inputs = inputs_of.of(name, partition)
    code = graph.nodes[name].code
    base = None if inputs is None else base_name(code, inputs)
    made_of = [(ref.name, each) for ref, parts in graph.parents(name, partition) for each in parts]
    unmade = _not_current(made_of, plans)
    state, because = PartitionState.CURRENT, ""
    if version is None:
        state, because = PartitionState.MISSING, "it was never made"
    elif version.code != str(code):
        state = PartitionState.STALE
        because = f"version {version.code} of the code made it, and there is version {code}"
    elif unmade:
        state = PartitionState.STALE
        because = f"its input {' '.join(unmade[0])} is not current"
    elif version.base != base:
        state, because = PartitionState.STALE, "an input has another version than it was made of"
    waits = (
        []
        if state is PartitionState.CURRENT
        else _not_current(graph.before(name, partition), plans)
    )
    over = now is None or not isinstance(partition, Interval) or partition.end <= now
    if not over and state is not PartitionState.CURRENT:
        because = "its interval is not over"
    return PartitionPlan(
        dataset=name,
        partition=str(partition),
        state=state,
        because=because,
        waits_for=tuple(dict.fromkeys([*unmade, *waits])),
        version=version,
        base=base,
        over=over,
    )


def _not_current(
    parts: Iterable[tuple[str, Partition]], plans: Mapping[Key, PartitionPlan]
) -> list[Key]:
    keys = [(name, str(each)) for name, each in parts]
    return [key for key in keys if plans[key].state is not PartitionState.CURRENT]
