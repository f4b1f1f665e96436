"""Frames become files of a lake, in a form that every reader of Parquet understands."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.lake import staged_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.broker.position import Position
    from penstock.spark.pipelines.lake.manifest import LakeFile

_RAISED = re.compile(r"[\w.]*(Error|Exception)\b")
_SETTINGS = {
    # Spark's own form (INT96) is read by others without its time zone, or not at all.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # So many days at a time need no sorting by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "40",
}
# As small as by default for rows like these, and a little sooner.
_QUICK = {"parquet.compression.codec.zstd.level": "1"}


def stage(frame: DataFrame, place: Path) -> list[LakeFile]:
    """Write a frame that has `day`, and perhaps `_shard`, below this place; what is there then."""
    by = [name for name in ("_shard", "day") if name in frame.columns]
    with _settings(frame.sparkSession):
        try:
            frame.write.partitionBy(*by).options(**_QUICK).parquet(spark_path(place))
        except Exception as error:  # Spark has no one kind of them, and one of Java is as likely
            raise PenstockError(
                f"files for the lake could not be written to {place.parent}: {cause_of(error)}"
            ) from None
    return staged_files(place, _rows_of)


def cause_of(error: Exception) -> str:
    """The sentence that began it, out of what Java and Python wrapped around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["?"]
    if ours := [line for line in lines if line.startswith("penstock.errors.")]:
        return ours[-1].partition(": ")[2]
    raised = [line.removeprefix("Caused by: ") for line in lines]
    if raised := [line for line in raised if _RAISED.match(line)]:
        return raised[-1]
    head, mark, said = lines[0].partition(" terminated with exception: ")
    return (said if mark else head).partition(" SQLSTATE")[0].rstrip(".")


def spark_path(place: Path) -> str:
    """A place of this machine, as Spark wants to be told: with its scheme, and nothing quoted."""
    return f"file:{place}"


def _rows_of(path: Path) -> tuple[int, Position, Position]:
    """Rows, first and last position of a file, from its footer."""
    parquet: Any = import_module("pyarrow.parquet")  # it has no types
    footer = parquet.read_metadata(path)
    first: Position = ""
    last: Position = ""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at in range(group.num_columns):
            column = group.column(at)
            if column.path_in_schema == "position" and column.statistics is not None:
                low, high = str(column.statistics.min), str(column.statistics.max)
                first = min(first or low, low)
                last = max(last, high)
    return int(footer.num_rows), first, last


@contextmanager
def _settings(spark: SparkSession) -> Generator[None]:
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                spark.conf.set(name, value)
