"""The sink of a stream: each epoch is a write of its own, and is one once."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.spark.conftest import whatever_the_store
from tests.spark.frames import numbers_in


def put(folder: Path, name: str, *numbers: int) -> None:
    """A file that the stream has not seen."""
    folder.mkdir(exist_ok=True)
    path = folder / f".{name}"
    path.write_text("".join(json.dumps({"number": number}) + "\n" for number in numbers))
    path.rename(folder / name)


def run(spark: Any, url: str, folder: Path, checkpoint: Path) -> None:
    """Handle what is there, and stop."""
    stream = spark.readStream.schema("number int").json(str(folder))
    query = (
        stream.writeStream.format("penstock")
        .option("task", "mail:send")
        .option("url", url)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(100)


def test_each_row_of_a_stream_is_one_job(shared_spark: Any, store_url: str, tmp_path: Path):
    """Issue 5: `writeStream`; what was written is not written again after a restart."""
    put(tmp_path / "in", "1.json", 1, 2, 3)
    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")
    put(tmp_path / "in", "2.json", 4, 4, 5)
    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")

    assert numbers_in(store_url) == Counter([1, 2, 3, 4, 4, 5])


# REQUIREMENTS S4
def test_an_epoch_that_runs_again_is_known(shared_spark: Any, store_url: str, tmp_path: Path):
    """Issue 5: idempotent by (query, epoch): the driver died after our commit, before Spark's."""
    put(tmp_path / "in", "1.json", 1, 2)
    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")
    put(tmp_path / "in", "2.json", 3)
    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")
    for path in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        path.unlink()

    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")

    assert numbers_in(store_url) == Counter([1, 2, 3])


@whatever_the_store
def test_another_query_writes_its_own(shared_spark: Any, store_url: str, tmp_path: Path):
    put(tmp_path / "in", "1.json", 1)
    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "checkpoint")

    run(shared_spark, store_url, tmp_path / "in", tmp_path / "checkpoint")

    assert numbers_in(store_url) == Counter([1, 1])
