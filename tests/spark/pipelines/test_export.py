"""Export: the history of a real store, in the lake row for row, whatever happens on the way.

Every comparison is with what the store itself says, read by a reader that is not Spark.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake.compact import compact
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.clock import Clock
from tests.spark.pipelines.exported import exported, nobody, of_lake, of_store, some_history

KILLED = """
import os, signal, sys
import penstock.spark
from penstock.spark.pipelines.lake import export, lake

url, folder, point = sys.argv[1:]
spark = penstock.spark.session("local[2]", url=url)
calls = 0


def dying(act):
    # At the second call: something is in the lake by then.
    def step(*args, **options):
        global calls
        calls += 1
        if calls == 2:
            os.killpg(0, signal.SIGKILL)
        return act(*args, **options)

    return step


told = lambda table, rows: None
with lake.Lake(folder).writing() as writing:
    if point == "staged":
        lake.LakeWriter.publish = dying(lake.LakeWriter.publish)
    elif point == "renamed":
        lake.LakeWriter.change = dying(lake.LakeWriter.change)
        calls = -1  # the store is told before, and two batches come after
    elif point == "published":
        told = dying(told)
    else:
        export.put_mark = dying(export.put_mark)
    export.export(spark, writing, told, rows_at_once=40)
"""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def store(store_url: str) -> Iterator[Broker]:
    broker = open_broker(store_url)
    yield broker
    broker.close()


def test_the_lake_equals_the_history_and_goes_on_from_its_mark(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 100)
    first = exported(spark, lake, rows_at_once=40)
    again = exported(spark, lake)
    some_history(store, Clock(store.clock.now()), 30)
    more = exported(spark, lake)

    assert first.taken["attempts"] > 100
    assert (again.taken["attempts"], again.taken["events"]) == (0, 0)
    assert more.taken["attempts"] > 30
    assert of_lake(lake) == of_store(store)
    assert more.gaps == []


@pytest.mark.parametrize(
    "store_url",
    ["postgres", pytest.param("sqlite", marks=[pytest.mark.soak, pytest.mark.every_store])],
    indirect=True,
)
def test_after_compacting_and_with_a_copy_of_an_older_lake(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 50)
    exported(spark, lake, rows_at_once=20)
    with lake.writing() as writing:
        compact(spark, writing, nobody)
    older = (lake.folder / "manifest.json").read_text()
    some_history(store, Clock(store.clock.now()), 20)
    exported(spark, lake)
    assert of_lake(lake) == of_store(store)

    (lake.folder / "manifest.json").write_text(older)
    exported(spark, lake)

    assert of_lake(lake) == of_store(store)


def test_an_empty_history(spark, store, lake):
    assert exported(spark, lake).taken["attempts"] == 0
    # All that has happened is that a lake began.
    assert of_lake(lake) == of_store(store)
    assert of_lake(lake)["attempts"] == []


def test_history_is_pruned_only_once_the_lake_has_it(spark, store, lake):
    """SPARK 2, lake: the store is pruned below the mark; past the hold the gap is recorded."""
    some_history(store, Clock(store.clock.now()), 10)
    exported(spark, lake)
    known = of_store(store)
    some_history(store, Clock(store.clock.now()), 10)
    store.prune(store.clock.now() + 1)
    assert not set(of_store(store)["attempts"]) & set(known["attempts"])
    # Ids from before that are refused: they may have run already.
    some_history(store, Clock(store.clock.now() + 2), 10)

    assert exported(spark, lake, hold=0.0).gaps == []
    assert set(of_lake(lake)["attempts"]) == set(known["attempts"] + of_store(store)["attempts"])

    some_history(store, Clock(store.clock.now() + 3), 10)
    store.prune(store.clock.now() + 4)
    some_history(store, Clock(store.clock.now() + 5), 10)
    [gap] = exported(spark, lake).gaps

    assert gap.rows is not None
    assert gap.rows > 10
    assert lake.manifest().gaps == (gap,)
    assert set(of_store(store)["attempts"]) < set(of_lake(lake)["attempts"])
    assert store.records(Mark)[0].gap is None


def test_a_store_that_was_set_back_is_refused(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 10)
    exported(spark, lake)
    manifest = lake.folder / "manifest.json"
    [mark] = lake.manifest().table("attempts").marks.values()
    manifest.write_text(manifest.read_text().replace(mark, f"{1 << 60:020d}"))

    with pytest.raises(Refused, match="is ahead of this history"):
        exported(spark, lake)


def test_what_stops_it_is_one_sentence_and_the_next_run_goes_on(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 50)

    staging = lake.folder / "_staging"

    def in_the_way(table: str, rows: int) -> None:
        shutil.rmtree(staging)
        staging.touch()

    with (
        pytest.raises(PenstockError, match=r"cannot be written: Not a directory\. What it held"),
        lake.writing() as writing,
    ):
        export(spark, writing, in_the_way, rows_at_once=20)
    staging.unlink()

    exported(spark, lake)
    assert of_lake(lake) == of_store(store)


@pytest.mark.parametrize(
    ("store_url", "point"),
    [
        ("sqlite", "staged"),
        ("postgres", "published"),
        *(
            pytest.param(kind, point, marks=pytest.mark.soak)
            for kind, point in (
                ("sqlite", "published"),
                ("postgres", "staged"),
                ("sqlite", "renamed"),
                ("postgres", "renamed"),
                ("sqlite", "untold"),
                ("postgres", "untold"),
            )
        ),
    ],
    indirect=["store_url"],
)
def test_killed_in_mid_export_nothing_is_lost_or_there_twice(spark, store, store_url, lake, point):
    """Issue 5: a kill -9 of the driver, its Java and its Python workers; run again, and compacted.

    Between staging and publishing, between the files and the manifest, between two batches, and
    before the store is told.
    """
    some_history(store, Clock(store.clock.now()), 150)
    script = lake.folder.parent / "killed.py"
    script.write_text(KILLED)
    ran = subprocess.run(
        [sys.executable, str(script), store_url, str(lake.folder), point],
        env={**os.environ, "PENSTOCK_URL": store_url},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    known = of_lake(lake)["attempts"]
    assert known
    assert set(known) <= set(of_store(store)["attempts"])
    store.prune(store.clock.now() + 1)  # which leaves what the lake has not
    left = of_store(store)["attempts"]

    assert exported(spark, lake).gaps == []
    assert set(of_lake(lake)["attempts"]) == set(known) | set(left)
    with lake.writing() as writing:
        compact(spark, writing, nobody)
    assert exported(spark, lake).taken["attempts"] == 0

    rows = of_lake(lake)["attempts"]
    assert len(rows) == len(set(rows)) == 150 + sum(row[5] > 1 for row in rows)
