"""What is told of datasets: values for `--json`, REST and the pages alike. No Spark is imported."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.task.dataset_plan import CheckResult, Made


class DatasetNodeJson(msgspec.Struct, frozen=True):
    """A dataset as it was declared."""

    dataset: str
    partition: str | list[str]
    zone: str | None
    inputs: list[str]
    after: list[str]
    sources: list[str]
    table: str
    version: int


class PartitionKey(msgspec.Struct, frozen=True):
    """A partition of a dataset."""

    dataset: str
    partition: str


class StandingJson(msgspec.Struct, frozen=True):
    """Where a partition stands."""

    dataset: str
    partition: str
    state: str
    because: str
    waits_for: list[PartitionKey]
    run: str | None
    rows: int | None
    job: str | None


class PlanJson(msgspec.Struct, frozen=True):
    """How many partitions of each dataset are in each state, and those that are not current."""

    counts: dict[str, dict[str, int]]
    lacking: list[StandingJson]
    late: list[PartitionKey]


class PartitionRowJson(msgspec.Struct, frozen=True):
    """A partition in a grid; what its log says of the run is null where that is too old."""

    partition: str
    state: str
    late: bool
    run: str | None
    rows: int | None
    seconds: float | None
    checks: list[CheckResult] | None
    made_by: str | None
    job: str | None


class GridJson(msgspec.Struct, frozen=True):
    """A dataset with its partitions; `left_out`: earlier ones of the range."""

    node: DatasetNodeJson
    counts: dict[str, int]
    partitions: list[PartitionRowJson]
    left_out: int


class PartitionWhy(msgspec.Struct, frozen=True):
    """Why a partition is as it is, and the run that made it."""

    standing: StandingJson
    says: str
    waits_for: list[tuple[PartitionKey, str]]
    made: Made | None
    timed: bool  # whether it is an interval


class DatasetSummary(NamedTuple):
    """A dataset in the list of all."""

    node: DatasetNodeJson
    counts: dict[str, int]
    rows: int
    late: int
    refused: str  # why nobody knows

    @property
    def partitions(self) -> int:
        return sum(self.counts.values())
