"""Gauge: one row of history per queue and minute, and the statistics, whoever comes first.

A value in the store says which minute was done last, and up to where attempts are counted. It is
read, compared and set in the transaction that writes the rows: killed anywhere, a minute is written
whole or not at all, and no attempt is counted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from penstock.broker.gauge import MINUTE, gauges_of, minute_at
from penstock.broker.span_stats import (
    MOST_ROWS,
    SAMPLE,
    SPANS,
    EndedAttempts,
    Gauged,
    SampledAttempt,
    SpanStats,
    counted,
    minutes_of,
)
from penstock.broker.views import Count, WorkerRow
from penstock.brokers.tables.change import Change, EventRow
from penstock.brokers.tables.db import Db, Row, TableStore
from penstock.brokers.tables.rows import made_at, state_in


def gauge(
    store: TableStore, count: Callable[[], list[Count]], workers: Callable[[], list[WorkerRow]]
) -> int:
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
        position, minutes = _ended_since(store, db, last.counted.position, now)
    gauges = gauges_of(count(), oldest, last.queues)
    alive = [(each.started_at, each.code) for each in workers() if each.alive and each.queues != ()]
    kept, spans = counted(last.counted, minutes, gauges, alive, position, now)
    value = msgspec.json.encode(last.after(minute, gauges, kept)).decode()
    with store.writing() as db:
        if not db.execute(sql.gauge, {"value": value, "before": before}).rowcount:
            return 0
        change = Change(store, db, minute * MINUTE)
        for span in spans:
            change.events += EventRow(SPANS[span.seconds], span.at, data=msgspec.json.encode(span))
        for each in gauges:
            change.add_event("gauge", msgspec.json.encode(each), None, None)
        change.finish()
    return len(gauges)


def is_due(row: Row, now: float) -> bool:
    """Whether anybody has to write gauges now, by what `gauged` found."""
    last = _read(row["value"])
    return last.due(minute_at(now)) and (bool(row["holds"]) or last.wanted(row["newest"], now))


def _ended_since(store: TableStore, db: Db, after: int, now: float) -> tuple[int, list[SpanStats]]:
    """Up to where attempts are counted now, and the minutes in which they ended."""
    sql = store.sql
    found = db.execute(sql.uncounted, {"after": after, "limit": MOST_ROWS}).fetchone()
    if not found["jobs"]:
        return after, []
    upto = found["upto"]
    every = max(1, found["jobs"] // SAMPLE)
    span = {"after": after, "upto": upto}

    def ended() -> Iterator[EndedAttempts]:
        for row in db.execute(sql.ended, span).fetchall():
            lane = store.lane(db, row["lane"])
            yield EndedAttempts(
                lane.queue,
                lane.task,
                row["worker"] or "",
                state_in(row["state"]),
                row["minute"],
                row["jobs"],
                row["ran"],
                row["waited"],
            )

    def sampled() -> Iterator[SampledAttempt]:
        for row in db.execute(sql.sampled, {**span, "every": every}).fetchall():
            lane = store.lane(db, row["lane"])
            yield SampledAttempt(
                lane.queue, lane.task, row["minute"], row["ran"], row["waited"], every
            )

    return upto, minutes_of(ended(), sampled(), now)


def _oldest(db: Db, statement: str, now: float) -> dict[str, float]:
    """How long the oldest due job of each queue has waited that may run."""
    waits: dict[str, float] = {}
    for row in db.execute(statement, {"now": now}):
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
