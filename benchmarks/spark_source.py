"""The Spark source and the export beside Spark's own JDBC: `python benchmarks/spark_source.py`.

    --rows 1000000          attempts to read
    --jdbc postgresql.jar   PostgreSQL's JDBC driver; without it, the comparison is a bare COPY
    --cores 2 --runs 3

The source and JDBC read every column of the same history and hand the rows to nobody (Spark's
`noop`); the export takes all of it to a new lake, as `penstock pipeline run` does. They take turns
in one session, after a first one each that does not count; what is printed are medians.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import psycopg

import penstock.spark
from penstock.broker.slice import Selection
from penstock.brokers import open_broker
from penstock.job import Lane
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.postgres import Server

LANE = Lane("mail", "mail:send")
FILL = """
    insert into penstock.history (
        kind, at, job, lane, attempt, state, enqueued_at, started_at, worker, body, result
    )
    select 'attempt', %(now)s - n * 0.0001, gen_random_uuid(), %(lane)s, 1, 'succeeded',
           %(now)s - n * 0.0001 - 2, %(now)s - n * 0.0001 - 1, 'worker-' || n %% 8,
           convert_to('{"args":{"to":"ada-' || n || '@example.org","order":' || n || '}}', 'UTF8'),
           convert_to(n::text, 'UTF8')
      from generate_series(1, %(rows)s) as n
"""


def fill(url: str, rows: int) -> None:
    """A store with this many attempts, made by the server itself."""
    open_broker(url).close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into penstock.lane values (%s, 'mail', 'mail:send', 1, 0, '', '')", (LANE.hash,)
        )
        for _ in range(10):
            connection.execute(FILL, {"now": time.time(), "lane": LANE.hash, "rows": rows // 10})
        connection.execute("vacuum analyze penstock.history")


def through_penstock(spark: Any, parts: int) -> None:
    table = spark.read.format("penstock").option("table", "attempts").option("slices", parts)
    table.load().write.format("noop").mode("overwrite").save()


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def to_a_lake(spark: Any, rows: int) -> None:
    """All of the history in a lake that was not there before; every row is counted."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        taken = export(spark, Lake(folder), nobody).taken["attempts"]
        if taken != rows:
            raise SystemExit(f"{taken:,} of {rows:,} attempts came to the lake")


def through_jdbc(spark: Any, url: str, parts: int) -> None:
    with psycopg.connect(url) as connection:
        ends = connection.execute(
            "select min(position), max(position) from penstock.history"
        ).fetchone()
    assert ends is not None
    (
        spark.read.format("jdbc")
        .options(
            **_jdbc(url),
            driver="org.postgresql.Driver",
            dbtable="penstock.history",
            partitionColumn="position",
            lowerBound=ends[0],
            upperBound=ends[1],
            numPartitions=parts,
            fetchsize=10_000,
        )
        .load()
        .write.format("noop")
        .mode("overwrite")
        .save()
    )


def through_copy(url: str, parts: int) -> None:
    """The same slices by a bare COPY, two at a time: what the server and one reader can do."""
    broker = open_broker(url)
    slices = broker.slices(Selection(table="attempts"), at_most=parts)
    broker.close()
    query = "copy (select * from penstock.history where position > {} and position <= {}) to stdout"

    def read(after: int, until: int) -> None:
        with (
            psycopg.connect(url) as connection,
            connection.cursor() as cursor,
            cursor.copy(query.format(after, until).encode()) as copied,
        ):
            for _ in copied:
                pass

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(read, part.after, part.until) for part in slices]:
            done.result()


def _jdbc(url: str) -> dict[str, str]:
    there = urlsplit(url)
    return {
        "url": f"jdbc:postgresql://{there.hostname}:{there.port}{there.path}",
        "user": there.username or "postgres",
        "password": there.password or "",
    }


def seconds(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--jdbc", help="PostgreSQL's JDBC driver, a jar")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with Server({"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        url = server.create_database()
        fill(url, options.rows)
        config = {"spark.jars": options.jdbc} if options.jdbc else {}
        spark = penstock.spark.session(f"local[{options.cores}]", url=url, config=config)
        parts = 4 * options.cores
        other = "JDBC" if options.jdbc else "COPY"
        rows = options.rows // 10 * 10
        ways: dict[str, Callable[[], None]] = {
            "source": lambda: through_penstock(spark, parts),
            "export": lambda: to_a_lake(spark, rows),
            other: (lambda: through_jdbc(spark, url, parts))
            if options.jdbc
            else (lambda: through_copy(url, parts)),
        }
        took: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.runs + 1):
            for name, way in ways.items():
                spent = seconds(way)
                print(f"{name:7} {rows / spent:12,.0f} rows/s{'' if turn else '  (first)'}")
                if turn:
                    took[name].append(spent)
        rates = {name: rows / median(spent) for name, spent in took.items()}
        for name in ("source", "export"):
            print(f"{name} / {other}: {rates[name] / rates[other]:.2f}")
        spark.stop()


if __name__ == "__main__":
    main()
