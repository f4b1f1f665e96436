"""The tasks of the Spark demo: one per row of a frame, and one per day of it.

Both compute the price of the same orders, each in its own way: the check compares the sums.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from penstock.app.app import App
from penstock.run.current import current_job
from penstock.task.retry import Retry
from penstock.tools.demo.demo_folder import demo_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

app = App()
ORDERS = "orders"  # the folder of the frame, partitioned by day
FIRST_DAY, LAST_DAY = "2026-01-05", "2026-01-11"
DAYS = 7
UNLUCKY = 10_000  # every so many-th order fails the first time
COMES_TO = "250 * pieces + order % 100"  # `price` in SQL


@app.task(queue="orders", retry=Retry(limit=3, delay=0.2, on=(ConnectionError,)))
def price(order: int, pieces: int) -> int:
    """The price of an order in cents: one of a million jobs."""
    if order % UNLUCKY == 0 and current_job().attempt == 1:
        raise ConnectionError("connection reset by prices.example.org")
    return 250 * pieces + order % 100


@app.task(spark=True, queue="days")
def takings(spark: SparkSession, day: date) -> int:
    """The sum of all orders of a day in cents: one Spark job."""
    orders = spark.read.parquet(str(demo_folder() / ORDERS / f"day={day}"))
    [row] = orders.selectExpr(f"sum({COMES_TO}) as cents").collect()
    return row["cents"] or 0


def orders(spark: SparkSession, rows: int) -> DataFrame:
    """A frame of orders, spread over the days."""
    return spark.range(rows).selectExpr(
        "cast(id as int) as order",
        "cast(id * 7919 % 5 + 1 as int) as pieces",
        f"date_add(date'{FIRST_DAY}', cast(id % {DAYS} as int)) as day",
    )
