"""The tasks of the demo on Spark: one for each row of a frame, and one for a whole day of it.

Both work out what the same orders come to, each in its own way: the proof compares the sums.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from penstock.app.app import App
from penstock.run.current import current_job
from penstock.task.retry import Retry
from penstock.tools.demo.place import place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = App()
ORDERS = "orders"  # the folder with the frame, a part for each day
FIRST_DAY, LAST_DAY = "2026-01-05", "2026-01-11"
DAYS = 7
UNLUCKY = 10_000  # every so many-th order fails the first time
COMES_TO = "250 * pieces + order % 100"  # what `price` says, in SQL


@app.task(queue="orders", retry=Retry(limit=3, delay=0.2, on=(ConnectionError,)))
def price(order: int, pieces: int) -> int:
    """What an order comes to, in cents: one of a million."""
    if order % UNLUCKY == 0 and current_job().attempt == 1:
        raise ConnectionError("connection reset by prices.example.org")
    return 250 * pieces + order % 100


@app.task(spark=True, queue="days")
def takings(spark: SparkSession, day: date) -> int:
    """What all orders of a day come to, in cents: one Spark job."""
    orders = spark.read.parquet(str(place() / ORDERS / f"day={day}"))
    [row] = orders.selectExpr(f"sum({COMES_TO}) as cents").collect()
    return row["cents"] or 0


def orders(spark: SparkSession, rows: int) -> DataFrame:
    """A frame of orders, spread over the days."""
    return spark.range(rows).selectExpr(
        "cast(id as int) as order",
        "cast(id * 7919 % 5 + 1 as int) as pieces",
        f"date_add(date'{FIRST_DAY}', cast(id % {DAYS} as int)) as day",
    )
