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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake.export import export
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake, Snapshot
from penstock.spark.pipelines.lake.marks import gaps_of, mark_name
from penstock.spark.pipelines.lake.upkeep import compact
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import some_jobs
from tests.spark.pipelines.exported import exported, nobody, of_lake, of_store, some_history
from tests.spark.test_source_stream import LATE

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
if point == "staged":
    lake.Snapshot.commit = dying(lake.Snapshot.commit)
    calls = -1  # events are committed before
elif point == "committed":
    told = dying(told)
else:
    export.put_mark = dying(export.put_mark)
export.export(spark, lake.Lake(folder), told, rows_at_once=40)
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
    compact(lake, nobody)
    older = lake.folder.with_name("older")
    shutil.copytree(lake.folder, older)
    some_history(store, Clock(store.clock.now()), 20)
    exported(spark, lake)
    assert of_lake(lake) == of_store(store)

    shutil.rmtree(lake.folder)
    older.rename(lake.folder)
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
    assert gaps_of(lake) == [gap]
    assert set(of_store(store)["attempts"]) < set(of_lake(lake)["attempts"])
    assert store.records(Mark)[0].gap is None


def test_a_store_that_was_set_back_is_refused(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 10)
    exported(spark, lake)
    table = lake.table("attempts")
    table.commit([], marks={mark_name(table.files()[0].lows["shard"]): 1 << 60})

    with pytest.raises(Refused, match="is ahead of this history"):
        exported(spark, lake)


def test_what_stops_it_is_one_sentence_and_the_next_run_goes_on(spark, store, lake):
    some_history(store, Clock(store.clock.now()), 50)
    day = None

    def in_the_way(table: str, rows: int) -> None:
        nonlocal day
        if table == "attempts":
            day = next((lake.folder / table).glob("day=*"))
            day.rename(day.with_name("kept"))
            day.touch()

    with pytest.raises(PenstockError, match=r"the export of attempts failed: .*; run it again"):
        export(spark, lake, in_the_way, rows_at_once=20)
    assert day is not None
    day.unlink()
    day.with_name("kept").rename(day)

    exported(spark, lake)
    assert of_lake(lake) == of_store(store)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_two_exports_at_once_take_each_row_once(spark, store, lake, monkeypatch):
    """The second one finds that its snapshot is old, and begins its batch again."""
    some_history(store, Clock(store.clock.now()), 60)
    commit, conflicts, others = Snapshot.commit, list[str](), 0

    def after_another(snapshot, *args, **options):
        nonlocal others
        if snapshot.name == "attempts" and not others:
            others = 1
            exported(spark, lake, rows_at_once=25)  # another export, just before this commit
        try:
            return commit(snapshot, *args, **options)
        except CommitConflict:
            conflicts.append(snapshot.name)
            raise

    with monkeypatch.context() as patch:
        patch.setattr(Snapshot, "commit", after_another)
        exported(spark, lake, rows_at_once=20)

    assert "attempts" in conflicts
    assert of_lake(lake) == of_store(store)


# REQUIREMENTS S18
@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_two_exporters_that_run_beside_each_other_take_each_row_once(spark, store, lake):
    """Issue 17: nothing stands in for one of them, and nothing says whose turn it is."""
    exported(spark, lake)
    some_history(store, Clock(store.clock.now()), 120)

    with ThreadPoolExecutor(2) as pool:
        exports = [
            pool.submit(export, spark, Lake(lake.folder), nobody, rows_at_once=15) for _ in range(2)
        ]
        taken = [future.result().taken["attempts"] for future in exports]

    assert of_lake(lake) == of_store(store)
    assert sum(taken) == len(of_store(store)["attempts"])


@pytest.mark.parametrize("store_url", ["postgres"], indirect=True)
def test_beside_an_open_late_writer_nothing_is_skipped(spark, store, store_url, lake):
    """Issue 17: its row has a position already, and nobody sees it; the mark stays before it."""
    some_history(store, Clock(store.clock.now()), 5)
    exported(spark, lake)
    known = of_lake(lake)
    with psycopg.connect(store_url) as late:
        late.execute(LATE, (store.clock.now(),))
        some_history(store, Clock(store.clock.now()), 5)
        exported(spark, lake)
        assert of_lake(lake) == known
        late.commit()

    exported(spark, lake)

    assert of_lake(lake) == of_store(store)
    assert len(of_lake(lake)["attempts"]) > len(known["attempts"]) + 5


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_gauges_are_exported_and_pruned_only_then(spark, store, lake):
    """Issue 17: they are rows of the history as attempts are."""

    def gauges() -> list[str]:
        rows = store.history(after=BEGINNING, limit=1000)
        return [row.position for row in rows if row.kind == "gauge"]

    def in_lake() -> list[str]:
        rows = lake.table("gauges").delta.to_pyarrow_table()
        return sorted(rows["position"].to_pylist())

    exported(spark, lake)
    store.enqueue(some_jobs(Clock(store.clock.now()), 2))
    store.gauge()
    taken = gauges()
    assert taken
    store.prune(store.clock.now() + 1)
    assert gauges() == taken  # the lake does not have them yet

    assert exported(spark, lake).taken["gauges"] == len(taken)

    assert in_lake() == taken
    store.prune(store.clock.now() + 1)
    assert gauges() == []
    assert exported(spark, lake).taken["gauges"] == 0
    assert in_lake() == taken


# REQUIREMENTS S16
@pytest.mark.parametrize(
    ("store_url", "point"),
    [
        ("sqlite", "staged"),
        ("postgres", "committed"),
        *(
            pytest.param(kind, point, marks=pytest.mark.soak)
            for kind, point in (
                ("sqlite", "committed"),
                ("postgres", "staged"),
                ("sqlite", "untold"),
                ("postgres", "untold"),
            )
        ),
    ],
    indirect=["store_url"],
)
def test_killed_in_mid_export_nothing_is_lost_or_there_twice(spark, store, store_url, lake, point):
    """Issue 5: a kill -9 of the driver, its Java and its Python workers; run again, and compacted.

    Between the files and their commit, after it, and before the store is told.
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
    compact(lake, nobody)
    assert exported(spark, lake).taken["attempts"] == 0

    rows = of_lake(lake)["attempts"]
    assert len(rows) == len(set(rows)) == 150 + sum(row[5] > 1 for row in rows)
