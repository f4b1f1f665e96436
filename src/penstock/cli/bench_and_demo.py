"""bench measures this machine; demo shows what Penstock does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.options import Json
from penstock.errors import Refused


def bench(
    *,
    broker: Annotated[
        Literal["sqlite", "postgres", "redis", "remote"],
        typer.Option(help="The kind of store; remote: SQLite behind a manager."),
    ] = "sqlite",
    url: Annotated[
        str | None,
        typer.Option(
            help="PostgreSQL: measure this server, in new databases. Redis: this one, under new "
            "prefixes.",
            metavar="URL",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Number of jobs.", min=1000)] = 200_000,
    claim: Annotated[
        bool,
        typer.Option(
            "--claim", help="Also measure a claim among millions of other jobs; takes minutes."
        ),
    ] = False,
    around: Annotated[
        int, typer.Option(help="SQLite, with --claim: number of other jobs of each kind.", min=1)
    ] = 1_000_000,
    pending: Annotated[
        int, typer.Option(help="PostgreSQL, with --claim: number of other jobs.", min=10_000)
    ] = 500_000,
    snapshot: Annotated[
        float | None,
        typer.Option(
            help="PostgreSQL: also measure while a snapshot is held open for SECONDS.", min=2
        ),
    ] = None,
    spark: Annotated[
        int | None,
        typer.Option(
            help="PostgreSQL: also write a frame of ROWS rows through Spark's sink.",
            metavar="ROWS",
            min=1000,
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            help="PostgreSQL, --shards: number of rounds; --work: of pairs; medians are shown.",
            min=1,
        ),
    ] = 5,
    work: Annotated[
        Literal["cpu1ms", "io50ms", "async50ms", "mixed"] | None,
        typer.Option(
            help="Measure tasks that do this instead: what a worker adds to the bare function in "
            "the same processes, and its memory."
        ),
    ] = None,
    threads: Annotated[int, typer.Option(help="With --work: threads per process.", min=1)] = 10,
    async_slots: Annotated[
        int, typer.Option(help="With --work: jobs of `async def` tasks at a time.", min=1)
    ] = 100,
    processes: Annotated[
        int, typer.Option(help="With --work: number of child processes.", min=1)
    ] = 1,
    shards: Annotated[
        bool,
        typer.Option(
            "--shards", help="Measure what a job costs over 1, 2, 4 and 8 shards, in CPU time."
        ),
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Measure the disk of this folder.", show_default="temporary")
    ] = None,
    json: Json = False,
) -> None:
    """Measure enqueue, processing, fan-in and latency, beside the raw limit of the store.

    It takes a few minutes and uses a temporary store.

    With --work: how much of the time of the bare function is left, for tasks that compute for a
    millisecond, wait for 50 ms on a thread or on the event loop, or each in turn.

    With --shards: the CPU time of a job over 1, 2, 4 and 8 SQLite files, or databases of one
    PostgreSQL server, as shards; it should stay the same.

    Example: penstock bench --jobs 50000
    """
    if shards:
        if broker not in {"sqlite", "postgres"} or work is not None:
            raise Refused("--shards is for --broker sqlite and postgres, without --work")
        from penstock.brokers import need_driver
        from penstock.tools.bench.shards import bench as measure_shards

        need_driver("postgresql://" if broker == "postgres" else "sqlite://")
        measure_shards(jobs=jobs, broker=broker, url=url, folder=folder, runs=runs, json=json)
        return
    if work is not None:
        if broker == "remote":
            raise Refused("--work is for --broker sqlite, postgres and redis")
        from penstock.brokers import need_driver
        from penstock.tools.bench.work import bench as measure_work

        need_driver({"postgres": "postgresql://", "redis": "redis://"}.get(broker, "sqlite://"))
        measure_work(
            work,
            broker=broker,
            url=url,
            jobs=jobs,
            threads=threads,
            async_slots=async_slots,
            processes=processes,
            runs=runs,
            folder=folder,
            json=json,
        )
        return
    if broker == "postgres":
        from penstock.brokers import need_driver

        need_driver("postgresql://")
        from penstock.tools.bench.postgres import bench as measure_postgres

        measure_postgres(
            jobs,
            url=url,
            folder=folder,
            runs=runs,
            pending=pending if claim else None,
            snapshot=snapshot,
            spark=spark,
            json=json,
        )
        return
    if broker == "redis":
        from penstock.brokers import need_driver

        need_driver("redis://")
        from penstock.tools.bench.redis import bench as measure_redis

        measure_redis(jobs, url=url, json=json)
        return
    if broker == "remote":
        from penstock.brokers import need_driver

        need_driver("penstock://")
        from penstock.tools.bench.remote import bench as measure_remote

        measure_remote(jobs, folder=folder, json=json)
        return
    from penstock.tools.bench.report import bench as measure

    measure(broker, jobs, claim=claim, around=around, folder=folder, json=json)


def demo(
    *,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Show the data pipeline on Spark; takes a minute or two."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of jobs in the bulk part.",
            min=100,
            show_default="3,000; with --spark a million",
        ),
    ] = None,
    storm: Annotated[
        bool,
        typer.Option(
            "--storm", help="Kill and freeze processes for a minute, then check the history."
        ),
    ] = False,
    seconds: Annotated[
        float, typer.Option(help="With --storm: for how long.", min=1, metavar="SECONDS")
    ] = 60,
    seed: Annotated[
        int | None,
        typer.Option(help="With --storm: the same faults again.", show_default="another each time"),
    ] = None,
    shards: Annotated[
        bool,
        typer.Option("--shards", help="Split a store in two while its jobs run; half a minute."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller numbers.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            help="Use a Redis, under a prefix of its own: redis://localhost/0.",
            show_default="a new SQLite file",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Run a demo: jobs of several kinds, a kill -9 in mid-run, and a proof that none is lost.

    With --spark: jobs from a data frame, run by local workers and by Spark, a backfill, a lake and
    its report.

    With --storm: producers, workers and their supervisors are killed, frozen and restarted at
    random while jobs of every kind run; then everything that was accepted must have ended once.

    With --shards: a SQLite file becomes two shards while jobs run, and the mover is killed on its
    way; then the history of both is checked.

    Example: penstock demo --storm
    """
    if url is not None and (storm or spark or shards):
        raise Refused("--url is for the demo without --spark, --storm and --shards")
    if shards:
        from penstock.tools.demo.shards.run_demo import run_demo as run_shards_demo

        raise typer.Exit(run_shards_demo(seconds=1 if quick else 3, json=json))
    if storm:
        from penstock.tools.demo.storm.run_storm import run_storm

        raise typer.Exit(run_storm(10 if quick else seconds, seed, json=json))
    if spark:
        from penstock.tools.demo.spark.run_demo import run_demo as run_spark_demo

        raise typer.Exit(run_spark_demo(jobs or (20_000 if quick else 1_000_000), json=json))
    from penstock.tools.demo.run_demo import run_demo

    raise typer.Exit(run_demo(jobs or (300 if quick else 3000), url=url, json=json))
