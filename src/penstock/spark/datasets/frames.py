"""The frames of a run: inputs read from the files of their versions, the result written, checked.

Executors write the files with Arrow, and what is checked is what was written: a frame that gives
other rows when it is computed again cannot pass a check with some and commit others.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError, Refused
from penstock.spark.datasets.table import (
    PARTITION,
    RUN,
    PartFile,
    TableSnapshot,
    file_path,
    write_file,
)
from penstock.spark.pipelines.lake.data_files import TableFolder
from penstock.spark.pipelines.lake.raw_tables import read_by_arrow, spark_path
from penstock.spark.untyped_arrow import arrow
from penstock.task.dataset import Expect
from penstock.task.dataset_plan import CheckResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class CheckFailed(PenstockError):
    """Too many rows did not pass a check: nothing was committed."""


def read_versions(
    spark: SparkSession, snapshot: TableSnapshot, partitions: Iterable[str]
) -> DataFrame:
    """These partitions of a table, as the snapshot has them."""
    return read_files(spark, snapshot.table.folder, snapshot.files(partitions), snapshot.schema())


def read_files(
    spark: SparkSession, folder: TableFolder, paths: Sequence[str], delta_schema: Any
) -> DataFrame:
    """Files of a table: by Spark from a folder, by Arrow on the executors from an object store."""
    types: Any = import_module("pyspark.sql.types")
    schema = types.StructType.fromJson(json.loads(delta_schema.to_json()))
    untyped: Any = spark
    if not paths:
        return untyped.createDataFrame([], schema)
    if folder.local is not None:
        reader = untyped.read.schema(schema)
        return reader.parquet(*(spark_path(folder.local / path) for path in paths))
    files = [(path, None) for path in paths]
    return read_by_arrow(spark, folder, files, schema, arrow.schema(delta_schema))


def check_frame(dataset: str, frame: Any) -> None:
    """Refuse what is no frame, or has columns that the table has for itself."""
    if not hasattr(frame, "mapInArrow"):
        raise Refused(f"dataset {dataset}: its function returned {frame!r:.100}, and no DataFrame")
    if own := {PARTITION, RUN} & set(frame.columns):
        raise Refused(
            f"dataset {dataset}: its frame has a column {min(own)!r}, which the table has for"
            " itself: rename it"
        )


def write_frame(frame: Any, folder: TableFolder, partition: str, run: str) -> list[PartFile]:
    """Write a frame as files that are no part of the table yet, at least one."""

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        first = next(batches, None)
        if first is None:
            return
        part = write_file(folder, file_path(partition, run), chain([first], batches), first.schema)
        encoded = msgspec.json.encode(part).decode()
        yield arrow.RecordBatch.from_arrays([arrow.array([encoded], arrow.string())], ["file"])

    encoded = frame.mapInArrow(write, "file string").collect()
    files = [msgspec.json.decode(row[0], type=PartFile) for row in encoded]
    if not files:
        schema = frame.limit(0).toArrow().schema
        files.append(write_file(folder, file_path(partition, run), [], schema))
    return files


def schema_of(folder: TableFolder, files: Sequence[PartFile]) -> Any:
    """The columns of written files."""
    parquet: Any = import_module("pyarrow.parquet")
    return parquet.read_schema(files[0].path, filesystem=folder.filesystem())


def discard(folder: TableFolder, files: Iterable[PartFile]) -> None:
    """Delete files that no commit will name; whatever is left of them does no harm."""
    filesystem = folder.filesystem()
    for file in files:
        with suppress(OSError):
            filesystem.delete_file(file.path)


def count_bad_rows(
    spark: SparkSession, folder: TableFolder, files: Sequence[PartFile], checks: Sequence[Any]
) -> list[CheckResult]:
    """How many of the written rows pass each check: one pass for all conditions."""
    if not checks:
        return []
    delta: Any = import_module("deltalake")
    schema = delta.Schema.from_arrow(schema_of(folder, files))
    written: Any = read_files(spark, folder, [file.path for file in files], schema)
    conditions = [check for check in checks if isinstance(check, Expect)]
    counted = iter(())
    if conditions:
        columns = [f"count_if(not coalesce(({check.condition}), false))" for check in conditions]
        [row] = written.selectExpr(*columns).collect()
        counted = iter(row)
    results: list[CheckResult] = []
    for check in checks:
        if isinstance(check, Expect):
            result = CheckResult(check.title, next(counted), check.at_most, check.on_failure)
        else:
            result = CheckResult(check.__name__, _bad_of(check, check(written)))
        results.append(result)
    return results


def _bad_of(check: Any, said: Any) -> int:
    """What a function says: a number of bad rows, a frame of them, or whether all is well."""
    if said is None or isinstance(said, bool):
        return int(said is False)
    if hasattr(said, "mapInArrow"):
        return said.count()
    if isinstance(said, int):
        return said
    raise Refused(
        f"check {check.__name__} returned {said!r:.100}: a number of bad rows, a frame of them, or"
        " True where it passes"
    )


def refuse_failed(dataset: str, partition: str, results: Iterable[CheckResult]) -> None:
    """Raise if a check failed, and not only warned."""
    failed = [each for each in results if not each.passed and each.on_failure == "fail"]
    if failed:
        told = "; ".join(
            f"{each.bad:,} rows do not pass {each.name!r}"
            + (f", and {each.at_most:,} may" if each.at_most else "")
            for each in failed
        )
        raise CheckFailed(f"{dataset} {partition} is not committed: {told}")
