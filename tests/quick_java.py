"""A Java that begins soon, for every test that starts Spark, here or in a process of its own.

Starting Spark is reading and checking ten thousand classes, for each Java anew. The first test
process that wants Spark has a Java write down what it has read, which takes half a minute of CPU
time; whoever starts later begins with that, in this run and in later ones. A Java for which it does
not fit reads on its own.

Spark's Python processes find PySpark in a zip file in Spark's home, and compile what they import,
each of them anew: 0.7 s of CPU time, not 0.15. Here that file is in a home of its own, compiled.
"""

from __future__ import annotations

import compileall
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parents[1] / ".cache" / "spark"
# Frames of a few rows, each query run once: what is compiled for speed is never used again. By
# CPU time a report of five rows takes half as long this way, and starting Spark a fifth less.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
INTERPRETED = (
    "-Dspark.sql.codegen.factoryMode=NO_CODEGEN",
    "-Dspark.sql.codegen.wholeStage=false",
)
# To standard output, in Java 17, whoever's it is.
SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_END_SECONDS = 120


@contextmanager
def in_common(passing: Path) -> Generator[None]:
    """Have it for as long as this lasts. Who is killed leaves its files in the folder `passing`."""
    passing.mkdir(exist_ok=True)
    kept = _kept()
    classes = kept / "classes.jsa"
    quick = (*QUICK, f"-Djava.io.tmpdir={passing}")
    known = (*SILENT, f"-XX:SharedArchiveFile={classes}")
    executors = _executors((*quick, *known))
    os.environ["SPARK_HOME"] = str(kept)
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = " ".join((*quick, *known))
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*quick, *known, *INTERPRETED, *executors))
    writer = _write(classes, (*quick, *INTERPRETED, *executors))
    try:
        yield
    finally:
        if writer is not None:
            try:
                writer.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                writer.kill()
                writer.wait()


def _kept() -> Path:
    """A home for Spark, of this PySpark and this Java."""
    from penstock.spark.java import java_home

    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    brought = Path(spec.origin).parent
    home = java_home()
    java = Path(shutil.which("java") or "" if home is None else home / "bin" / "java").resolve()
    made = [path.stat().st_mtime_ns for path in (brought / "jars", java)]
    known_by = repr((version("pyspark"), brought, java, made, Path(__file__).read_bytes()))
    kept = KEPT / hashlib.sha256(known_by.encode()).hexdigest()[:16]
    kept.mkdir(parents=True, exist_ok=True)
    libraries = Path("python", "lib")
    (kept / libraries).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        with suppress(FileExistsError):
            (kept / name).symlink_to(brought / name)
    for path in (brought / libraries).glob("*.zip"):
        if not (kept / libraries / path.name).exists():
            _compile(path, kept / libraries / path.name)
    return kept


def _compile(sources: Path, to: Path) -> None:
    """The same modules, compiled, in another zip file."""
    with tempfile.TemporaryDirectory(dir=to.parent) as folder:
        modules = Path(folder, "modules")
        with zipfile.ZipFile(sources) as archive:
            names = archive.namelist()
            archive.extractall(modules, [name for name in names if "/tests/" not in name])
        compileall.compile_dir(modules, quiet=2, legacy=True)
        with zipfile.ZipFile(Path(folder, to.name), "w") as archive:
            for path in modules.rglob("*"):
                if path.suffix != ".py" or not path.with_suffix(".pyc").exists():
                    archive.write(path, path.relative_to(modules))
        Path(folder, to.name).replace(to)


def _executors(words: tuple[str, ...]) -> tuple[str]:
    return (f'"-Dspark.executor.extraJavaOptions={" ".join(words)}"',)


def _write(classes: Path, words: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    """The process that writes the classes down; None if they are, or another one does."""
    if classes.exists():
        return None
    with (classes.parent / "writing").open("wb") as writing:
        try:
            fcntl.flock(writing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        new = classes.with_suffix(".new")
        options = " ".join((*words, f"-XX:ArchiveClassesAtExit={new}"))
        return subprocess.Popen(
            [sys.executable, __file__, new, classes],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
        )


def _use(new: Path, classes: Path) -> None:
    """Do a little of what the tests do, and let that Java end."""
    import penstock.spark

    with tempfile.TemporaryDirectory() as folder:
        spark: Any = penstock.spark.session("local[2]", url=f"sqlite:///{folder}/jobs.db")
        frame = spark.createDataFrame([(1, "a"), (2, "b")], "n int, name string")
        frame.groupBy("name").count().write.parquet(f"{folder}/frame")
        spark.read.parquet(f"{folder}/frame").orderBy("name").collect()
        frame.write.format("penstock").option("task", "mail:send").mode("append").save()
        spark.read.format("penstock").option("table", "jobs").load().count()
        stream = spark.readStream.format("penstock").option("table", "attempts").load().writeStream
        stream = stream.foreachBatch(lambda batch, _: batch.collect())
        stream = stream.option("checkpointLocation", f"{folder}/checkpoint")
        stream.trigger(availableNow=True).start().awaitTermination()
        gateway = spark.sparkContext._gateway
        spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is how it is told to end
    gateway.proc.wait(_END_SECONDS)
    if new.exists():
        new.replace(classes)  # whole or not at all: half of it ends a Java


if __name__ == "__main__":
    _use(Path(sys.argv[1]), Path(sys.argv[2]))
