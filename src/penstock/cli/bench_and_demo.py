"""See it work: bench measures this machine, demo shows the main job to a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.options import Json


def bench(
    *,
    broker: Annotated[Literal["sqlite", "postgres"], typer.Option(help="Which store.")] = "sqlite",
    url: Annotated[
        str | None,
        typer.Option(help="PostgreSQL: on this server, in databases of its own.", metavar="URL"),
    ] = None,
    jobs: Annotated[
        int, typer.Option(help="Jobs of the bulk and the backlog.", min=1000)
    ] = 200_000,
    claim: Annotated[
        bool, typer.Option("--claim", help="Also the claim among millions of others; minutes.")
    ] = False,
    around: Annotated[
        int, typer.Option(help="SQLite, with --claim: how many of each kind are around.", min=1)
    ] = 1_000_000,
    pending: Annotated[
        int, typer.Option(help="PostgreSQL, with --claim: how many are around.", min=10_000)
    ] = 500_000,
    snapshot: Annotated[
        float | None,
        typer.Option(help="PostgreSQL: also with a snapshot held open for SECONDS.", min=5),
    ] = None,
    spark: Annotated[
        int | None,
        typer.Option(
            help="PostgreSQL: also a frame of ROWS rows through Spark's sink.",
            metavar="ROWS",
            min=1000,
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="PostgreSQL: medians of how many rounds.", min=1)] = 5,
    folder: Annotated[
        Path | None, typer.Option(help="Which disk to measure.", show_default="temporary")
    ] = None,
    json: Json = False,
) -> None:
    """Measure enqueue, processing, fan-in and latency here, beside the raw limit of the store.

    In a temporary folder or on a server to throw away, in a few minutes; nothing is asserted.

    Example: penstock bench --jobs 50000
    """
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
    from penstock.tools.bench import bench as measure

    measure(broker, jobs, claim=claim, around=around, folder=folder, json=json)


def demo(
    *,
    spark: Annotated[
        bool, typer.Option("--spark", help="The data pipeline on Spark, in a minute or two.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(help="Jobs in bulk.", min=100, show_default="3,000; with --spark a million"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller numbers.")] = False,
    json: Json = False,
) -> None:
    """See it work: jobs of several kinds, a kill -9 in mid-run, and the proof that none is lost.

    With --spark: jobs out of a frame, worked by local workers and by Spark, a backfill, a lake and
    its report.

    Example: penstock demo
    """
    if spark:
        from penstock.tools.demo.spark.story import tell as tell_spark

        raise typer.Exit(tell_spark(jobs or (20_000 if quick else 1_000_000), json=json))
    from penstock.tools.demo.story import tell

    raise typer.Exit(tell(jobs or (300 if quick else 3000), json=json))
