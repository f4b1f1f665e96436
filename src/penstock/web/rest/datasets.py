"""Datasets over REST: what there is, what it lacks and why, and enqueueing what is lacking."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.operate.dataset_json import DatasetNodeJson, GridJson, PartitionWhy, PlanJson
from penstock.operate.datasets import DatasetRange, pipeline_of
from penstock.operate.refusals import NotFound
from penstock.task.dataset_plan import PipelineRun
from penstock.web.request import WebRequest

MOST_PARTITIONS = 10_000


class DatasetList(msgspec.Struct):
    """The datasets of the dashboard's app, in order of need."""

    datasets: list[DatasetNodeJson]


class RunRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Datasets to bring up to date; all without a name. `again`: what is current, too."""

    datasets: Annotated[list[str], Meta(max_length=1000)] = []
    since: str | None = None
    until: str | None = None
    again: bool = False
    max_running: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    dry_run: bool = False
    reason: str = ""


def list_all(request: WebRequest) -> DatasetList:
    return DatasetList(request.store.dataset_nodes(request.app))


def plan(request: WebRequest) -> PlanJson:
    return request.store.dataset_plan(request.app, _asked(request))


def one(request: WebRequest) -> GridJson:
    asked = _asked(request)
    if not asked.names:
        raise NotFound("name a dataset: ?dataset=")
    return request.store.dataset_grid(request.app, asked, MOST_PARTITIONS)


def why(request: WebRequest) -> PartitionWhy:
    return request.store.dataset_why(
        request.app, request.word("dataset"), request.word("partition")
    )


def run(request: WebRequest) -> PipelineRun:
    given = request.json(RunRequest)
    asked = DatasetRange(tuple(given.datasets), given.since, given.until)
    if given.dry_run:
        return request.store.foresee_datasets(request.app, asked, again=given.again)
    return request.store.run_datasets(
        request.app,
        asked.in_pipeline(pipeline_of(request.app)),
        again=given.again,
        max_running=given.max_running,
        reason=given.reason,
    )


def _asked(request: WebRequest) -> DatasetRange:
    name = request.word("dataset")
    return DatasetRange(
        (name,) if name else (), request.word("since") or None, request.word("until") or None
    )
