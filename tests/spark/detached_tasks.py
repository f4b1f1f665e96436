"""Detached tasks on Spark for the tests: they wait to be told, and write down what they do.

A file beside the ledger says that a task may go on: no test depends on the machine's speed.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import App, Retry, current_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEDGER = Path(os.environ.get("LEDGER", "ledger"))


def ledger(*words: object) -> None:
    """Write down that something happened, whatever becomes of this process."""
    line = " ".join(str(word) for word in (*words, os.getpid())) + "\n"
    descriptor = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def wait_until_told(word: str) -> None:
    while not LEDGER.with_name(f"told-{word}").exists():
        threading.Event().wait(0.02)


def copy_orders(spark: SparkSession, source: str, into: str) -> int:
    """A stream, file by file, which goes on from the checkpoint of its job.

    Each batch is written under its own number, so that one which comes again replaces itself.
    """
    job = current_job()
    ledger("copy", job.attempt, spark.sparkContext.applicationId)

    def write(orders: Any, batch: int) -> None:
        orders.write.mode("overwrite").json(f"{into}/batch={batch}")
        ledger("written", batch, job.attempt)
        if batch == 1:
            wait_until_told(f"on-{job.attempt}")

    orders = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(source)
    writer = orders.writeStream.foreachBatch(write).trigger(availableNow=True)
    checkpoint = f"{into}.checkpoints/{job.id}"
    query = writer.queryName("orders").option("checkpointLocation", checkpoint).start()
    try:
        query.awaitTermination()
    finally:
        ledger("left", spark.range(7).count(), spark.range(8).count())
    return spark.read.json(into).count()


def sit(spark: SparkSession) -> None:
    """On executors, until it is told; tidies up with Spark."""
    ledger("sit", current_job().attempt, spark.sparkContext.applicationId)
    folder = LEDGER

    def wait(rows: Any) -> Any:
        with folder.open("a") as lines:
            lines.write("waits 0\n")
        while not folder.with_name("told-rise").exists():
            threading.Event().wait(0.05)
        return rows

    try:
        spark.sparkContext.parallelize([1, 2], 2).mapPartitions(wait).count()
    finally:
        ledger("rose", spark.range(7).count(), spark.range(8).count())


def make_app(url: str | None = None) -> App:
    """The tasks on a store of one's own."""
    app = App(url)
    for task in (copy_orders, sit):
        app.task(name=task.__name__, spark=True, detached=True, retry=Retry(limit=9, delay=0))(task)
    return app


app = make_app()
