"""The datasets of an app, for surfaces that also work without Spark's side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import Refused
from penstock.operate.refusals import NotFound
from penstock.task.dataset import AskedPartitions
from penstock.task.interval import Timeline

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.spark.datasets.pipeline import Pipeline


def pipeline_of(app: App) -> Pipeline:
    """The datasets of an app; refused with the way out where what reads their tables is missing."""
    try:
        from penstock.spark.datasets.pipeline import Pipeline
    except ImportError as error:
        raise Refused(f"datasets need {error.name}: pip install 'penstock-queue[spark]'") from error
    return Pipeline(app)


class DatasetRange(NamedTuple):
    """Datasets, all without a name, and partitions from one to another, as people write them."""

    names: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None

    def in_pipeline(self, pipeline: Pipeline) -> AskedPartitions:
        """The same as moments; both partitions are included."""
        try:
            names = [pipeline.dataset(name).name for name in self.names]
        except Refused as error:
            raise NotFound(str(error)) from None
        wanted = tuple(names) or tuple(pipeline.graph.order)
        lines = [pipeline.graph.nodes[name].partitions for name in wanted]
        line = next((line for line in lines if isinstance(line, Timeline)), None)
        if line is None and (self.since or self.until):
            raise Refused(
                f"{self.since or self.until}: the partitions of {', '.join(wanted)} are names"
            )
        first = line.parse(self.since).start.timestamp() if line and self.since else None
        last = line.parse(self.until).end.timestamp() if line and self.until else None
        return AskedPartitions(wanted, first, last)
