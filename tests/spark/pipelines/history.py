"""Histories for tests of the pipeline: rows of the raw tables, each with a default for the rest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.brokers.positions import position_text
from penstock.spark.source.tables import TABLES

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """So many seconds after noon of 2026-11-15."""
    return NOON + timedelta(seconds=seconds)


def an_attempt(position: int, **fields: Any) -> dict[str, Any]:
    """An attempt that waited a second from noon on, ran for two, and succeeded."""
    return {
        "position": position_text(position),
        "shard": "a",
        "job": f"job-{position}",
        "attempt": 1,
        "queue": "mail",
        "task": "mail:send",
        "version": 1,
        "priority": 0,
        "state": "succeeded",
        "failures": 0,
        "lapses": 0,
        "enqueued_at": at(0),
        "run_at": at(0),
        "started_at": at(1),
        "ended_at": at(3),
        "worker": "worker-1",
        "tags": {},
        "schema_version": 1,
        **fields,
    }


def an_event(position: int, kind: str = "event", **fields: Any) -> dict[str, Any]:
    return {
        "position": position_text(position),
        "shard": "a",
        "kind": kind,
        "at": at(0),
        "tags": {},
        "schema_version": 1,
        **fields,
    }


def a_gauge(position: int, **fields: Any) -> dict[str, Any]:
    numbers = dict.fromkeys(
        ("ready", "scheduled", "waiting", "paused", "limited", "running", "failed"), 0
    )
    return {
        "position": position_text(position),
        "shard": "a",
        "at": at(0),
        "queue": "mail",
        **numbers,
        "schema_version": 1,
        **fields,
    }


def a_frame(spark: Any, table: str, *rows: dict[str, Any]) -> Any:
    """The rows as a frame of this table."""
    names = spark.createDataFrame([], TABLES[table]).columns
    unknown = {name for row in rows for name in row} - set(names)
    assert not unknown, unknown
    return spark.createDataFrame(
        [tuple(row.get(name) for name in names) for row in rows], TABLES[table]
    )


def attempts(spark: Any, *rows: dict[str, Any]) -> Any:
    return a_frame(spark, "attempts", *rows)
