"""The pages of datasets: the graph, a grid of partitions for each, why, and running a range.

They need the app: only its code says what a dataset is made of.
"""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.errors import Refused
from penstock.flows.flow import NodeRow
from penstock.operate.datasets import DatasetRange, pipeline_of
from penstock.operate.parse_input import parse_integer
from penstock.operate.refusals import NotFound
from penstock.web.flow_drawing import draw
from penstock.web.request import WebRequest

MOST_CELLS = 1000  # of a grid
MOST_OF_EACH = 400  # partitions of each dataset on the first page
MOST_AT_ONCE = 10_000
MOST_ROWS = 60  # of the table below a grid
STATES = ("current", "stale", "missing", "enqueued", "running", "failed")


def show(request: WebRequest) -> Response:
    known = request.site.app is not None and bool(request.site.app.datasets)
    found = request.store.dataset_summaries(request.app, MOST_OF_EACH) if known else []
    states = {each.node.dataset: each for each in found}
    nodes = [
        NodeRow(
            id=each.node.dataset,
            flow="",
            task=each.node.dataset,
            jobs=each.partitions,
            needs=tuple(dict.fromkeys([*each.node.inputs, *each.node.after])),
            jobs_left=each.partitions - each.counts.get("current", 0),
            bad=each.counts.get("failed", 0),
        )
        for each in found
    ]
    return request.page(
        "datasets.html",
        title="Datasets",
        cli="penstock pipeline plan",
        datasets=found,
        drawing=draw(nodes, request.number("column", 0, 0, 10_000)),
        summaries=states,
        with_app=request.site.app is not None,
        most=MOST_OF_EACH,
    )


def one(request: WebRequest) -> Response:
    from penstock.spark.datasets.status import grid_lines

    asked = _named(request)
    grid = request.store.dataset_grid(request.app, asked, MOST_CELLS)
    lacking = sum(number for state, number in grid.counts.items() if state != "current")
    return request.page(
        "dataset.html",
        title=f"Dataset {grid.node.dataset}",
        cli=shlex.join(["penstock", "pipeline", "plan", grid.node.dataset]),
        grid=grid,
        node=grid.node,
        since=asked.since or "",
        until=asked.until or "",
        lines=grid_lines(grid),
        rows=grid.partitions[-MOST_ROWS:][::-1],
        lacking=lacking,
        states=STATES,
        timed=not isinstance(grid.node.partition, list),
    )


def partition(request: WebRequest) -> Response:
    [name] = _named(request).names
    text = request.word("partition").strip()
    why = request.store.dataset_why(request.app, name, text)
    found = why.standing
    return request.page(
        "dataset_partition.html",
        title=f"{found.dataset} {found.partition}",
        cli=shlex.join(["penstock", "pipeline", "why", found.dataset, found.partition]),
        why=why,
        standing=found,
        made=why.made,
        timed=why.timed,
    )


def prepare(request: WebRequest) -> Response:
    """What a run would enqueue; nothing is changed."""
    asked = _named(request)
    again = request.word("again") == "yes"
    foreseen = request.store.foresee_datasets(request.app, asked, again=again)
    [name] = asked.names
    return request.page(
        "dataset_run.html",
        title=f"Run {name}",
        cli=shlex.join(_command(asked, again=again)),
        name=name,
        since=asked.since or "",
        until=asked.until or "",
        again=again,
        foreseen=foreseen,
        jobs=sum(foreseen.enqueued.values()),
    )


def run(request: WebRequest) -> Response:
    form = request.form()
    name, since, until, most = (
        form.get(each, "").strip() for each in ("name", "since", "until", "max_running")
    )
    if not name:
        raise Refused("name a dataset")
    pipeline = pipeline_of(request.app)
    request.store.run_datasets(
        request.app,
        DatasetRange((name,), since or None, until or None).in_pipeline(pipeline),
        again=form.get("again") == "yes",
        max_running=parse_integer(most, "max_running", 1, MOST_AT_ONCE) if most else None,
        reason=form.get("reason", ""),
    )
    return request.go("/datasets/one", name=name, since=since or None, until=until or None)


def _named(request: WebRequest) -> DatasetRange:
    name = request.word("name").strip()
    if not name:
        raise NotFound("No dataset was named. Choose one on the page Datasets.")
    since, until = (request.word(each).strip() or None for each in ("since", "until"))
    return DatasetRange((name,), since, until)


def _command(asked: DatasetRange, *, again: bool) -> list[str]:
    words = ["penstock", "pipeline", "run", *asked.names]
    words += ["--since", asked.since] if asked.since else []
    words += ["--until", asked.until] if asked.until else []
    return [*words, "--again"] if again else words
