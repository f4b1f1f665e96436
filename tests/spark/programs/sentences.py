"""A program whose store is away, full or newer: its terminal is what the test looks at.

Errors are given to `sys.excepthook`, as Python does with the one that ends a program; the last one
does end it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import penstock.spark
from penstock import App

AWAY = "postgresql://ada:hidden@127.0.0.1:1/none"
given = json.loads(sys.argv[1])
spark: Any = penstock.spark.session("local[2]", url=AWAY, config=given["config"])
rows = spark.range(3).selectExpr("cast(id as int) as number")
app = App(AWAY, name="sentences")


@app.task(name="nap")
def nap(number: int) -> None: ...


def write(frame: Any, **options: str) -> None:
    frame.write.format("penstock").options(task="nap", **options).mode("append").save()


def read(**options: str) -> None:
    spark.read.format("penstock").options(table="attempts", **options).load().collect()


def follow() -> None:
    reader = spark.readStream.format("penstock").option("table", "attempts")
    reader.load().writeStream.format("noop").start().awaitTermination()


def write_full() -> None:
    """Files of this program's Python workers cannot grow: that is all that `full_app` does."""
    long = spark.range(0, 4000, 1, 1).selectExpr("cast(id as int) number", "repeat('x', 900) text")
    write(long, url=given["full"], app=f"{Path(__file__).with_name('full_app.py')}:app")


STEPS: dict[str, Callable[[], Any]] = {
    "write, away": lambda: write(rows),
    "read, away": read,
    "stream, away": follow,
    "apply, away": lambda: penstock.spark.apply(rows, nap, id="number", name="june"),
    "write, login refused": lambda: write(rows, url=given["no_login"]),
    "write, newer": lambda: write(rows, url=given["newer"]),
    "read, newer": lambda: read(url=given["newer"]),
    "write, full": write_full,
    "a UDF of the user": lambda: rows.rdd.map(lambda row: 1 // row.number).collect(),
}
for name, step in STEPS.items():
    print(f"== {name}", file=sys.stderr, flush=True)
    try:
        step()
    except Exception as error:
        sys.excepthook(*sys.exc_info())
        print(name, "Traceback" in str(error), sep=": ")
print("== ended by it", file=sys.stderr, flush=True)
write(rows)
