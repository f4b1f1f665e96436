"""Days of ETL on Spark in steps: after a crash, completed steps are not computed again.

    python examples/spark/etl_days.py 4

The data is small here, so it takes a minute. Meanwhile the job's process, the worker and the keeper
are killed (-9) at random moments, as many times as the argument says.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from penstock import App, Handle, Retry, current_job

app = App()


@app.task(name="etl", spark=True, detached=True, retry=Retry(limit=100, delay=0))
def etl(spark: SparkSession, folder: str) -> dict[str, int]:
    """Each step writes a folder of its own, whole; the next one reads it."""
    job, made = current_job(), Path(folder)
    for name, make in STEPS.items():
        job.step(name, write, spark, made, name, make)
    return job.step("publish", publish, spark, made)


def write(spark: SparkSession, made: Path, name: str, make: Callable[..., DataFrame]) -> int:
    """Write the step's rows and count them; a second attempt replaces what the first one left."""
    begin(made, name)
    make(spark, made).write.mode("overwrite").parquet(str(made / name))
    return spark.read.parquet(str(made / name)).count()


def read(spark: SparkSession, made: Path) -> DataFrame:
    return spark.read.csv(str(made / "orders.csv"), "customer string, cents string")


def clean(spark: SparkSession, made: Path) -> DataFrame:
    orders = spark.read.parquet(str(made / "read"))
    return orders.selectExpr("customer", "try_cast(cents as bigint) cents").where("cents > 0")


def join(spark: SparkSession, made: Path) -> DataFrame:
    customers = spark.read.csv(str(made / "customers.csv"), "customer string, country string")
    return spark.read.parquet(str(made / "clean")).join(customers, "customer")


def aggregate(spark: SparkSession, made: Path) -> DataFrame:
    return spark.read.parquet(str(made / "join")).groupBy("country").sum("cents")


STEPS = {"read": read, "clean": clean, "join": join, "aggregate": aggregate}


def publish(spark: SparkSession, made: Path) -> dict[str, int]:
    """Write the totals atomically: readers see the old file or the new one."""
    begin(made, "publish")
    totals = {row[0]: row[1] for row in spark.read.parquet(str(made / "aggregate")).collect()}
    draft = made / "totals.draft"
    draft.write_text(json.dumps(totals))
    draft.replace(made / "totals.json")
    return totals


def begin(made: Path, step: str) -> None:
    """Record the processes that run this step, for Chaos to kill."""
    with (made / "begun").open("a") as begun:
        begun.write(f"{step} {os.getpid()} {os.getppid()}\n")


def orders(made: Path, count: int = 5000) -> dict[str, int]:
    """Write orders and customers; returns the expected totals."""
    countries = [("ada", "uk"), ("grace", "us"), ("alan", "uk")]
    lines = [(countries[n % 3][0], str(n) if n % 10 else "none") for n in range(count)]
    (made / "orders.csv").write_text("".join(f"{who},{cents}\n" for who, cents in lines))
    (made / "customers.csv").write_text("".join(f"{who},{where}\n" for who, where in countries))
    right = {"uk": 0, "us": 0}
    for who, cents in lines:
        right[dict(countries)[who]] += int(cents) if cents.isdigit() else 0
    return right


class Chaos:
    """Runs a worker, and kills it, the job's process or its keeper."""

    order = ("process", "worker", "process", "keeper")

    def __init__(self, handle: Handle[dict[str, int]], made: Path) -> None:
        self.killed: list[str] = []
        self._handle = handle
        self._begun = made / "begun"
        self._chance = random.Random(62)
        self._worker = self._start()

    def kill(self) -> None:
        """Kill the next one, at a random moment after a step has begun."""
        begun = len(self._steps())
        while len(self._steps()) == begun and not self._ended():
            time.sleep(0.05)
        time.sleep(self._chance.uniform(0, 2))
        if self._ended():
            return
        victim = self.order[len(self.killed) % len(self.order)]
        _, process, keeper = self._steps()[-1].split()
        if victim == "worker":
            self._worker.kill()
            self._worker.wait()
            self._worker = self._start()  # adopts the job
        else:
            try:
                os.kill(int(keeper if victim == "keeper" else process), 9)
            except ProcessLookupError:  # it has just ended by itself
                return
        self.killed.append(victim)

    def end(self) -> None:
        """Wait until the job has ended, and stop the worker."""
        while not self._ended():
            time.sleep(0.1)
        self._worker.terminate()
        self._worker.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "worker", __file__, "--processes", "1"]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _steps(self) -> list[str]:
        return self._begun.read_text().splitlines() if self._begun.exists() else []

    def _ended(self) -> bool:
        return self._handle.state() in {"succeeded", "failed"}


def main(kills: int, made: Path) -> None:
    right = orders(made)
    handle = etl.enqueue(str(made))
    chaos = Chaos(handle, made)
    for _ in range(kills):
        chaos.kill()
    chaos.end()
    steps = [line.split()[0] for line in (made / "begun").read_text().splitlines()]
    print(f"killed: {', '.join(chaos.killed)}")
    print(f"begun: {', '.join(steps)}")
    print(f"totals are right: {handle.result(timeout=0) == right}")
    print(f"published are the same: {json.loads((made / 'totals.json').read_text()) == right}")
    app.close()


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        os.environ["PENSTOCK_URL"] = f"sqlite:///{temporary}/jobs.db"
        os.environ["PENSTOCK_STATE"] = temporary
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 4, Path(temporary))
