"""Writes DataFrames as Parquet files of a lake, in a form that every Parquet reader understands."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.manifest import LakeFile
from penstock.spark.pipelines.session_settings import changed_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.broker.position import Position

_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_SETTINGS = {
    # Spark's default (INT96) is read by others without its time zone, or not at all.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    # Up to this many days at a time are written without sorting the rows by day first.
    "spark.sql.maxConcurrentOutputFileWriters": "40",
}
# As small as with the default level for rows like these, and a little faster.
_OPTIONS = {"parquet.compression.codec.zstd.level": "1"}


def stage(frame: DataFrame, folder: Path) -> list[LakeFile]:
    """Write a frame, partitioned by `day` and, if it has it, `_shard`; returns the files."""
    by = [name for name in ("_shard", "day") if name in frame.columns]
    with changed_settings(frame.sparkSession, _SETTINGS):
        try:
            frame.write.partitionBy(*by).options(**_OPTIONS).parquet(spark_path(folder))
        except Exception as error:  # PySpark's exceptions and py4j's have no common class
            raise PenstockError(
                f"files for the lake could not be written to {folder.parent}: {cause_of(error)}"
            ) from None
    return [
        file
        for path in sorted(folder.rglob("*.parquet"))
        if (file := _described(folder, path)).rows
    ]


def cause_of(error: Exception) -> str:
    """The original error's sentence, without the stack traces of Java and Python around it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["?"]
    if ours := [line for line in lines if line.startswith("penstock.errors.")]:
        return ours[-1].partition(": ")[2]
    causes = [line.removeprefix("Caused by: ") for line in lines]
    if exceptions := [line for line in causes if _EXCEPTION.match(line)]:
        return exceptions[-1]
    before, separator, after = lines[0].partition(" terminated with exception: ")
    return (after if separator else before).partition(" SQLSTATE")[0].rstrip(".")


def spark_path(path: Path) -> str:
    """A local path for Spark: with its scheme, and not percent-encoded."""
    return f"file:{path}"


def _described(folder: Path, path: Path) -> LakeFile:
    """A file that Spark wrote: day and shard from its path, rows and positions from its footer."""
    values = dict(part.split("=", 1) for part in path.relative_to(folder).parts if "=" in part)
    parquet: Any = import_module("pyarrow.parquet")  # it has no types
    footer = parquet.read_metadata(path)
    first: Position = ""
    last: Position = ""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for index in range(group.num_columns):
            column = group.column(index)
            if column.path_in_schema == "position" and column.statistics is not None:
                low, high = str(column.statistics.min), str(column.statistics.max)
                first = min(first or low, low)
                last = max(last, high)
    return LakeFile(
        path=str(path),
        day=unquote(values["day"]),
        shard=unquote(values.get("_shard", "")),
        first=first,
        last=last,
        rows=int(footer.num_rows),
        bytes=path.stat().st_size,
        generation=0,
    )
