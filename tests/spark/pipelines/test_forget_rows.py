"""Forgetting: the rows of one person are gone for good, from files, log and datasets. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.brokers.positions import position_text
from penstock.errors import Refused
from penstock.spark.pipelines.lake.forget_rows import RowChoice, forget_rows, row_choice
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake, Snapshot
from penstock.spark.pipelines.lake.marks import mark_name
from penstock.spark.pipelines.report.queries import query_report
from penstock.spark.pipelines.report.rollup_source import LakeRollups
from penstock.spark.pipelines.rollups.build import build, build_here
from penstock.spark.source.tables import TABLES, arrow_schema
from tests.spark.pipelines.history import an_attempt, an_event, at, put_rows
from tests.spark.pipelines.test_lake import positions, staged

ADA = "ada@example.com"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Rows of Ada by key and by tag, in two tables and on two days, and rows of others."""
    lake = Lake(tmp_path / "lake")
    put_rows(lake, "attempts", an_attempt(1, key=ADA), an_attempt(2, tags={"who": ADA}))
    put_rows(lake, "attempts", an_attempt(3, key="bob"), an_attempt(4, key=None))
    put_rows(lake, "attempts", an_attempt(5, key=ADA, ended_at=at(86400)))
    put_rows(lake, "events", an_event(6, key=ADA), an_event(7, tags={"who": "bob"}))
    return lake


def holds(lake: Lake, text: str) -> list[str]:
    """The files of the lake in which a text can be found."""
    assert lake.folder is not None
    return [
        str(path.relative_to(lake.folder))
        for path in lake.folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


# REQUIREMENTS S21
def test_rows_with_a_key_are_deleted_and_no_file_holds_it(lake):
    whole = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.is_file()}
    planned = forget_rows(lake, RowChoice(key=ADA), dry_run=True)
    assert whole == {
        path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.is_file()
    }
    done = forget_rows(lake, RowChoice(key=ADA), dry_run=False)

    assert planned.rows == done.rows == {"attempts": 2, "events": 1}
    assert planned.days == done.days == ["2026-11-15", "2026-11-16"]
    assert (planned.files, planned.versions) == (3, 4)
    assert positions(lake) == [2, 3, 4]
    assert positions(lake, "events") == [7]
    assert len(holds(lake, ADA)) == 1  # the row with the tag
    assert forget_rows(lake, RowChoice(tag=("who", ADA)), dry_run=False).rows["attempts"] == 1
    assert holds(lake, ADA) == []
    assert positions(lake) == [3, 4]


def test_a_day_with_files_of_two_releases_is_written_again_with_all_columns(lake, monkeypatch):
    """Each row group is written at once here, as with more rows than one group has."""
    newer = arrow_schema(TABLES["attempts"]).append(pa.field("colour", pa.string()))
    lake.table("attempts").with_columns(newer)
    put_rows(lake, "attempts", an_attempt(8, key=ADA, colour="red"), schema=newer)
    put_rows(lake, "attempts", an_attempt(9), an_attempt(10, key=ADA))
    put_rows(lake, "attempts", an_attempt(11, key=ADA), an_attempt(12, colour="blue"), schema=newer)
    monkeypatch.setattr("penstock.spark.pipelines.lake.data_files.ROWS_PER_GROUP", 1)

    forget_rows(lake, RowChoice(key=ADA), dry_run=False)

    assert positions(lake) == [2, 3, 4, 9, 12]
    rows = lake.table("attempts").delta.to_pyarrow_table(columns=["position", "colour"]).to_pylist()
    assert [row["position"] for row in rows if row["colour"] == "blue"] == [position_text(12)]


def test_rows_that_are_forgotten_do_not_come_back(lake):
    forget_rows(lake, RowChoice(key=ADA), dry_run=False)

    assert put_rows(lake, "attempts", an_attempt(5, key=ADA)) == 0
    assert lake.table("attempts").mark(mark_name("a")) == 5


def test_rollups_of_their_days_are_right_at_once_and_no_longer_name_them(lake):
    put_rows(lake, "attempts", an_attempt(8, tags={"who": ADA}, ended_at=at(86400)))
    build(lake, build_here, lambda _names, _days: None)
    assert [name for name in holds(lake, ADA) if name.startswith("tag_days")]
    assert query_report(LakeRollups(lake)).total["attempts"] == 6

    forget_rows(lake, RowChoice(tag=("who", ADA)), dry_run=False)

    assert query_report(LakeRollups(lake)).total["attempts"] == 4
    assert [name for name in holds(lake, ADA) if name.startswith("tag_days")] == []
    forget_rows(lake, RowChoice(key=ADA), dry_run=False)
    assert query_report(LakeRollups(lake)).total["attempts"] == 2
    assert holds(lake, ADA) == []


def test_rollups_hold_no_key_argument_result_or_quoted_word(lake):
    secret = {"key": "k-canary", "arguments": '"a-canary"', "result": "r-canary"}
    error = "KeyError: 'e-canary'"
    put_rows(lake, "attempts", an_attempt(8, state="failed", reason="error", error=error, **secret))
    build(lake, build_here, lambda _names, _days: None)

    assert {name.partition("/")[0] for name in holds(lake, "-canary")} == {"attempts"}


def test_killed_before_the_files_are_deleted_the_next_one_deletes_them(lake, monkeypatch):
    def dying(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("deltalake.DeltaTable.vacuum", dying)
        with pytest.raises(KeyboardInterrupt):
            forget_rows(lake, RowChoice(key=ADA), dry_run=False)
    assert positions(lake) == [2, 3, 4]
    assert len(holds(lake, ADA)) > 1

    assert sum(forget_rows(lake, RowChoice(key=ADA), dry_run=False).rows.values()) == 0

    assert len(holds(lake, ADA)) == 1


def test_an_export_under_way_begins_again(lake):
    """Its files are no part of the table yet, and are deleted with the others."""
    snapshot, files = staged(lake, 8, 9)
    forget_rows(lake, RowChoice(key=ADA), dry_run=False)

    with pytest.raises(CommitConflict):
        snapshot.commit(files)

    assert positions(lake) == [2, 3, 4]
    # The same where only the vacuum came between: it writes to the log before it deletes.
    snapshot, files = staged(lake, 8, 9)
    forget_rows(lake, RowChoice(key="nobody"), dry_run=False)
    with pytest.raises(CommitConflict):
        snapshot.commit(files)


def test_rows_that_come_meanwhile_are_kept(lake, monkeypatch):
    commit, others = Snapshot.commit, 0

    def after_another(snapshot: Snapshot, *args: Any, **options: Any) -> None:
        nonlocal others
        others += 1
        if others == 1:
            put_rows(lake, "attempts", an_attempt(8, key=ADA), an_attempt(9))
        commit(snapshot, *args, **options)

    monkeypatch.setattr(Snapshot, "commit", after_another)
    assert forget_rows(lake, RowChoice(key=ADA), dry_run=False).rows["attempts"] == 3

    assert positions(lake) == [2, 3, 4, 9]


@pytest.mark.parametrize(
    ("key", "tag", "says"),
    [
        (None, None, "needs one of --key KEY and --tag NAME=VALUE"),
        ("a", "b=c", "needs one of --key KEY"),
        (None, "tenant", "--tag 'tenant': a name and a value, as in tenant=acme"),
    ],
)
def test_what_does_not_say_whose_rows_is_refused(key, tag, says):
    with pytest.raises(Refused, match=says):
        row_choice(key, tag)


def test_a_value_may_hold_an_equals_sign():
    assert row_choice(None, "query=a=b").tag == ("query", "a=b")
