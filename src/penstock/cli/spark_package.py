"""spark package: one archive with Penstock for a cluster that does not have it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import Json, Store, with_options

_FOLDER = "penstock_code"  # where Spark unpacks it, in the working folder of each process


class SparkCommand(StrEnum):
    PACKAGE = "package"


@with_options
def spark(
    step: Annotated[
        SparkCommand, typer.Argument(metavar="package", help="What to do.", show_default=False)
    ],
    modules: Annotated[
        list[str] | None,
        typer.Argument(help="Modules and packages of yours that go along.", show_default=False),
    ] = None,
    *,
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("penstock-spark.zip"),
    store: Store,
    json: Json = False,
) -> None:
    """Make one archive of Penstock and your modules, for spark-submit, a step or a job.

    It is for the Python version and the platform of this machine. No URL or key is in it.

    Example: penstock spark package shop --output shop-spark.zip
    """
    from penstock.cli import output as terminal
    from penstock.cli.store_choice import store_url
    from penstock.spark.ship_code import package

    del step  # there is one
    packed = package(output, store_url(*store).url, *(modules or ()))
    if json:
        terminal.print_json({"archive": str(output), "packages": sorted(packed)})
        return
    terminal.print_text(f"{output}: {', '.join(sorted(packed))}")
    terminal.print_note(
        f"spark-submit --archives {output}#{_FOLDER} --conf spark.executorEnv.PYTHONPATH={_FOLDER}"
    )
