"""Code for executors that do not have it: Penstock, what it needs, and the user's own modules.

Packages travel as archives that Spark unpacks into the folder that its Python workers import from:
a zip on the path would not do, for the statements are files and some modules are compiled.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.app.version import DISTRIBUTION, release
from penstock.brokers import drivers
from penstock.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = ("penstock", "pyspark_penstock", "msgspec", "cronsim", "tzdata")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\]\D*(\d+\.\d+)\D*(\d+\.\d+)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


class Seen(NamedTuple):
    """What one executor has."""

    host: str
    penstock: str | None  # None: it cannot be imported


def make_ready(spark: SparkSession, url: str | None) -> None:
    """Have every executor import the Penstock that runs here; refused where another is installed.

    A session on this machine alone has the same interpreter, and nothing is looked at.
    """
    if on_this_machine(spark.sparkContext.master):
        return
    seen = look_around(spark)
    if any(each.penstock is None for each in seen):
        ship(spark, *OURS, *(drivers(url) if url else ()))
        seen = look_around(spark)
    check_same(seen)


def check_same(seen: Iterable[Seen]) -> None:
    """Refuse executors that run another Penstock than this process."""
    for each in seen:
        if each.penstock != release():
            has = "none" if each.penstock is None else each.penstock
            raise Refused(
                f"the driver runs Penstock {release()} and the executor on {each.host} has {has}:"
                " install the same on both, or take it off the executors and it is sent there"
            )


def on_this_machine(master: str | None) -> bool:
    """Whether tasks run in the driver's own Java, with its own Python."""
    return master is not None and (master == "local" or master.startswith("local["))


def ship(spark: SparkSession, *modules: str) -> None:
    """Send top-level modules and packages to the executors, those to come as well.

    What is not installed here is left out, and what was sent before is not sent again.
    """
    context = spark.sparkContext
    before = {Path(path).name for path in context.listArchives + context.listFiles}
    folder = Path(tempfile.mkdtemp(prefix="penstock-ship-"))
    for module in modules:
        for place in _places(module):
            if place.is_file():
                if place.name not in before:
                    context.addPyFile(str(place))
            elif f"{place.name}.zip#{place.name}" not in before:
                context.addArchive(f"{_packed(place, folder)}#{place.name}")


def look_around(spark: SparkSession) -> list[Seen]:
    """What the executors that answer have, one line per host."""

    # Nested, so that it travels by value: by name it would need what it looks for.
    def look(_: Any) -> tuple[str, str | None]:
        import socket
        from importlib.metadata import PackageNotFoundError, version

        try:
            import penstock

            del penstock
            return socket.gethostname(), version(DISTRIBUTION)
        except (ImportError, PackageNotFoundError):
            return socket.gethostname(), None

    context = spark.sparkContext
    tasks = max(2, context.defaultParallelism)
    try:
        answers: list[tuple[str, str | None]] = (
            context.parallelize(range(tasks), tasks).map(look).collect()
        )
    except Exception as error:
        if (reason := _python_fault(str(error))) is None:
            raise
        raise Refused(reason) from None
    return sorted({Seen(*answer) for answer in answers}, key=str)


def _python_fault(said: str) -> str | None:
    """What is wrong with the Python of the executors, if Spark's many lines say that it is that."""
    remedy = "set PYSPARK_PYTHON to a Python that every executor has, the same as the driver's"
    if found := _OTHER_PYTHON.search(said):
        return f"the driver runs Python {found[2]} and the executors {found[1]}: {remedy}"
    if found := _NO_PYTHON.search(said):
        return f"the executors cannot run {found[1]}: {remedy}"
    return None


def _places(module: str) -> Iterator[Path]:
    """The folders and files to send for a module; its distribution's metadata with it."""
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None:  # a folder beside the packages that some of them load from
        yield from (
            Path(entry) / module for entry in sys.path if entry and (Path(entry) / module).is_dir()
        )
        return
    if spec.submodule_search_locations:
        yield Path(next(iter(spec.submodule_search_locations)))
    elif spec.origin:
        yield Path(spec.origin)
    try:
        distribution = importlib.metadata.distribution(
            DISTRIBUTION if module == "penstock" else module
        )
    except importlib.metadata.PackageNotFoundError:
        return
    name = distribution.name.replace("-", "_")
    metadata = Path(str(distribution.locate_file(f"{name}-{distribution.version}.dist-info")))
    if metadata.is_dir():  # some ask it for their own version
        yield metadata


def _packed(package: Path, folder: Path) -> str:
    clean = folder / package.name
    shutil.copytree(package, clean, ignore=_LEFT_OUT)
    return shutil.make_archive(str(clean), "zip", clean)
