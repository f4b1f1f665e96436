"""A flow that has ended and outlived the retention leaves nothing in the store, table by table."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from penstock import App, State, current_job
from penstock.broker.filter import Filter
from penstock.broker.values import RETENTION_SECONDS

app = App("memory:")
# What a store knows of itself and of tasks, whose number does not grow with the jobs.
KEPT = {"meta", "lane", "migration"}


@app.task(name="bee:square")
def square(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number**2


@app.task(name="bee:reduce")
def reduce(squares: list[int]) -> int:
    return sum(squares)


@app.task(name="bee:star")
def star(numbers: list[int]) -> int:
    squares = square.map(numbers)
    current_job().spawn(squares, then=reduce.job(squares.output))
    return len(numbers)


FLOWS: dict[str, Callable[[], Any]] = {
    "a map and its reduction": lambda: reduce.job(square.map(range(25)).output).enqueue(),
    "one that a task spawned": lambda: star.enqueue(list(range(25))),
    "one that failed": lambda: reduce.job(square.map([1, -1]).output).enqueue(),
    "one that went on": lambda: reduce.job(square.map([1, -1]).output).enqueue(
        on_failure="continue"
    ),
}


def rows_of_sqlite(url: str) -> dict[str, int]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        found = connection.execute(
            "select name from sqlite_master where type = 'table' and name like 'penstock_%'"
        ).fetchall()
        return {
            name.removeprefix("penstock_"): connection.execute(
                f'select count(*) from "{name}"'
            ).fetchone()[0]
            for (name,) in found
        }


def rows_of_postgres(url: str) -> dict[str, int]:
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = 'penstock' and c.relkind in ('r', 'p') and not c.relispartition"
        ).fetchall()
        rows: dict[str, int] = {}
        for (name,) in found:
            counted = connection.execute(
                SQL("select count(*) from penstock.{}").format(Identifier(name))
            ).fetchone()
            assert counted is not None
            rows[name] = counted[0]
        return rows


@pytest.mark.parametrize("flow", FLOWS)
def test_nothing_is_left_of_a_flow(url, flow):
    """B32: whatever became of it; there is nothing for its user to clean up."""
    with app.testing(url=url) as t:
        FLOWS[flow]()
        t.drain()
        assert {job.state for job in t.jobs()} <= {State.SUCCEEDED, State.FAILED, State.CANCELLED}
        t.clock.advance(minutes=1)
        t.broker.recover()  # the worker is gone as well
        t.clock.advance(seconds=RETENTION_SECONDS + 86400)

        t.broker.prune(t.clock.now() - RETENTION_SECONDS)

        assert t.broker.find(Filter()).jobs == []
        assert (t.broker.history(), t.broker.count()) == ([], [])
        if url != "memory:":
            rows = (rows_of_sqlite if url.startswith("sqlite") else rows_of_postgres)(url)
            assert {"flow", "node", "need", "member", "history", "job", "parcel"} <= rows.keys()
            assert {name: count for name, count in rows.items() if count}.keys() <= KEPT, rows
