"""A store with a history, the lake it is exported to, and the rows of both.

The lake is read by a reader that is not Spark.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.job import failed, succeeded, try_again
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, claim, some_jobs


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def some_history(broker: Broker, clock: Clock, jobs: int) -> None:
    """Attempts of every kind, and an event."""
    broker.enqueue(some_jobs(clock, jobs))
    while held := claim(broker, 100):
        now = broker.clock.now()
        broker.settle(
            [
                (
                    job,
                    begun(
                        try_again("Boom: 1", now)
                        if number % 5 == 1 and job.attempt == 1
                        else failed("Boom: 2")
                        if number % 7 == 2
                        else succeeded(b"1"),
                        now,
                    ),
                )
                for number, job in enumerate(held)
            ]
        )
    [last] = some_jobs(clock, 1)
    broker.enqueue([last])
    broker.act("cancel", [last.id], "ada", "a test")


SHOWN = ("position", "job", "queue", "task", "version", "attempt", "state", "reason", "key")
Rows = dict[str, list[tuple[Any, ...]]]


def of_store(broker: Broker) -> Rows:
    """Every row of the history, as the store says."""
    rows: Rows = {"attempts": [], "events": []}
    after = BEGINNING
    while found := broker.history(after=after, limit=1000):
        for event in found:
            if event.kind != "gauge":
                table = "attempts" if event.kind == "attempt" else "events"
                rows[table].append(tuple(getattr(event, name) for name in SHOWN))
        after = found[-1].position
    return rows


def of_lake(lake: Lake) -> Rows:
    """Every row of the lake, as another reader than Spark finds it."""
    rows: Rows = {}
    for table in ("attempts", "events"):
        found = lake.table(table).delta.to_pyarrow_table(columns=list(SHOWN)).to_pylist()
        rows[table] = sorted(tuple(row[name] for name in SHOWN) for row in found)
    return rows


def exported(spark: Any, lake: Lake, **options: Any) -> Any:
    return export(spark, lake, nobody, **options)
