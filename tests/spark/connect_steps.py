"""What a client of Spark Connect does, in a process of its own; prints what came of it, as JSON.

Run with the address of a server and a folder to work in, or with "local[2]" for a server of its
own, and for the first part alone. The store is the profile `lab`. Whatever touches sparkContext, an
RDD or the JVM ends it: the client of Connect has none of them.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import penstock.spark
from penstock import Refused
from penstock.app.locate import load_app
from penstock.cli import main
from penstock.spark.fleet.driver import Fleet
from penstock.spark.pipelines.lake import Lake
from penstock.spark.pipelines.lake.raw_tables import read_raw
from tests.spark.test_examples import EXAMPLES, endpoint, paid

TASKS = f"{Path(__file__).with_name('apply_tasks.py')}:app"


def work(address: str, folder: Path) -> dict[str, Any]:
    spark: Any = SparkSession.builder.remote(address).getOrCreate()
    said: dict[str, Any] = {"class": type(spark).__module__}
    said["url"] = refusal(lambda: penstock.spark.attach(spark, url="sqlite:///elsewhere.db"))
    penstock.spark.attach(spark, profile="lab")
    said["fleet"] = refusal(lambda: Fleet(spark, "tasks:app", 1))
    said["ship"] = refusal(lambda: penstock.spark.ship(spark, "json"))
    said["option"] = refusal(lambda: table(spark, "counts", url="sqlite:///elsewhere.db").count())

    rows = spark.range(20).selectExpr("cast(id as int) number", "concat('k', id % 3) as k")
    for options in ({}, {"key_column": "k"}, {"id_column": "number", "arguments": "number"}):
        writer = rows.drop("k") if not options else rows
        save = writer.write.format("penstock").option("task", "mail:send").options(**options)
        save.mode("append").save()
    said["written"] = table(spark, "jobs").count()
    if address.startswith("local"):
        return said

    texts = spark.createDataFrame([(1, "a"), (2, "bad"), (3, "c")], "id int, text string")
    applied = [
        penstock.spark.apply(
            texts, load_app(TASKS).tasks["lab:score"], id="id", name=f"june-{again}"
        )
        for again in (0, 0)
    ]
    said["applied"] = [
        [row.id, row.result and row.result.points, row.attempt]
        for row in applied[1].orderBy("id").collect()
    ]
    said["errors"] = [row.id for row in applied[1].where("error is not null").collect()]
    said["called"] = Path(os.environ["LAB_CALLS"]).read_text().split()
    said["tables"] = {
        name: table(spark, name).count() for name in ("attempts", "events", "gauges", "results")
    }

    lake = folder / "lake"
    said["commands"] = [
        command("pipeline", "run", "--lake", str(lake), "--profile", "lab", "--json"),
        command(
            *("pipeline", "report", "--lake", str(lake), "--profile", "lab", "--json"),
            *("--from", "lake", "--page", str(folder / "report.html")),
        ),
        command(
            *("pipeline", "replay", "--lake", str(lake), "--profile", "lab", "--json"),
            *("--where", "task = 'lab:score' and state = 'failed'", "--name", "again"),
        ),
    ]
    said["report"] = (folder / "report.html").exists()
    said["in the lake"] = read_raw(spark, Lake(str(lake)), "attempts").count()
    said["replayed"] = table(spark, "jobs", task="lab:score").count()
    said["notebook"] = notebook(folder / "notebook")
    return said


def notebook(folder: Path) -> list[str]:
    """What examples/spark/notebook.py prints in this session, run twice; and what was paid for."""
    folder.mkdir()
    os.chdir(folder)
    sys.path.insert(0, str(EXAMPLES))
    out = io.StringIO()
    with endpoint(budget=1000) as url:
        os.environ["MODEL_URL"] = url
        worker = [sys.executable, "-m", "penstock", "worker", str(EXAMPLES / "model.py")]
        with subprocess.Popen([*worker, "--processes", "1"]) as process:
            try:
                for _ in range(2):
                    with contextlib.redirect_stdout(out):
                        runpy.run_path(str(EXAMPLES / "notebook.py"))
            finally:
                process.terminate()
        return [*out.getvalue().splitlines(), f"{sum(paid(url).values())} paid"]


def table(spark: Any, name: str, **options: str) -> Any:
    return spark.read.format("penstock").option("table", name).options(**options).load()


def refusal(call: Any) -> str:
    try:
        return f"nothing was wrong: {call()}"
    except Refused as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def command(*words: str) -> Any:
    """What a command prints, and its exit code."""
    out = io.StringIO()
    sys.argv = ["penstock", *words]
    with contextlib.redirect_stdout(out):
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code
    try:
        return [code or 0, json.loads(out.getvalue())]
    except json.JSONDecodeError:
        return [code, out.getvalue()]


if __name__ == "__main__":
    answers = Path(sys.argv[3])
    try:
        answer = work(sys.argv[1], Path(sys.argv[2]))
    except BaseException:
        answer = {"failed": traceback.format_exc()}
    answers.write_text(json.dumps(answer, default=str), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # gRPC and a local server may take their time
