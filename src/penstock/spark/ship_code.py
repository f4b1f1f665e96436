"""Ships code to executors that do not have it: Penstock, its dependencies, the user's modules.

Packages are sent as archives that Spark unpacks into the working folder of its Python workers. A
zip on the path (`--py-files`) would not do: SQL is in files, and some modules are compiled.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.app.version import DISTRIBUTION, RELEASE
from penstock.brokers import drivers
from penstock.errors import Refused
from penstock.spark.connect import refuse_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OURS = ("penstock", "pyspark_penstock", "msgspec", "cronsim", "tzdata")
_OTHER_PYTHON = re.compile(r"PYTHON_VERSION_MISMATCH\]\D*(\d+\.\d+)\D*(\d+\.\d+)")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]*)"')
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


class ExecutorVersion(NamedTuple):
    """The Penstock of one executor."""

    host: str
    penstock: str | None  # None: it cannot be imported


def make_ready(spark: SparkSession, url: str | None) -> None:
    """Ship Penstock to executors that lack it; refused if one has another version.

    A `local` session runs on this interpreter, and needs no check.
    """
    if on_this_machine(spark.sparkContext.master):
        return
    versions = executor_versions(spark)
    if any(executor.penstock is None for executor in versions):
        ship(spark, *OURS, *(drivers(url) if url else ()))
        versions = executor_versions(spark)
    check_same(versions)


def check_same(versions: Iterable[ExecutorVersion]) -> None:
    """Refuse executors that run another Penstock than this process."""
    for executor in versions:
        if executor.penstock != RELEASE:
            has = "none" if executor.penstock is None else executor.penstock
            raise Refused(
                f"the driver runs Penstock {RELEASE} and the executor on {executor.host} has"
                f" {has}: install the same on both, or uninstall it on executors and it is shipped"
            )


def on_this_machine(master: str | None) -> bool:
    """Whether the master is `local`: tasks run in the driver's JVM, with its Python."""
    return master is not None and (master == "local" or master.startswith("local["))


def ship(spark: SparkSession, *modules: str) -> None:
    """Send top-level modules and packages to the executors, also to those that start later.

    Modules that are not installed here are skipped, and none is sent twice.
    """
    refuse_connect(spark, "ship(), which sends modules,")
    context = spark.sparkContext
    before = {Path(path).name for path in context.listArchives + context.listFiles}
    folder = Path(tempfile.mkdtemp(prefix="penstock-ship-"))
    for module in modules:
        for path in _paths(module):
            if path.is_file():
                if path.name not in before:
                    context.addPyFile(str(path))
            elif f"{path.name}.zip#{path.name}" not in before:
                context.addArchive(f"{_packed(path, folder)}#{path.name}")


def package(output: Path, url: str, *modules: str) -> list[str]:
    """Write a zip with Penstock, what it needs for this store, and these modules; what is in it.

    For clusters where the driver does not run on this machine: Spark unpacks it (--archives).
    """
    for module in modules:
        if next(_paths(module), None) is None:
            raise Refused(f"{module}: no such module; is it on the path of this command?")
    with tempfile.TemporaryDirectory(prefix="penstock-package-") as folder:
        packed: list[str] = []
        for path in chain.from_iterable(map(_paths, (*OURS, *drivers(url), *modules))):
            if path.is_file():
                shutil.copy2(path, folder)
            else:
                shutil.copytree(path, Path(folder, path.name), ignore=_LEFT_OUT, dirs_exist_ok=True)
            packed.append(path.name)
        made = shutil.make_archive(str(Path(folder).with_suffix(".packed")), "zip", folder)
        shutil.move(made, output)
    return packed


def executor_versions(spark: SparkSession) -> list[ExecutorVersion]:
    """The Penstock versions of the executors that answer, one per host."""

    # Nested, so that it is pickled by value: by name, executors would have to import Penstock.
    def version_here(_: Any) -> tuple[str, str | None]:
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
            context.parallelize(range(tasks), tasks).map(version_here).collect()
        )
    except Exception as error:
        if (reason := _python_fault(str(error))) is None:
            raise
        raise Refused(reason) from None
    return sorted({ExecutorVersion(*answer) for answer in answers}, key=str)


def _python_fault(message: str) -> str | None:
    """What is wrong with the executors' Python, if that is what Spark's error says."""
    remedy = "set PYSPARK_PYTHON to a Python that every executor has, the same as the driver's"
    if found := _OTHER_PYTHON.search(message):
        return f"the driver runs Python {found[2]} and the executors {found[1]}: {remedy}"
    if found := _NO_PYTHON.search(message):
        return f"the executors cannot run {found[1]}: {remedy}"
    return None


def _paths(module: str) -> Iterator[Path]:
    """The folders and files of a module, with the metadata of its distribution."""
    spec = importlib.util.find_spec(module) if module.isidentifier() else None
    if spec is None:  # a folder with shared libraries, as psycopg_binary.libs
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
    if metadata.is_dir():  # some packages read their own version from it
        yield metadata


def _packed(package: Path, folder: Path) -> str:
    clean = folder / package.name
    shutil.copytree(package, clean, ignore=_LEFT_OUT)
    return shutil.make_archive(str(clean), "zip", clean)
