"""The tasks of the storm: one for each promise that a kill could break."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from typing import Any

from penstock.app.app import App
from penstock.run.current import current_job
from penstock.task.retry import Retry

app = App()
MOST_LIMITED = 3  # jobs of the queue "limited" that may run at one instant


def has_transactions() -> bool:
    """Whether jobs can write rows of their own in this store."""
    return app.broker.traits.can("begins")


@app.task
def prepare() -> None:
    """Create the table in which `transfer` leaves its effects."""
    if not has_transactions():
        return
    with current_job().transaction() as connection:
        connection.execute("create table if not exists storm_effect (job text not null)")


@app.task
def work(number: int, seconds: float) -> int:
    """An ordinary job."""
    time.sleep(seconds)
    return number


@app.task
async def work_async(number: int, seconds: float) -> int:
    """The same, as a coroutine."""
    await asyncio.sleep(seconds)
    return number


@app.task(retry=Retry(limit=3, delay=0.2))
def stumble(number: int) -> int:
    """Fails the first time that it really runs."""
    if current_job().attempt == 1:
        raise ConnectionError("the first attempt fails")
    return number


@app.task(queue="limited")
def limited(seconds: float) -> None:
    """Of these never more than MOST_LIMITED run at once."""
    time.sleep(seconds)


@app.task(at_most_once=True)
def charge(number: int, seconds: float) -> int:
    """Begins once at most: a kill ends it as `failed: lost`."""
    time.sleep(seconds)
    return number


@app.task
def transfer(seconds: float) -> None:
    """Writes a row in the transaction that ends the job: one row for every success."""
    time.sleep(seconds)
    if not has_transactions():
        return
    with current_job().transaction() as connection:
        in_sqlite = isinstance(connection, sqlite3.Connection)
        row = "values (?)" if in_sqlite else "values (%s)"
        connection.execute(f"insert into storm_effect {row}", (current_job().id,))


@app.task
def count_effects() -> list[int]:
    """How many rows `transfer` left, and of how many jobs."""
    if not has_transactions():
        return [0, 0]
    with current_job().transaction() as connection:
        rows = connection.execute("select count(*), count(distinct job) from storm_effect")
        both: Any = rows.fetchone()
        return list(both)


@app.task
def part(number: int) -> int:
    """One of the parts of a flow."""
    return number


@app.task
def collect(numbers: list[int]) -> int:
    """The last job of a flow: it needs all parts."""
    return sum(numbers)


@app.task
def tick() -> None:
    """The job of a schedule."""
