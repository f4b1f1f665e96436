"""See it work: bench measures this machine, demo shows the main job to a stranger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.options import Json


def bench(
    *,
    broker: Annotated[Literal["sqlite"], typer.Option(help="Which store.")] = "sqlite",
    jobs: Annotated[
        int, typer.Option(help="Jobs of the bulk and the backlog.", min=1000)
    ] = 200_000,
    claim: Annotated[
        bool, typer.Option("--claim", help="Also the claim among three million others; minutes.")
    ] = False,
    around: Annotated[
        int, typer.Option(help="With --claim: how many of each kind are around.", min=1)
    ] = 1_000_000,
    folder: Annotated[
        Path | None, typer.Option(help="Which disk to measure.", show_default="temporary")
    ] = None,
    json: Json = False,
) -> None:
    """Measure enqueue, processing and latency here, beside the raw limit of the store.

    In a temporary folder, in about a minute; nothing is asserted.

    Example: penstock bench --jobs 50000
    """
    from penstock.bench import bench as measure

    measure(broker, jobs, claim=claim, around=around, folder=folder, json=json)


def demo(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller numbers, a few seconds.")] = False,
    json: Json = False,
) -> None:
    """See it work: jobs of several kinds, a kill -9 in mid-run, and the proof that none is lost.

    Example: penstock demo
    """
    from penstock.demo.story import tell

    raise typer.Exit(tell(quick=quick, json=json))
