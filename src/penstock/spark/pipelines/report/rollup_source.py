"""Where a report's rollups come from: the lake's tables, or a small store's rows, made here.

Neither starts Spark. Below a million attempts the store answers, while it still has all of them;
what was pruned from it is only in the lake.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.position import BEGINNING
from penstock.broker.slice import Selection, Table
from penstock.spark.pipelines.lake.raw_tables import RAW
from penstock.spark.pipelines.rollups.attempts import ENDED, micros, rollup_attempts
from penstock.spark.pipelines.rollups.days import rollup_days
from penstock.spark.pipelines.rollups.tables import DAY, SCHEMAS
from penstock.spark.source.shards import store_id, stores_in
from penstock.spark.source.table_batches import TableBatches
from penstock.spark.source.tables import TABLES, arrow_schema
from penstock.spark.untyped_arrow import arrow, compute

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker
    from penstock.spark.pipelines.lake.lake import Lake

SMALL = 1_000_000
OPEN_JOBS = "open_jobs"
_ATTEMPTS = Selection(table="attempts")
_TIME = arrow.timestamp("us", "UTC")
_OPEN_SCHEMA = arrow.schema(
    [
        ("queue", arrow.string()),
        *((name, arrow.int64()) for name in ("ready", "scheduled", "waiting", "running")),
        ("oldest", arrow.float64()),
        ("at", _TIME),
        ("day", arrow.date32()),
    ]
)


class Rollups(Protocol):
    """Rows of rollups by time, and the jobs that were open at their end."""

    def read(self, name: str, since: float, until: float, where: Mapping[str, str] = {}) -> Any:
        """Rows of a rollup whose `at` is in this span, with these values, as an Arrow table."""
        ...

    def open_jobs(self) -> list[dict[str, Any]]: ...


class LakeRollups:
    """The rollups that the last `run` left in a lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        lake.table("attempts")

    def read(self, name: str, since: float, until: float, where: Mapping[str, str] = {}) -> Any:
        table = self._lake.find(name)
        if table is None:
            return SCHEMAS[name].empty_table()
        # A row may be of the day before that of its file: an attempt that began there.
        first, last = (time.strftime("%Y-%m-%d", time.gmtime(at)) for at in (since, until))
        paths = [file.path for file in table.files() if first <= file.day <= last]
        dataset: Any = import_module("pyarrow.dataset")
        rows = dataset.dataset(
            paths, schema=SCHEMAS[name], filesystem=table.place.filesystem(), format="parquet"
        )
        return rows.to_table(filter=_condition(dataset.field, since, until, where))

    def open_jobs(self) -> list[dict[str, Any]]:
        table = self._lake.find(OPEN_JOBS)
        return [] if table is None else table.rows()


class StoreRollups:
    """Rollups of everything that a store has, made now."""

    def __init__(self, broker: Broker) -> None:
        self._open_jobs = open_now(broker).to_pylist()
        self._tables = {
            **rollup_attempts(scan(broker, "attempts")),
            **rollup_days(scan(broker, "attempts"), scan(broker, "events"), scan(broker, "gauges")),
        }

    def read(self, name: str, since: float, until: float, where: Mapping[str, str] = {}) -> Any:
        if name not in self._tables:
            return SCHEMAS[name].empty_table()
        return self._tables[name].filter(_condition(compute.field, since, until, where))

    def open_jobs(self) -> list[dict[str, Any]]:
        return self._open_jobs


def from_store(broker: Broker, lake: Lake) -> bool:
    """Whether to read the store: it has all that the lake has, and not too much."""
    files = [file for name in RAW if (table := lake.find(name)) for file in table.files()]
    attempts = lake.find("attempts")
    if attempts is not None and sum(attempts.rows_by_day().values()) >= SMALL:
        return False
    stores = {store_id(store): store for store in stores_in(broker).values()}
    firsts: dict[str, str] = {}
    for file in files:
        shard, first = file.lows["shard"], file.lows["position"]
        if shard != file.highs["shard"] or shard not in stores:
            return False
        firsts[shard] = min(first, firsts.get(shard, first))
    # The store's last row up to the lake's first position is that very row, unless it was pruned.
    return all(
        first == stores[shard].reach(_ATTEMPTS, patience=0, until=first).position
        for shard, first in firsts.items()
    )


def scan(broker: Broker, table: Table, state: tuple[str, ...] = ()) -> Iterator[Any]:
    """All rows of a table of the store, in batches."""
    selection = Selection(table=table, state=state, bodies=table == "attempts")
    for store in stores_in(broker).values():
        reach = store.reach(_ATTEMPTS)
        until = None if table == "jobs" else reach.position
        batches = TableBatches(table, reach.store, arrow_schema(_columns(table)))
        for part in store.slices(selection, BEGINNING, until, 1):
            yield from map(batches.convert, store.scan(part))


def open_now(broker: Broker) -> Any:
    """Jobs that have not ended, by queue, and for how long the oldest due one has waited."""
    now = time.time()
    queues: dict[str, dict[str, Any]] = {}
    for rows in scan(broker, "jobs", ("ready", "waiting", "running")):
        due_at = compute.max_element_wise(micros(rows, "run_at"), micros(rows, "enqueued_at"))
        columns = (rows.column("queue"), rows.column("state"), due_at)
        for queue, state, due in zip(*(column.to_pylist() for column in columns), strict=True):
            if state in ENDED:  # a store may give more than it was asked for
                continue
            row = queues.setdefault(
                queue, {"ready": 0, "scheduled": 0, "waiting": 0, "running": 0, "oldest": None}
            )
            waited = now - due / 1e6
            row["scheduled" if state == "ready" and waited < 0 else state] += 1
            if state == "ready" and waited >= 0:
                row["oldest"] = max(waited, row["oldest"] or 0.0)
    at = round(1e6 * now)
    rows = [
        {"queue": queue, **row, "at": at, "day": int(now // DAY)} for queue, row in queues.items()
    ]
    return arrow.Table.from_pylist(rows, _OPEN_SCHEMA)


def _columns(table: str) -> str:
    """Of jobs few columns: the body is most of a job's bytes."""
    if table != "jobs":
        return TABLES[table]
    return "queue string, state string, enqueued_at timestamp, run_at timestamp"


def _condition(field: Any, since: float, until: float, where: Mapping[str, str]) -> Any:
    start, end = (arrow.scalar(round(1e6 * at), _TIME) for at in (since, until))
    condition = (field("at") >= start) & (field("at") < end)
    for name, value in where.items():
        condition &= field(name) == value
    return condition
