"""Build: the datasets that the lake keeps ready, made anew for the days that changed.

Only what is closed within a day is kept: for those days alone it is made again, and takes the place
of what was there in one change. What spans days (jobs, flows) is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.functions import col

from penstock.spark.pipelines.datasets.clean_attempts import MINUTE, clean
from penstock.spark.pipelines.datasets.failures import failures
from penstock.spark.pipelines.datasets.queue_depth import depth
from penstock.spark.pipelines.datasets.throughput import by_tag, load
from penstock.spark.pipelines.lake.raw_tables import read_raw, utc_day
from penstock.spark.pipelines.lake.write_parquet import spark_path, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.pipelines.lake.lake import Lake, LakeWriter
    from penstock.spark.pipelines.lake.manifest import Manifest


class Dataset(NamedTuple):
    """What it is made of, and how; the answer has the column `day`."""

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
    return frame.withColumn("day", utc_day(col("at")))


DATASETS = {
    "minutes": Dataset("attempts", _minutes),
    "tag_minutes": Dataset("attempts", _tag_minutes),
    "failures": Dataset("attempts", _failures),
    "depth": Dataset("gauges", _depth),
}


def build(
    spark: SparkSession, writing: LakeWriter, told: Callable[[str, int], None]
) -> dict[str, int]:
    """Bring every dataset up to date; the days that were made anew, by dataset.

    `told` hears of every dataset before it is made, with the number of its days.
    """
    done: dict[str, int] = {}
    for name, dataset in DATASETS.items():
        manifest = writing.manifest()
        changed = changed_days(manifest, name, dataset.source)
        done[name] = len(changed)
        if not changed:
            continue
        told(name, len(changed))
        before = [file for file in manifest.table(name).files if file.day in changed]
        made = dataset.make(read_raw(spark, writing.lake, dataset.source, changed))
        with writing.staging() as place:
            files = stage(made.repartition("day"), place)
            writing.publish(name, files, replaces=before, built=changed)
    return done


def changed_days(manifest: Manifest, name: str, source: str) -> dict[str, int]:
    """The days of a source that are not in a dataset as they are now, each as it is now."""
    now: dict[str, int] = {}
    for file in manifest.table(source).files:
        now[file.day] = max(now.get(file.day, 0), file.generation)
    built = manifest.table(name).built
    return {day: generation for day, generation in now.items() if built.get(day) != generation}


def read_dataset(spark: SparkSession, lake: Lake, name: str) -> DataFrame | None:
    """A dataset as `build` left it; None if it has no row."""
    files = [spark_path(path) for path in lake.files(name)]
    if not files:
        return None
    return spark.read.option("basePath", spark_path(lake.folder / name)).parquet(*files)
