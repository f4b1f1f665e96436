"""Filling a lake: new history is exported, then the rollups of the days that changed are made.

What `penstock pipeline run` does, for notebooks and Spark tasks. Killed anywhere, it is called
again: export and rollups go on from what the lake has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import Refused
from penstock.spark.lineage import Table, export_lineage
from penstock.spark.one_sentence import one_sentence
from penstock.spark.session_store import opened_store, store_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.lake.lake import Lake
    from penstock.spark.pipelines.lake.marks import LakeGap


class Filled(msgspec.Struct, kw_only=True):
    """What was added: rows by raw table, days by rollup, and gaps that the store reported."""

    taken: dict[str, int]
    days: dict[str, int]
    gaps: list[LakeGap]
    export_seconds: float
    rollup_seconds: float


@one_sentence()
def fill_lake(
    spark: SparkSession,
    lake: Lake | Path | str,
    *,
    storage_options: Mapping[str, str] | None = None,
    hold: float | None = None,
    read_url: str | None = None,
    connections: int | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Filled:
    """Bring a lake up to date with the store of a session; created where there is none.

    `lake` is a folder, or a URL of an object store with its `storage_options`. `hold`: how many
    seconds beyond its retention the store keeps history for this lake; None: as before. `read_url`
    is a replica from which the history is read, by at most so many `connections` at a time.
    """
    # Here, since they need the extra `spark`, and `penstock.spark` is imported without it.
    from penstock.spark.pipelines.lake.export import export
    from penstock.spark.pipelines.lake.lake import Lake
    from penstock.spark.pipelines.lake.raw_tables import RAW
    from penstock.spark.pipelines.report.rollup_source import OPEN_JOBS, open_now
    from penstock.spark.pipelines.rollups.build import build, build_with

    filled = lake if isinstance(lake, Lake) else Lake(lake, storage_options)
    began = time.monotonic()
    if connections is not None and connections < 1:
        raise Refused(f"connections={connections}: give 1 or more")
    with export_lineage(store_of(spark), str(filled), RAW) as told:
        told.outputs = [Table(f"{filled}/{table}") for table in RAW]
        done = export(
            spark,
            filled,
            lambda table, rows: on_progress(f"{rows:,} {table} so far"),
            hold=hold,
            read_url=read_url,
            connections=connections,
        )
        told.outputs = [Table(f"{filled}/{table}", rows=done.taken[table]) for table in RAW]
    exported = time.monotonic()
    with opened_store(store_of(spark)) as broker:
        rows_now = open_now(broker)
    filled.replace_rows(OPEN_JOBS, lambda _before: rows_now)
    days = build(
        filled, build_with(spark), lambda names, days: on_progress(f"{names}: {days:,} days")
    )
    return Filled(
        taken=done.taken,
        days=days,
        gaps=done.gaps,
        export_seconds=exported - began,
        rollup_seconds=time.monotonic() - exported,
    )
