"""What a driver of `drivers.py` does: it reads steps from its input and writes down how they ended.

Run as a program, so that the functions of its tasks travel by value: executors do not have this
file.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import penstock.spark
from penstock.spark.session import make_active

WIDE = 60_000  # so many letters a row, so that a task hands over what it has many times


def holding(folder: str, gate: str, numbers: list[int]) -> Any:
    """The text of a number; with these it waits at the gate, in the first attempt of a task.

    A further attempt lets the first one arrive there: on a crowded machine it may be quicker.
    """

    def hold(number: int) -> str:
        import os
        import threading
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        if number in numbers and context is not None:
            opened = Path(folder, f"open-{gate}")
            here = Path(folder, f"at-{gate}-in-{context.partitionId()}")
            awaited = [opened, here]
            if context.attemptNumber() == 0:
                with Path(folder, f"at-{gate}").open("a", encoding="ascii") as arrived:
                    arrived.write(f"{os.getpid()}\n")
                here.touch()
                awaited = [opened]
            while not any(path.exists() for path in awaited):
                threading.Event().wait(0.02)
        return f"{number:0{WIDE}}"

    return hold


class Steps:
    def __init__(self, spark: Any) -> None:
        self._spark = spark
        # Small batches, so that a task has many.
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 20)

    def _held(self, frame: Any, given: dict[str, Any]) -> Any:
        from pyspark.sql import functions

        hold = holding(given["folder"], given["gate"], given["hold"])
        held = functions.udf(hold, "string").asNondeterministic()
        return frame.select("number", held("number").alias("text"))

    def write(self, given: dict[str, Any]) -> None:
        """400 wide rows into the store; those at the gate wait."""
        frame = self._spark.range(0, 400, 1, given.get("partitions", 2))
        frame = frame.selectExpr("cast(id as int) as number")
        self._save(self._held(frame, given), given)

    def shuffled(self, given: dict[str, Any]) -> None:
        """As `write`, behind a shuffle that deals rows out by chance."""
        from pyspark.sql import functions

        chance = functions.udf(lambda _: __import__("random").random(), "double")
        frame = self._spark.range(0, 400, 1, 2).selectExpr("cast(id as int) as number")
        frame = frame.withColumn("chance", chance.asNondeterministic()("number"))
        self._save(self._held(frame.repartition(4, "chance"), given), given)

    def coalesced(self, given: dict[str, Any]) -> int:
        """The same rows again, in as few partitions as adaptive execution thinks right."""
        frame = self._spark.range(0, 400, 1, 2).selectExpr("cast(id as int) as number")
        frame = frame.repartition("number")
        self._save(frame.selectExpr("number", f"lpad(number, {WIDE}, '0') as text"), given)
        return frame.rdd.getNumPartitions()

    def stream(self, given: dict[str, Any]) -> None:
        """Follow a folder of numbers to its end."""
        frame = self._spark.readStream.schema("number int").json(given["source"])
        query = (
            self._held(frame, given)
            .writeStream.format("penstock")
            .option("task", "mail:send")
            .option("checkpointLocation", given["checkpoint"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def export(self, given: dict[str, Any]) -> None:
        """History to a lake, in batches; after the first one it waits at the gate."""
        from penstock.spark.pipelines.lake.export import export
        from penstock.spark.pipelines.lake.lake import Lake

        def told(table: str, rows: int) -> None:
            Path(given["folder"], f"at-{given['gate']}").write_text(f"{rows}\n", encoding="ascii")
            while not Path(given["folder"], f"open-{given['gate']}").exists():
                threading.Event().wait(0.02)

        export(self._spark, Lake(given["lake"]), told, rows_at_once=40)

    def _save(self, frame: Any, given: dict[str, Any]) -> None:
        writer = frame.write.format("penstock").option("task", "mail:send")
        for name, value in given.get("options", {}).items():
            writer = writer.option(name, value)
        writer.mode("append").save()


def main(kind: type[Any]) -> None:
    master, answers, settings = sys.argv[1:]
    spark = penstock.spark.session(
        master, url=os.environ["PENSTOCK_URL"], config=json.loads(settings)
    )
    steps = kind(spark)
    lock = threading.Lock()

    def make(given: dict[str, Any]) -> None:
        make_active(spark)
        try:
            answer = {"result": getattr(steps, given["step"])(given)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        with lock, Path(answers).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"number": given["number"], **answer}) + "\n")

    for line in sys.stdin:
        threading.Thread(target=make, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    main(Steps)
