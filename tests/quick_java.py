"""A Java that begins soon, for every test that starts Spark, here or in a process of its own.

Starting Spark is reading and checking ten thousand classes, for each Java anew. The first test
process that wants Spark has a Java write down what it has read, beside the tests, which takes
seconds; whoever starts later begins with that. A Java for which it does not fit reads on its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
def in_common(shared: Path) -> Iterator[None]:
    """Have it for as long as this lasts; `shared` is a folder of all test processes of a run."""
    classes, passing = shared / "classes.jsa", shared / "java"
    passing.mkdir(exist_ok=True)
    # Who is killed leaves files behind, which go with the folders of this run.
    quick = (*QUICK, f"-Djava.io.tmpdir={passing}")
    known = (*SILENT, f"-XX:SharedArchiveFile={classes}")
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = " ".join((*quick, *known))
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join((*quick, *known, *INTERPRETED, *_executors(quick)))
    writer = _write(classes, (*quick, *INTERPRETED, *_executors(quick)))
    try:
        yield
    finally:
        if writer is not None:
            try:
                writer.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                writer.kill()
                writer.wait()


def _executors(words: tuple[str, ...]) -> tuple[str]:
    return (f'"-Dspark.executor.extraJavaOptions={" ".join(words)}"',)


def _write(classes: Path, words: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    """The process that writes the classes down; None if another test process has seen to it."""
    try:
        (classes.parent / "classes.begun").touch(exist_ok=False)
    except FileExistsError:
        return None
    new = classes.with_suffix(".new")
    options = " ".join((*words, f"-XX:ArchiveClassesAtExit={new}"))
    with (classes.parent / "classes.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, __file__, new, classes],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _use(new: Path, classes: Path) -> None:
    """Do a little of what the tests do, and let that Java end."""
    import penstock.spark

    folder = classes.parent / "classes"
    spark: Any = penstock.spark.session("local[2]", url=f"sqlite:///{folder}/none.db")
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "n int, name string")
    frame.groupBy("name").count().write.parquet(str(folder / "frame"))
    spark.read.parquet(str(folder / "frame")).orderBy("name").collect()
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # which is how it is told to end
    gateway.proc.wait(_END_SECONDS)
    if new.exists():
        new.replace(classes)  # whole or not at all: half of it ends a Java


if __name__ == "__main__":
    _use(Path(sys.argv[1]), Path(sys.argv[2]))
