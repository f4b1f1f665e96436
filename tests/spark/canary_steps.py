"""A whole run of everything that Spark does with a store, for a driver of `drivers.py`."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from steps import main
from typer.testing import CliRunner

import penstock.spark
from penstock.cli.root import root
from penstock.spark.fleet.driver import Fleet
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.worker import Worker

TABLES = ("jobs", "attempts", "results", "counts")


class Whole:
    """Every step keeps what Spark shows of it, in the folder that the driver runs in."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._url = os.environ["PENSTOCK_URL"]

    def write(self, _: Any) -> None:
        """From a frame, with rows that are rejected, and from a stream."""
        rows = self._spark.range(0, 60, 1, 2)
        rows = rows.selectExpr("cast(id as int) as number", "if(id = 7, double('nan'), 0D) seconds")
        self._save(rows, rejects="rejects")
        Path("in").mkdir()
        Path("in/1.json").write_text('{"number": 100}\n{"number": 101}\n')
        stream = self._spark.readStream.schema("number int").json("in")
        writer = stream.writeStream.format("penstock").option("task", "nap")
        query = writer.option("checkpointLocation", "sunk").trigger(availableNow=True).start()
        self._keep("stream.plan", query._jsq.explainInternal(True))
        query.awaitTermination()

    def work(self, _: Any) -> int:
        """On executors."""
        return Fleet(self._spark, "fleet_tasks:app", 2, drain=True, lease=5.0).run()

    def read(self, _: Any) -> int:
        """Tables; some of them with the URL as an option, which is the worse way."""
        read = 0
        for place, table in enumerate(TABLES):
            frame = self._spark.read.format("penstock").option("table", table)
            frame = (frame.option("url", self._url) if place % 2 else frame).load()
            read += len(frame.collect())
            execution = frame._jdf.queryExecution()
            self._keep(f"{table}.plan", execution.toString())
            self._keep(f"{table}.stats", execution.stringWithStats())
        stream = self._spark.readStream.format("penstock").option("table", "attempts")
        writer = stream.option("url", self._url).load().writeStream.format("parquet")
        writer = writer.option("path", "read").option("checkpointLocation", "followed")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        self._keep("followed.plan", query._jsq.explainInternal(True))
        return read

    def pipeline(self, given: dict[str, Any]) -> list[int]:
        """History to the lake, without the reports that are kept there unless asked for; a page."""
        codes: list[int] = []
        if not given["whole"]:
            export(self._spark, Lake("lake"), lambda *_: None)
        for words in (("run",), ("report", "--page", "page.html"))[not given["whole"] :]:
            result = CliRunner().invoke(root, ["pipeline", *words, "--lake", "lake"])
            self._keep(f"pipeline-{len(codes)}.out", f"{result.output} {result.exception!r}")
            codes.append(result.exit_code)
        return codes

    def jobs(self, _: Any) -> list[Any]:
        """apply, a Spark task and a replay: what they return, and the replay's exit code."""
        from fleet_tasks import app, nap

        @app.task(name="counted", spark=True)
        def counted(spark: Any) -> int:
            return spark.range(5).count()

        where = ["--where", "task = 'nap'", "--lake", "lake"]
        replayed = CliRunner().invoke(root, ["pipeline", "replay", *where, "--name", "canary"])
        self._keep("replay.out", f"{replayed.output} {replayed.exception!r}")
        handle = counted.enqueue()
        worker = Worker(app, threads=2, drain=True)
        worker.work()
        rows = self._spark.range(200, 203).selectExpr("cast(id as int) as number")
        command = [sys.executable, "-m", "penstock", "worker", "fleet_tasks:app"]
        with subprocess.Popen([*command, "--processes", "1"]) as process:
            try:
                applied = penstock.spark.apply(rows, nap, id="number", name="june", into="applied")
            finally:
                process.terminate()
        results = sorted(row.result for row in applied.collect())
        return [replayed.exit_code, handle.result(), results]

    def fail(self, _: Any) -> list[str]:
        """Whatever goes wrong, where it says so: here, and on executors."""
        place = urlsplit(self._url)
        word = place.password
        rows = self._spark.range(3).selectExpr("cast(id as int) as number")
        bad = rows.selectExpr("number", "double('nan') as seconds")
        wrong = [
            self._url.replace(f":{word}@", f":{word}-wrong@"),
            f"postgresql://ada:{word}@127.0.0.1:1/none",
            f"postgresql://ada:{word}@no-such-host.invalid/none",
            f"postgresql://ada:{word}@127.0.0.1:port/none",
            f"postgresql://ada:x@{word}@127.0.0.1:1/none",
            f"postgresql:/ada:{word}@127.0.0.1/none",
            f"mysql://ada:{word}@127.0.0.1/none",
            f"{self._url}?password={word}&colour=green",
        ]
        said = [self._said(lambda url=url: self._save(rows, url=url)) for url in wrong[:3]]
        said += [self._said(lambda url=url: self._load(url=url).count()) for url in wrong]
        said.append(self._said(lambda: self._follow(wrong[0])))
        said += [
            self._said(lambda: self._save(bad, url=self._url)),
            self._said(lambda: self._save(rows, url=self._url, colour="green")),
            self._said(lambda: self._save(rows, url=self._url, key_column="none")),
            self._said(lambda: self._load(url=self._url, slices="many").count()),
            self._said(lambda: self._save(rows, url=self._url, profile="none")),
        ]
        penstock.spark.attach(self._spark, url=wrong[0])
        said.append(self._said(lambda: self._save(rows)))
        refused = Fleet(self._spark, "fleet_tasks:app", 1, seconds=3.0, lease=5.0)
        refused.run()
        penstock.spark.attach(self._spark, url=self._url)
        said += [str(end) for end in refused.ends]
        return said

    def show(self, _: Any) -> None:
        """What Spark shows of itself, to whoever opens its pages."""
        context = self._spark.sparkContext
        page = context.uiWebUrl
        kept = f"{page}/api/v1/applications/{context.applicationId}"
        pages = [
            f"{page}/{name}/" for name in ("environment", "SQL", "jobs", "executors", "stages")
        ]
        for number, each in enumerate([*pages, f"{kept}/environment", f"{kept}/sql?details=true"]):
            with urllib.request.urlopen(each, timeout=60) as answer:
                self._keep(f"page-{number}.html", answer.read().decode())
        self._keep("conf", str(context.getConf().getAll()))
        settings = self._spark.sql("set -v").collect()
        self._keep("settings", str(settings))

    def stop(self, _: Any) -> None:
        self._spark.stop()

    def _save(self, rows: Any, **options: str) -> None:
        writer = rows.write.format("penstock").option("task", "nap").options(**options)
        writer.mode("append").save()

    def _load(self, **options: str) -> Any:
        reader = self._spark.read.format("penstock").option("table", "attempts")
        return reader.options(**options).load()

    def _follow(self, url: str) -> None:
        reader = self._spark.readStream.format("penstock").option("table", "attempts")
        query = reader.option("url", url).load().writeStream.format("noop").start()
        query.awaitTermination(60)

    def _said(self, call: Any) -> str:
        try:
            result = call()
        except Exception as error:
            cause = "".join(str(each) for each in (error.__cause__, error.__context__))
            return f"{error} {error!r} {cause}"
        return f"nothing was wrong: {result}"

    def _keep(self, name: str, text: str) -> None:
        Path("shown").mkdir(exist_ok=True)
        Path("shown", name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Whole)
