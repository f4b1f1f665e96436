"""Gauge: one row of history per queue and minute, whoever comes first.

A value in the store says which minute was done last. It is read, compared and set in the
transaction that writes the rows: killed anywhere, a minute is written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.broker.gauge import MINUTE, Gauged, gauges_of, minute_at
from penstock.broker.views import Count
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.rows import made_at


def gauge(store: TableStore, count: Callable[[], list[Count]]) -> int:
    """Write the gauges of this minute, unless they are written; returns how many rows."""
    sql, now = store.sql, store.clock.now()
    minute = minute_at(now)
    with store.reading() as db:
        row = db.execute(sql.gauged).fetchone()
        if not is_due(row, now):
            return 0
        before = row["value"]
        last = _read(before)
        oldest = _oldest(db, sql.oldest, now)
    gauges = gauges_of(count(), oldest, last.queues)
    value = msgspec.json.encode(last.after(minute, gauges)).decode()
    with store.writing() as db:
        if not db.execute(sql.gauge, {"value": value, "before": before}).rowcount:
            return 0
        change = Change(store, db, minute * MINUTE)
        for each in gauges:
            change.add_event("gauge", msgspec.json.encode(each), None, None)
        change.finish()
    return len(gauges)


def is_due(row: Row, now: float) -> bool:
    """Whether anybody has to write gauges now, by what `gauged` found."""
    last = _read(row["value"])
    return last.due(minute_at(now)) and bool(row["holds"] or last.queues)


def _oldest(db: Db, statement: str, now: float) -> dict[str, float]:
    """How long the oldest due job of each queue has been waiting."""
    waits: dict[str, float] = {}
    for row in db.execute(statement):
        times = [] if row["packed"] is None else [made_at(row["packed"])]
        times += [] if row["run_at"] is None else [row["run_at"]]
        for due in times:
            if due <= now:
                waits[row["queue"]] = max(waits.get(row["queue"], 0.0), now - due)
    return waits


def _read(value: str | None) -> Gauged:
    try:
        return Gauged() if value is None else msgspec.json.decode(value, type=Gauged)
    except msgspec.MsgspecError:
        return Gauged()
