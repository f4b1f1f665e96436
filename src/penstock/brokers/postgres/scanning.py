"""Gauges, and bulk reading of history and jobs, below the oldest open transaction.

A position begins with the number of its transaction. Once all transactions below a number have
ended, no more rows can appear below it: a reader that stops there misses none.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from penstock.broker.position import BEGINNING, Position, ahead
from penstock.broker.slice import HISTORY, Reach, Selection, Slice
from penstock.broker.views import Count, WorkerRow
from penstock.brokers.arrow import arrow, hidden, job_batches
from penstock.brokers.positions import (
    FARTHEST_POSITION,
    id_number,
    number_of,
    position_text,
    slices_between,
)
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.copy_to_arrow import copy_batches
from penstock.brokers.postgres.reading import flush_wal
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.gauging import gauge, is_due
from penstock.brokers.tables.scanning import (
    job_slices,
    packed_in,
    parameters_of,
    wanted_states,
)
from penstock.job import State

_PAUSE_SECONDS = 0.005
_SAMPLE_PAGES = 400
_ENOUGH = 50  # sampled rows per slice, to cut by them
_READ_SECONDS = 600.0  # the most that the server may take for the next rows


class PostgresScans:
    """Gauge, reach, slices, scan."""

    def __init__(
        self,
        store: PostgresStore,
        count: Callable[[], list[Count]],
        workers: Callable[[], list[WorkerRow]],
    ) -> None:
        self.store = store
        self.clock = store.clock
        self._count = count
        self._workers = workers

    def gauge(self) -> int:
        # One cheap statement first: hundreds of workers ask, and one of them does it.
        with self.store.connection() as connection:
            row = PostgresDb(connection).execute(sql.gauged).fetchone()
        due = row is not None and is_due(row, self.clock.now())
        return gauge(self.store, self._count, self._workers) if due else 0

    def reach(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        at_most: int | None = None,
        patience: float = 0.5,
        *,
        until: Position | None = None,
    ) -> Reach:
        safe, newest = self._safe(patience)
        if number_of(after) > newest:
            raise ahead(after, position_text(newest))
        end = FARTHEST_POSITION if until is None else number_of(until)
        parameters = {
            "after": number_of(after),
            "safe": min(safe, end + 1),
            "kind": selection.kind,
            "rows": None if at_most is None else max(1, at_most),
        }
        with self.store.reading() as db:
            row = db.execute(sql.reach, parameters).fetchone()
        full: int | None = None if row is None else row["full"]
        last: int | None = None if row is None else full or row["last"]
        if last:
            flush_wal(self.store)
        position = position_text(last) if last else after
        return Reach(self.store.store_id, position, full=full is not None)

    def _safe(self, patience: float) -> tuple[int, int]:
        """A position below which no row can appear any more, and one above all rows."""
        until = time.monotonic() + patience
        first_next = 0  # the transaction that was next when this was called
        while True:
            with self.store.connection() as connection:
                row = PostgresDb(connection).execute(sql.writers).fetchone()
            oldest, following = (row["oldest"], row["next"]) if row else (0, 0)
            first_next = first_next or following
            if oldest >= first_next or time.monotonic() >= until:
                return oldest << 20, following << 20
            time.sleep(_PAUSE_SECONDS)

    def slices(
        self,
        selection: Selection,
        after: Position = BEGINNING,
        until: Position | None = None,
        at_most: int = 1,
    ) -> list[Slice]:
        if selection.table not in HISTORY:
            return job_slices(self.store, selection, at_most)
        low, high = number_of(after), FARTHEST_POSITION if until is None else number_of(until)
        bounds: list[int] = []
        if at_most > 1 and high > low:
            span = {"after": low, "until": high, "parts": at_most}
            with self.store.reading() as db:
                row = db.execute(sql.pages).fetchone()
                pages = row["pages"] if row else 0
                if pages > _SAMPLE_PAGES:
                    sample = {**span, "percent": 100.0 * _SAMPLE_PAGES / pages}
                    rows = db.execute(sql.bounds_sampled, sample).fetchall()
                    if rows and rows[0]["total"] >= _ENOUGH * at_most:
                        bounds = [row["position"] for row in rows]
                if not bounds:  # few rows: read them all
                    rows = db.execute(sql.bounds, span).fetchall()
                    bounds = [row["position"] for row in rows]
        return slices_between(selection, low, high, bounds[: at_most - 1])

    def scan(self, part: Slice) -> Iterator[Any]:
        arrow()
        return self._scan(part)

    def _scan(self, part: Slice) -> Iterator[Any]:
        begin = "begin isolation level repeatable read read only"
        table = part.selection.table
        with (
            self.store.connection(_READ_SECONDS) as connection,
            self.store.transaction(connection, begin=begin) as db,
        ):
            parameters = parameters_of(self.store, db, part)
            if table in HISTORY:
                parameters |= {"after": number_of(part.after), "until": number_of(part.until)}
                yield from copy_batches(connection, sql.scan_events, parameters, table)
            else:
                yield from self._jobs(connection, part, parameters)

    def _jobs(
        self, connection: Connection, part: Slice, parameters: dict[str, Any]
    ) -> Iterator[Any]:
        table, states = part.selection.table, wanted_states(part.selection)
        parameters |= {
            "after": str(uuid.UUID(int=id_number(part.after))),
            "until": str(uuid.UUID(int=id_number(part.until))),
            "states": msgspec.json.encode(sorted(states)).decode(),
        }
        if states - {State.SUCCEEDED}:
            for batch in copy_batches(connection, sql.scan_jobs, parameters, table):
                yield hidden(batch)
        if State.SUCCEEDED in states:
            yield from copy_batches(connection, sql.scan_succeeded, parameters, table)
        yield from job_batches(table, packed_in(self.store, PostgresDb(connection), part))
