"""Bulk reading of a file: a connection of its own for each scan.

A scan lasts as long as its reader takes, and meanwhile the broker's own connections must be free.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker.gauge import queue_in
from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.slice import HISTORY, Reach, Selection, Slice
from penstock.brokers.arrow import (
    EVENT_COLUMNS,
    ROWS_AT_ONCE,
    arrow,
    batch_of,
    job_batches,
    selected_job,
)
from penstock.brokers.positions import (
    FARTHEST_POSITION,
    even_bounds,
    number_of,
    position_text,
    slices_between,
)
from penstock.brokers.sqlite.db import SqliteDb
from penstock.brokers.sqlite.errors import as_penstock_errors
from penstock.brokers.sqlite.statements import sql
from penstock.brokers.sqlite.store import SqliteStore
from penstock.brokers.tables.rows import job_of, succeeded_job
from penstock.brokers.tables.scanning import (
    id_span,
    job_slices,
    packed_in,
    parameters_of,
    wanted_states,
)
from penstock.enqueue.ids import from_bytes
from penstock.job import Job, State


class SqliteScans:
    """Reach, slices, scan."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,  # noqa: ARG002  positions follow the order of commits
        *,
        until: Position | None = None,
    ) -> Reach:
        rows = None if at_most is None else max(1, at_most)
        parameters = {
            "after": number_of(after),
            "until": FARTHEST_POSITION if until is None else number_of(until),
            "kind": selection.kind,
            "rows": rows,
        }
        with self.store.reading() as db:
            row = db.execute(sql.reach, parameters).fetchone()
        if number_of(after) > (row["newest"] or 0):
            raise ahead(after, position_text(row["newest"] or 0))
        last = row["full"] or row["last"]
        position = position_text(last) if last else after
        return Reach(self.store.store_id, position, full=row["full"] is not None)

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        if selection.table not in HISTORY:
            return job_slices(self.store, selection, at_most)
        with self.store.reading() as db:
            ends = db.execute(sql.ends).fetchone()
        low, high = number_of(after), FARTHEST_POSITION if until is None else number_of(until)
        first, last = max(low, (ends["first"] or 1) - 1), min(high, ends["last"] or 0)
        return slices_between(selection, low, high, even_bounds(first, last, at_most))

    def scan(self, part: Slice) -> Iterator[Any]:
        arrow()
        return self._events(part) if part.selection.table in HISTORY else self._jobs(part)

    def _events(self, part: Slice) -> Iterator[Any]:
        table = part.selection.table
        names = tuple(EVENT_COLUMNS)
        with self._looking() as db:
            parameters = parameters_of(self.store, db, part)
            span = {"after": number_of(part.after), "until": number_of(part.until)}
            cursor = db.connection.execute(sql.scan_events, {**parameters, **span})
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                columns: dict[str, Any] = dict(zip(names, zip(*rows, strict=True), strict=True))
                columns["job"] = [raw and from_bytes(raw) for raw in columns["job"]]
                if table == "gauges":
                    columns["queue"] = [queue_in(data) for data in columns["data"]]
                yield batch_of(table, columns)

    def _jobs(self, part: Slice) -> Iterator[Any]:
        with self._looking() as db:
            yield from job_batches(part.selection.table, self._each_job(db, part))

    def _each_job(self, db: SqliteDb, part: Slice) -> Iterator[Job[Any]]:
        store, selection = self.store, part.selection
        parameters = {**id_span(part), "lanes": parameters_of(store, db, part)["lanes"]}
        wanted = wanted_states(selection)
        yield from packed_in(store, db, part)
        for row in db.execute(sql.scan_jobs, parameters):
            job = job_of(store.lane(db, row["lane"]), row)
            if selected_job(selection, job):
                yield job
        if State.SUCCEEDED in wanted:
            for row in db.execute(sql.scan_succeeded, parameters):
                job = succeeded_job(store.lane(db, row["lane"]), row)
                if selected_job(selection, job):
                    yield job

    @contextmanager
    def _looking(self) -> Generator[SqliteDb]:
        with as_penstock_errors(self.store.path):
            connection = self.store.connect()
            try:
                connection.execute("begin")
                yield SqliteDb(connection)
            finally:
                connection.close()
