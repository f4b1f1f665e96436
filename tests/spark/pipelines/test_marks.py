"""Telling: a store hears how far a lake has come, and a lake what it will never have. No Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import Selection
from penstock.brokers import open_broker
from penstock.brokers.positions import position_text
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.marks import LakeGap, gaps_of, mark_name, put_mark
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables
from penstock.spark.pipelines.report.page import heading
from penstock.spark.pipelines.report.queries import ReportData
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, claim, some_jobs

DAY = 86400


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def store(store_url: str) -> Iterator[Broker]:
    broker = open_broker(store_url)
    yield broker
    broker.close()


def worked(store: Broker, ahead: float = 0.0) -> None:
    """Three more rows of history."""
    # Ids from before a prune are refused: what comes after it has to be made after it.
    store.enqueue(some_jobs(Clock(store.clock.now() + ahead), 3))
    now = store.clock.now()
    store.settle([(job, begun(succeeded(b"1"), now)) for job in claim(store, 3)])


def positions(store: Broker) -> list[Position]:
    return [row.position for row in store.history() if row.kind == "attempt"]


def run(store: Broker, lake: Lake, hold: float | None = None) -> list[LakeGap]:
    """All that an export does, but for taking rows."""
    reach = store.reach(Selection(table="attempts"))
    create_raw_tables(lake)
    found = put_mark(store, lake, reach.store, hold)
    set_mark(lake, reach.store, reach.position)
    return found + put_mark(store, lake, reach.store)


def set_mark(lake: Lake, store_id: str, position: Position) -> None:
    lake.table("attempts").commit([], marks={mark_name(store_id): int(position)})


def mark_of(lake: Lake, store: Broker) -> Position:
    name = mark_name(store.reach(Selection(table="attempts")).store)
    return position_text(lake.table("attempts").mark(name))


def test_a_lake_is_known_by_its_id_wherever_it_is(store, lake, tmp_path):
    worked(store)
    run(store, lake)
    lake.folder.rename(tmp_path / "moved")
    worked(store)
    run(store, Lake(tmp_path / "moved"))

    [mark] = store.records(Mark)
    assert mark.lake == Lake(tmp_path / "moved").id
    assert mark.position == positions(store)[-1]
    assert mark.place == str(tmp_path / "moved")


def test_killed_between_the_commit_and_the_mark_the_next_run_tells_it(store, lake):
    worked(store)
    run(store, lake)
    [before] = store.records(Mark)
    worked(store)
    reach = store.reach(Selection(table="attempts"))
    set_mark(lake, reach.store, reach.position)
    store.prune(store.clock.now() + 1)
    assert positions(store)[-1] == reach.position > before.position

    assert run(store, lake) == []

    assert store.records(Mark)[0].position >= reach.position


# REQUIREMENTS S19
def test_what_was_pruned_past_the_hold_is_in_the_lake_and_told_of_once(store, lake):
    """SPARK 2, lake: past the cap the gap is recorded, and the next run says so and goes on."""
    worked(store)
    run(store, lake, hold=0.0)
    [mark] = store.records(Mark)
    worked(store)
    lost = positions(store)[-1]
    store.prune(store.clock.now() + 1)
    worked(store, ahead=2)

    [gap] = run(store, lake)

    assert (gap.after, gap.until >= lost) == (mark.position, True)
    assert gap.rows is not None
    assert gap.rows >= 3
    assert gaps_of(lake) == [gap]
    assert store.records(Mark)[0].gap is None
    assert run(store, lake) == []
    assert gaps_of(lake) == [gap]


def test_killed_before_the_store_heard_that_the_lake_knows_the_gap_is_told_again(store, lake):
    worked(store)
    run(store, lake, hold=0.0)
    worked(store)
    store.prune(store.clock.now() + 1)
    reach = store.reach(Selection(table="attempts"))
    with pytest.raises(KeyboardInterrupt):
        put_mark(Dying(store), lake, reach.store)
    [known] = gaps_of(lake)
    assert store.records(Mark)[0].gap is not None

    assert [(gap.after, gap.until) for gap in run(store, lake)] == [(known.after, known.until)]

    assert [(gap.after, gap.until) for gap in gaps_of(lake)] == [(known.after, known.until)]
    assert store.records(Mark)[0].gap is None


class Dying:
    """A store to which a process speaks once, and then no more."""

    def __init__(self, store: Broker) -> None:
        self.records = store.records
        self._store = store
        self._calls = 0

    def put(self, *args: object, **options: object) -> object:
        self._calls += 1
        if self._calls > 1:
            raise KeyboardInterrupt
        return self._store.put(*args, **options)


def test_a_lake_from_an_older_copy_sets_the_mark_back(store, lake):
    worked(store)
    run(store, lake)
    older = lake.folder.with_name("older")
    shutil.copytree(lake.folder, older)
    worked(store)
    run(store, lake)
    shutil.rmtree(lake.folder)
    older.rename(lake.folder)
    reached = mark_of(lake, store)
    reach = store.reach(Selection(table="attempts"))

    assert put_mark(store, lake, reach.store) == []  # all of it is still in the store

    assert store.records(Mark)[0].position == reached
    store.prune(store.clock.now() + 1)
    assert [position for position in positions(store) if position <= reached] == []
    assert len(positions(store)) == 3


def test_a_store_that_was_restored_is_refused_in_a_sentence(store, lake):
    """Positions have come as far again, and are of other rows: nothing else could tell."""
    worked(store)
    run(store, lake)
    [before] = store.records(Mark)
    worked(store)
    run(store, lake)
    store.put(msgspec.structs.replace(before, restored=True))  # as it is in the backup

    with pytest.raises(Refused, match=r"was restored from an older backup.*Begin a new lake"):
        run(store, lake)

    store.clear(Mark, before.lake)
    assert run(store, lake) == []


def test_what_is_not_known_to_be_in_the_lake_is_kept(store, lake):
    """Killed after one table: another one may have less, and a mark says all or nothing."""
    worked(store)
    last = positions(store)[-1]
    store_id = store.reach(Selection(table="attempts")).store
    create_raw_tables(lake)
    lake.table("events").commit([], marks={mark_name(store_id): int(last)})

    assert put_mark(store, lake, store_id) == []

    [mark] = store.records(Mark)
    assert (mark.lake, mark.position) == (lake.id, BEGINNING)


def test_a_hold_that_is_not_said_stays(store, lake):
    assert run(store, lake, hold=5.0 * DAY) == []
    run(store, lake)

    assert store.records(Mark)[0].hold == 5.0 * DAY


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], ""),
        ([3], "Missing: 3 rows, which the store pruned"),
        ([3, None], "Missing: at least 3 rows"),
        ([None], "Missing: some rows"),
    ],
)
def test_a_report_names_what_its_lake_misses(rows, says):
    answers = ReportData(source="lake", where="lake", gaps=[{"rows": number} for number in rows])

    for first in (None, 0.0):
        answers.first_at = answers.last_at = first
        assert says in heading(answers)
        assert ("Missing" in heading(answers)) is bool(rows)
