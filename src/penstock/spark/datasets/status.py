"""Where datasets and their partitions stand, as every surface shows it. Nothing is changed here.

States, versions and rows come from the newest snapshot of each table. How long a run took and what
its checks counted stands in the log, of which only the newest commits are read for a grid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from penstock.errors import Refused
from penstock.operate.dataset_json import (
    DatasetNodeJson,
    DatasetSummary,
    GridJson,
    PartitionKey,
    PartitionRowJson,
    PartitionWhy,
    PlanJson,
    StandingJson,
)
from penstock.operate.datasets import DatasetRange
from penstock.spark.datasets.pipeline import Pipeline, Standing
from penstock.spark.datasets.table import DatasetTable
from penstock.task.dataset import AskedPartitions
from penstock.task.dataset_graph import Partition
from penstock.task.dataset_plan import Made
from penstock.task.interval import Timeline

MOST_COMMITS = 500  # of a table's log that are read for a grid
_LABELS = {"hour": 10, "day": 7, "week": 4, "month": 4}  # of an interval's text: its row in a grid


def node_json(pipeline: Pipeline, name: str) -> DatasetNodeJson:
    node, dataset = pipeline.graph.nodes[name], pipeline.app.datasets[name]
    line = node.partitions
    return DatasetNodeJson(
        dataset=name,
        partition=line.every if isinstance(line, Timeline) else list(line),
        zone=line.zone if isinstance(line, Timeline) else None,
        inputs=[ref.name for ref in node.inputs],
        after=[*(ref.name for ref in node.after), *(["previous"] if node.previous else [])],
        sources=[source.name for source in dataset.sources],
        table=str(dataset.place),
        version=node.code,
    )


def standing_json(standing: Standing) -> StandingJson:
    plan, version = standing.plan, standing.plan.version
    return StandingJson(
        dataset=plan.dataset,
        partition=plan.partition,
        state=str(standing.state),
        because=plan.because,
        waits_for=[PartitionKey(name, text) for name, text in plan.waits_for],
        run=None if version is None else version.run,
        rows=None if version is None else version.rows,
        job=None if standing.job is None else standing.job.id,
    )


def counted(standings: Iterable[Standing]) -> dict[str, dict[str, int]]:
    """The number of partitions in each state, by dataset."""
    counts: dict[str, dict[str, int]] = {}
    for each in standings:
        of_dataset = counts.setdefault(each.plan.dataset, {})
        state = str(each.state)
        of_dataset[state] = of_dataset.get(state, 0) + 1
    return counts


def plan_json(pipeline: Pipeline, standings: Sequence[Standing]) -> PlanJson:
    return PlanJson(
        counts=counted(standings),
        lacking=[standing_json(each) for each in standings if each.plan.state != "current"],
        late=[PartitionKey(name, text) for name, text in pipeline.late(standings)],
    )


def standing_text(standing: Standing) -> str:
    """The state in words: why, by which job, or what it waits for."""
    plan, job = standing.plan, standing.job
    words = str(standing.state)
    if job is not None:
        words += f" (job {job.id})"
        if standing.state == "failed":
            words += f": {(job.error or job.reason or '').partition(chr(10))[0]}"
    elif plan.because:
        words += f": {plan.because}"
    if plan.waits_for and job is None:
        words += f"; it waits for {' '.join(plan.waits_for[0])}"
        if len(plan.waits_for) > 1:
            words += f" and {len(plan.waits_for) - 1:,} more"
    return words


def why_partition(pipeline: Pipeline, dataset: str, text: str) -> PartitionWhy:
    """Why this partition is as it is, and what made it."""
    name = pipeline.dataset(dataset).name
    partition: Partition = pipeline.graph.partition(name, text)
    plans = pipeline.plan([(name, partition)])
    standings = {each.plan.key: each for each in pipeline.standings(plans)}
    standing = standings[name, str(partition)]
    version = standing.plan.version
    table = DatasetTable(pipeline.app.datasets[name].place).find()
    made = None if version is None or table is None else table.made(str(partition), run=version.run)
    waits = [(PartitionKey(*key), standing_text(standings[key])) for key in standing.plan.waits_for]
    return PartitionWhy(
        standing_json(standing),
        standing_text(standing),
        waits,
        made,
        not isinstance(partition, str),
    )


def read_grid(pipeline: Pipeline, asked: DatasetRange, most: int) -> GridJson:
    """The last partitions of a dataset in a range, with their versions and runs."""
    in_pipeline = asked.in_pipeline(pipeline)
    [name] = in_pipeline.wanted
    partitions = pipeline.asked_partitions(in_pipeline)
    shown = partitions[-most:]
    standings = _standings_of(pipeline, shown)
    late = set(pipeline.late(standings))
    table = DatasetTable(pipeline.app.datasets[name].place).find()
    made = {} if table is None else table.made_lately(MOST_COMMITS)
    return GridJson(
        node_json(pipeline, name),
        dict(Counter(str(each.state) for each in standings)),
        [_row(each, made, late=each.plan.key in late) for each in standings],
        len(partitions) - len(shown),
    )


def _standings_of(pipeline: Pipeline, targets: Sequence[tuple[str, Partition]]) -> list[Standing]:
    """Where these stand, in their order, without what they need."""
    found = {each.plan.key: each for each in pipeline.standings(pipeline.plan(targets))}
    return [found[name, str(partition)] for name, partition in targets]


def _row(standing: Standing, made: dict[tuple[str, str], Made], *, late: bool) -> PartitionRowJson:
    plan, version = standing.plan, standing.plan.version
    run = None if version is None else made.get((plan.partition, version.run))
    return PartitionRowJson(
        partition=plan.partition,
        state=str(standing.state),
        late=late,
        run=None if version is None else version.run,
        rows=None if version is None else version.rows,
        seconds=None if run is None else run.seconds,
        checks=None if run is None else run.checks,
        made_by=None if run is None else run.job,
        job=None if standing.job is None else standing.job.id,
    )


def summarize(pipeline: Pipeline, most: int) -> list[DatasetSummary]:
    """All datasets in order of need, each with its newest partitions."""
    targets: list[tuple[str, Partition]] = []
    refused: dict[str, str] = {}
    for name in pipeline.graph.order:
        try:
            targets += pipeline.asked_partitions(AskedPartitions((name,)))[-most:]
        except Refused as error:  # it does not say where it begins
            refused[name] = str(error)
    standings = _standings_of(pipeline, targets)
    counts = counted(standings)
    late = Counter(name for name, _ in pipeline.late(standings))
    rows: Counter[str] = Counter()
    for each in standings:
        if each.plan.version is not None:
            rows[each.plan.dataset] += each.plan.version.rows
    return [
        DatasetSummary(
            node_json(pipeline, name),
            counts.get(name, {}),
            rows[name],
            late[name],
            refused.get(name, ""),
        )
        for name in pipeline.graph.order
    ]


def grid_lines(grid: GridJson) -> list[tuple[str, list[PartitionRowJson]]]:
    """The partitions in lines: days by month, hours by day, weeks and months by year."""
    kind = grid.node.partition
    if isinstance(kind, list):
        return [("", grid.partitions)]
    length = _LABELS[kind]
    return [
        (label, list(found))
        for label, found in groupby(grid.partitions, lambda row: row.partition[:length])
    ]
