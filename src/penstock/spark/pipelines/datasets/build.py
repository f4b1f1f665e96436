"""Builds the datasets that are kept as tables of the lake, again for each day that has new rows.

Only datasets whose rows depend on a single day are kept: a rebuilt day replaces the old one in one
atomic change. Datasets that span days (jobs, flows) are computed when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F

from penstock.spark.pipelines.datasets.clean_attempts import MINUTE, clean
from penstock.spark.pipelines.datasets.failures import failures
from penstock.spark.pipelines.datasets.queue_depth import depth
from penstock.spark.pipelines.datasets.throughput import by_tag, load
from penstock.spark.pipelines.lake.raw_tables import read_raw, utc_day
from penstock.spark.pipelines.lake.write_parquet import stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.lake.lake import LakeWriter
    from penstock.spark.pipelines.lake.manifest import Manifest


class Dataset(NamedTuple):
    """A table of the lake that is made from the raw table `source`; it has a column `day`."""

    source: str
    make: Callable[[DataFrame], DataFrame]


def _minutes(attempts: DataFrame) -> DataFrame:
    return _with_day(load(clean(attempts), "queue", "task", "version", every=MINUTE))


def _tag_minutes(attempts: DataFrame) -> DataFrame:
    return _with_day(load(by_tag(clean(attempts)), "queue", "tag", "value", every=MINUTE))


def _failures(attempts: DataFrame) -> DataFrame:
    return failures(clean(attempts), "day")


def _depth(gauges: DataFrame) -> DataFrame:
    return _with_day(depth(gauges, MINUTE))


def _with_day(frame: DataFrame) -> DataFrame:
    return frame.withColumn("day", utc_day(F.col("at")))


DATASETS = {
    "minutes": Dataset("attempts", _minutes),
    "tag_minutes": Dataset("attempts", _tag_minutes),
    "failures": Dataset("attempts", _failures),
    "depth": Dataset("gauges", _depth),
}


def build(
    spark: SparkSession, writer: LakeWriter, on_progress: Callable[[str, int], None]
) -> dict[str, int]:
    """Bring every dataset up to date; returns the number of rebuilt days by dataset.

    `on_progress` is called before each dataset, with its name and the number of its days.
    """
    done: dict[str, int] = {}
    for name, dataset in DATASETS.items():
        manifest = writer.manifest()
        changed = changed_days(manifest, name, dataset.source)
        done[name] = len(changed)
        if not changed:
            continue
        on_progress(name, len(changed))
        before = [file for file in manifest.table(name).files if file.day in changed]
        rows = dataset.make(read_raw(spark, writer.lake, dataset.source, changed))
        with writer.staging() as folder:
            files = stage(rows.repartition("day"), folder)
            writer.publish(name, files, replaces=before, built=changed)
    return done


def changed_days(manifest: Manifest, name: str, source: str) -> dict[str, int]:
    """The days to rebuild, each with the newest generation of its source files."""
    newest = manifest.table(source).generations()
    built = manifest.table(name).built
    return {day: generation for day, generation in newest.items() if built.get(day) != generation}
