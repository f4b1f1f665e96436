"""The lake: every row once, whatever is killed, told twice, lost, joined or deleted meanwhile.

Most of this needs no Spark session: rows are put as an export does it, and read by Delta's library.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, date
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from penstock.brokers.positions import number_of
from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake.data_files import TableFolder, write_rows
from penstock.spark.pipelines.lake.export import cause_of
from penstock.spark.pipelines.lake.lake import CommitConflict, Lake
from penstock.spark.pipelines.lake.marks import mark_name, number_of_mark
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables, read_raw
from penstock.spark.pipelines.lake.upkeep import compact
from penstock.spark.source.tables import TABLES, arrow_schema
from tests.spark.pipelines.history import (
    a_gauge,
    add_frame,
    an_attempt,
    an_event,
    at,
    attempts,
    put_rows,
)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake, 100% ü")


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def some(*numbers: int, **fields: Any) -> list[dict[str, Any]]:
    return [an_attempt(number, **fields) for number in numbers]


def positions(lake: Lake, table: str = "attempts") -> list[int]:
    rows = lake.table(table).delta.to_pyarrow_table(columns=["position"])
    return sorted(map(number_of, rows["position"].to_pylist()))


def staged(lake: Lake, *numbers: int) -> tuple[Any, list[Any]]:
    """A snapshot, and files that no commit names yet."""
    snapshot = lake.table("attempts")
    rows = [{**row, "tags": []} for row in some(*numbers)]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(TABLES["attempts"]))
    return snapshot, write_rows([batch], snapshot.place, "ended_at")


def test_rows_that_come_again_are_taken_once(shared_spark, lake):
    def taken(*numbers: int) -> int:
        return add_frame(attempts(shared_spark, *some(*numbers)), lake, "attempts")

    assert [taken(1, 2, 3), taken(2, 3, 4, 5), taken(1, 2, 3, 4, 5)] == [3, 2, 0]

    assert positions(lake) == [1, 2, 3, 4, 5]
    assert lake.table("attempts").mark(mark_name("a")) == 5


def test_every_store_has_a_mark_of_its_own(shared_spark, lake):
    rows = [*some(1, 2, 3), *some(1, 2, shard="_b/ c")]
    add_frame(attempts(shared_spark, *rows), lake, "attempts")

    table = lake.table("attempts")
    assert (table.mark(mark_name("a")), table.mark(mark_name("_b/ c"))) == (3, 2)
    assert positions(lake) == [1, 1, 2, 2, 3]


def test_spark_and_others_read_what_was_there(shared_spark, lake):
    row = an_attempt(
        7,
        ended_at=at(0.123456),
        tags={"tenant": "ä"},
        error="line\nlast: \x00\u2028",
        arguments='{"n":1}',
        reason=None,
    )
    add_frame(attempts(shared_spark, row), lake, "attempts")

    [other] = lake.table("attempts").rows()
    assert {name: other[name] for name in row if name != "tags"} | {
        "tags": dict(other["tags"])
    } == row
    [ours] = read_raw(shared_spark, lake, "attempts").collect()
    assert ours.error == row["error"]
    assert ours.ended_at.astimezone(UTC) == row["ended_at"]
    assert ours.day == other["day"] == date(2026, 11, 15)


def test_a_day_is_that_of_utc_whatever_the_session_thinks(shared_spark, lake):
    zone = shared_spark.conf.get("spark.sql.session.timeZone")
    shared_spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        late, early = at(12 * 3600 - 1), at(12 * 3600)
        rows = an_attempt(1, ended_at=late), an_attempt(2, ended_at=early)
        add_frame(attempts(shared_spark, *rows), lake, "attempts")
    finally:
        shared_spark.conf.set("spark.sql.session.timeZone", zone)

    files = lake.table("attempts").files()
    assert sorted(file.day for file in files) == ["2026-11-15", "2026-11-16"]
    found = pa.table(lake.table("attempts").delta.get_add_actions(flatten=True)).to_pylist()
    assert {row["max.ended_at"] for row in found} == {late, early}


def test_an_empty_history_is_an_empty_lake(shared_spark, lake):
    create_raw_tables(lake)

    assert positions(lake) == []
    assert read_raw(shared_spark, lake, "attempts").collect() == []


def test_joining_files_changes_no_row_and_no_mark(lake):
    for first in (1, 4, 7):
        put_rows(lake, "attempts", *some(first, first + 1, first + 2))
    put_rows(lake, "attempts", *some(1, 2, shard="b"))
    before = len(lake.table("attempts").files())

    assert compact(lake, nobody).fewer == before - 1

    assert positions(lake) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]
    assert put_rows(lake, "attempts", *some(7, 8, 9, 10)) == 1
    compact(lake, nobody)
    assert compact(lake, nobody).fewer == 0
    assert positions(lake) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_days_older_than_the_retention_are_dropped(lake):
    put_rows(lake, "attempts", an_attempt(1, ended_at=at(-400 * 86400)), an_attempt(2))

    done = compact(lake, nobody, keep=365 * 86400.0)

    assert done.dropped["attempts"] == 1
    assert positions(lake) == [2]
    assert put_rows(lake, "attempts", *some(1)) == 0  # the mark stays: it does not come back


def test_no_value_of_a_person_is_in_the_log(lake):
    """Statistics are of times and positions; joining files writes no others."""
    secret = "ada@example.com"
    fields = {"key": secret, "error": secret, "arguments": secret, "tags": {secret: secret}}
    for number in (1, 2):
        put_rows(lake, "attempts", an_attempt(number, **fields))
        put_rows(lake, "events", an_event(number, key=secret, data=secret))
    compact(lake, nobody)

    lake.table("attempts").delta.create_checkpoint()
    logs = [path for path in lake.folder.rglob("_delta_log/*") if path.is_file()]
    assert len(logs) > 6
    assert [path for path in logs if secret.encode() in path.read_bytes()] == []
    statistics = lake.table("attempts").files()[0]
    assert (statistics.lows["position"], statistics.highs["shard"]) == (f"{1:020d}", "a")


KILLED = """
import os, signal, sys
import deltalake
from penstock.spark.pipelines.lake.lake import Lake
from tests.spark.pipelines.history import an_attempt, put_rows

lake = Lake(sys.argv[1])
real = deltalake.DeltaTable.create_write_transaction

def dying(table, *args, **options):
    if sys.argv[2] == "after":
        real(table, *args, **options)
    os.kill(os.getpid(), signal.SIGKILL)

deltalake.DeltaTable.create_write_transaction = dying
put_rows(lake, "attempts", an_attempt(3), an_attempt(4))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_before_and_after_the_commit_the_next_one_goes_on(lake, tmp_path, moment):
    put_rows(lake, "attempts", *some(1, 2))
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, str(lake), moment],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )
    assert ran.returncode == -signal.SIGKILL
    assert positions(lake) == ([1, 2] if moment == "before" else [1, 2, 3, 4])

    assert put_rows(lake, "attempts", *some(1, 2, 3, 4, 5)) == (3 if moment == "before" else 1)

    assert positions(lake) == [1, 2, 3, 4, 5]


FULL = """
import resource, sys
from penstock.errors import PenstockError
from penstock.spark.pipelines.lake.lake import Lake
from tests.spark.pipelines.history import an_attempt, put_rows

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    put_rows(Lake(sys.argv[1]), "attempts", an_attempt(3))
except PenstockError as error:
    print(error, flush=True)
"""


def test_a_disk_that_is_full_in_mid_change_is_one_sentence(lake):
    """In a file of rows: what was committed before is whole, and nothing of the change counts."""
    put_rows(lake, "attempts", *some(1, 2))
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(lake), "1000"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=True,
        capture_output=True,
        text=True,
    )

    [says] = ran.stdout.splitlines()
    assert "cannot be written: " in says
    assert says.endswith("File too large. What it held before is intact")
    assert positions(lake) == [1, 2]
    assert put_rows(lake, "attempts", *some(1, 2, 3)) == 1


@pytest.mark.parametrize("temporary", [True, False])
def test_killed_in_the_commit_itself(lake, temporary):
    """What a writer leaves in the log: a file without a version, or none."""
    put_rows(lake, "attempts", *some(1, 2))
    staged(lake, 3, 4)
    if temporary:
        (lake.folder / "attempts" / "_delta_log" / f"{2:020d}.json#1").write_bytes(b'{"add":')

    assert positions(lake) == [1, 2]
    assert put_rows(lake, "attempts", *some(1, 2, 3)) == 1
    assert positions(lake) == [1, 2, 3]


def test_of_two_writers_the_second_begins_again(lake):
    """A commit that were tried again behind the first one would add its rows a second time."""
    put_rows(lake, "attempts", *some(1, 2))
    first, its_files = staged(lake, 3, 4)
    second, other_files = staged(lake, 3, 4, 5)

    first.commit(its_files, marks={mark_name("a"): 4})
    with pytest.raises(CommitConflict, match="another process changed attempts"):
        second.commit(other_files, marks={mark_name("a"): 5})

    assert positions(lake) == [1, 2, 3, 4]
    assert lake.table("attempts").mark(mark_name("a")) == 4


def test_a_folder_that_cannot_be_a_lake_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")

    for place in (tmp_path / "file", tmp_path / "file" / "lake"):
        with pytest.raises(Refused, match=r"is a file, or in one, .* with --lake"):
            create_raw_tables(Lake(place))
    with pytest.raises(Refused, match=r"cannot be written: .*Make it writable"):
        create_raw_tables(Lake("/proc/lake"))
    with pytest.raises(Refused, match="in a path as a glob pattern"):
        Lake(tmp_path / "lake[1]")
    with pytest.raises(Refused, match=r"begins with s3://, gs:// or abfss://, and not with hdfs"):
        Lake("hdfs://host/lake")


def test_a_lake_of_before_is_refused_with_the_way_out(lake):
    lake.folder.mkdir()
    (lake.folder / "manifest.json").write_text('{"version": 1}')

    with pytest.raises(Refused, match=r"of an earlier Penstock.*pipeline run --lake .*-2 fills it"):
        create_raw_tables(lake)
    with pytest.raises(Refused, match="of an earlier Penstock"):
        lake.table("attempts")


def test_a_lake_of_a_newer_version_is_refused(lake):
    create_raw_tables(lake)
    lake.table("attempts").delta.alter.set_table_properties(
        {"penstock.lake": "9"}, raise_if_not_exists=False
    )

    with pytest.raises(Refused, match="has version 9, this Penstock knows 1: upgrade"):
        lake.table("attempts")


def test_what_is_no_lake_is_left_alone(tmp_path):
    (tmp_path / "mine.parquet").write_bytes(b"PAR1")

    with pytest.raises(Refused, match=r"holds mine.parquet, which is no part of a lake"):
        create_raw_tables(Lake(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.parquet"]
    with pytest.raises(Refused, match="there is no lake in"):
        Lake(tmp_path / "none").table("attempts")


def test_a_file_that_is_gone_or_cut_short_is_named(lake):
    put_rows(lake, "attempts", *some(1))
    [file] = lake.table("attempts").files()
    path = lake.folder / "attempts" / file.path
    whole = path.read_bytes()

    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Refused, match=f"has only a part of attempts/{file.path}"):
        lake.table("attempts").files()
    path.unlink()
    with pytest.raises(Refused, match=f"has lost attempts/{file.path}"):
        lake.table("attempts").files()


def test_a_log_that_is_cut_short_is_one_sentence(lake):
    put_rows(lake, "attempts", *some(1))
    log = lake.folder / "attempts" / "_delta_log" / f"{1:020d}.json"
    log.write_bytes(log.read_bytes()[:40])

    with pytest.raises(Refused, match=r"the lake .* cannot be read: "):
        positions(lake)


def test_a_table_that_is_gone_is_not_begun_anew(lake):
    """Its rows up to the mark would be missing, and nobody would know."""
    put_rows(lake, "attempts", *some(1))
    shutil.rmtree(lake.folder / "events")

    with pytest.raises(Refused, match="has lost its table events"):
        create_raw_tables(lake)


def test_a_lake_that_is_deleted_before_the_commit_is_not_half_there(lake):
    put_rows(lake, "attempts", *some(1))
    snapshot, files = staged(lake, 2)
    shutil.rmtree(lake.folder)

    with pytest.raises(Refused, match="there is no lake in"):
        snapshot.commit(files)
    assert not lake.folder.exists()


# REQUIREMENTS S20
def test_columns_of_other_versions_stay(shared_spark, lake):
    """D6: an older release reads and writes beside newer columns, and joining files keeps them."""
    create_raw_tables(lake)
    own = arrow_schema(TABLES["attempts"])
    newer = own.append(pa.field("colour", pa.string()))
    lake.table("attempts").with_columns(newer)
    put_rows(lake, "attempts", an_attempt(1, colour="red"), schema=newer)
    put_rows(lake, "attempts", an_attempt(2, reason="error"))
    older = own.remove(own.get_field_index("reason"))
    put_rows(lake, "attempts", an_attempt(3), schema=older)

    def seen() -> list[tuple[Any, ...]]:
        rows = lake.table("attempts").rows()
        return sorted((row["job"], row["reason"], row["colour"]) for row in rows)

    expected = [("job-1", None, "red"), ("job-2", "error", None), ("job-3", None, None)]
    assert seen() == expected
    compact(lake, nobody)
    assert len(lake.table("attempts").files()) == 1
    assert seen() == expected
    rows = read_raw(shared_spark, lake, "attempts").orderBy("position").collect()
    assert [row.reason for row in rows] == [None, "error", None]
    assert "colour" not in rows[0]


def test_a_newer_release_adds_its_columns_to_an_older_lake(lake):
    own = arrow_schema(TABLES["attempts"])
    for table in ("gauges", "events"):
        lake.create(table, arrow_schema(TABLES[table]))
    lake.create("attempts", own.remove(own.get_field_index("app")))

    put_rows(lake, "attempts", an_attempt(1, app="shop"))

    assert [row["app"] for row in lake.table("attempts").rows()] == ["shop"]


def test_events_and_gauges_are_tables_like_attempts(shared_spark, lake):
    put_rows(lake, "events", an_event(1, "rule"))
    put_rows(lake, "gauges", a_gauge(2, ready=3))

    assert positions(lake, "events") == [1]
    assert read_raw(shared_spark, lake, "gauges").first().ready == 3


def test_a_machine_that_does_not_see_the_folder_says_so(tmp_path):
    """It would write to a folder of its own, and the log would name files that nobody has."""
    with pytest.raises(PenstockError, match="does not see the lake's folder"):
        write_rows([], TableFolder(str(tmp_path / "not-mounted")), "at")


def test_a_table_that_needs_other_features_of_delta_is_refused(lake):
    create_raw_tables(lake)
    feature = deltalake.TableFeatures.DeletionVectors
    lake.table("attempts").delta.alter.add_feature(feature, allow_protocol_versions_increase=True)

    with pytest.raises(Refused, match=r"features of Delta that Penstock does not read.*eletion"):
        lake.table("attempts")


@pytest.mark.parametrize("position", ["7", "a", "-1", f"{1 << 63:020d}", "٣"])
def test_a_position_that_no_commit_can_carry_is_refused(position):
    with pytest.raises(Refused, match="positions that are numbers of 20 digits"):
        number_of_mark(position)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x\npenstock.errors.StoreFull: no room\n  at java", "no room"),
        ("x\nCaused by: java.io.IOException: No space left\n\tat java.io", "No space left"),
        ("[X] Query [1] terminated with exception: A b c. SQLSTATE: X\nState: RUNNABLE", "A b c"),
        ("", "?"),
    ],
)
def test_what_spark_wrapped_is_one_sentence(text, says):
    assert cause_of(PenstockError(text)).endswith(says)
