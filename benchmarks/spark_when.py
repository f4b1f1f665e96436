"""Spark's own map, jobs on a fleet, and plain workers: `python benchmarks/spark_when.py`.

    --calls 400       of the task that waits 200 ms for a server on loopback
    --steps 20000     of the task that computes for 1 ms
    --nothings 200000 of the task that does nothing
    --cores 2 --threads 10 --runs 3

The three take turns over the same rows; what is printed are medians of seconds, from the call until
nothing is left. Spark runs already, workers are started; jobs are stored before, by Spark's sink,
and the time for that stands in a column of its own. Workers import this file.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from penstock import App

ANSWER_SECONDS = 0.2
STEP_SECONDS = 0.001
_PORT = "PENSTOCK_BENCH_PORT"

app = App()


@app.task(name="when:call")
def call(number: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ[_PORT]), timeout=60)
    try:
        connection.request("GET", f"/{number}")
        connection.getresponse().read()
    finally:
        connection.close()


@app.task(name="when:step")
def step(number: int) -> None:
    del number
    until = time.thread_time() + STEP_SECONDS  # of the processor, whoever else waits for it
    while time.thread_time() < until:
        pass


@app.task(name="when:nothing")
def nothing(number: int) -> None:
    del number


class Answers(threading.Thread):
    """A server that answers everybody after 200 ms, as many at a time as there are."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.port = 0
        self.up = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1000)
        self.port = server.sockets[0].getsockname()[1]
        self.up.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(ANSWER_SECONDS)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()


def mapped(spark: Any, name: str, rows: int, cores: int) -> None:
    """The function over a frame, by Spark alone: no store, no record."""
    port = os.environ[_PORT]
    folder = str(Path(__file__).parent)

    def run(numbers: Iterator[Any]) -> Iterator[int]:
        os.environ[_PORT] = port
        sys.path.insert(0, folder)
        import spark_when

        function = spark_when.app.tasks[name]
        done = 0
        for row in numbers:
            function(row.id)
            done += 1
        yield done

    assert sum(spark.range(0, rows, 1, cores).rdd.mapPartitions(run).collect()) == rows


def stored(spark: Any, name: str, rows: int) -> None:
    """A job for each row of the same frame."""
    frame = spark.range(rows).selectExpr("cast(id as int) as number")
    frame.write.format("penstock").option("task", name).mode("append").save()


def by_fleet(spark: Any, cores: int, threads: int) -> None:
    from penstock.spark.fleet.driver import Fleet

    assert Fleet(spark, f"{__file__}:app", cores, threads=threads, drain=True).run() == 0


def by_workers(url: str, cores: int, threads: int) -> None:
    command = [sys.executable, "-m", "penstock", "worker", f"{__file__}:app", "--drain"]
    subprocess.run(
        [*command, "--processes", str(cores), "--threads", str(threads)],
        env={**os.environ, "PENSTOCK_URL": url},
        check=True,
        capture_output=True,
    )


def seconds(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def measure(spark: Any, url: str, rows: dict[str, int], options: argparse.Namespace) -> None:
    """One turn of everything that does not count, then the table."""
    cores, threads = options.cores, options.threads
    print("| task | rows | Spark's own map | storing the jobs | fleet | plain workers |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, full in rows.items():
        took: dict[str, list[float]] = {"map": [], "store": [], "fleet": [], "workers": []}
        for turn in range(options.runs + 1):
            count = full if turn else min(full, 20)
            ways: list[tuple[str, Callable[[], None]]] = [
                ("map", lambda name=name, count=count: mapped(spark, name, count, cores)),
                ("store", lambda name=name, count=count: stored(spark, name, count)),
                ("fleet", lambda: by_fleet(spark, cores, threads)),
                ("store", lambda name=name, count=count: stored(spark, name, count)),
                ("workers", lambda: by_workers(url, cores, threads)),
            ]
            for way, what in ways:
                spent = seconds(what)
                if turn:
                    took[way].append(spent)
        cells = [f"{median(spent):.1f} s" for spent in took.values()]
        print(f"| {name} | {full:,} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    import penstock.spark
    from penstock.testing.postgres import Server

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--nothings", type=int, default=200_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    server = Answers()
    server.start()
    server.up.wait()
    os.environ[_PORT] = str(server.port)
    rows = {
        "when:call": options.calls,
        "when:step": options.steps,
        "when:nothing": options.nothings,
    }
    with Server({"shared_buffers": "256MB", "max_wal_size": "4GB"}) as postgres:
        url = postgres.create_database()
        spark = penstock.spark.session(f"local[{options.cores}]", url=url)
        print(f"Python {sys.version.split()[0]}, Spark {spark.version}, {options.cores} cores")
        measure(spark, url, rows, options)
        spark.stop()


if __name__ == "__main__":
    main()
