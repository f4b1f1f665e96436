"""The lake: every row once, whatever was killed, told twice, lost or compacted meanwhile."""

from __future__ import annotations

from datetime import UTC, date
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.dataset
import pyarrow.parquet
import pytest

from penstock.brokers.positions import number_of, position_text
from penstock.errors import PenstockError, Refused
from penstock.spark.pipelines.lake.compact import compact
from penstock.spark.pipelines.lake.export import add_frame
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.manifest import read_manifest
from penstock.spark.pipelines.lake.raw_tables import read_raw
from penstock.spark.pipelines.lake.write_parquet import cause_of
from tests.spark.pipelines.history import NOON, a_frame, an_attempt, at, attempts


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "a lake, 100% ü")


def nobody(*told: object) -> None:
    """Progress that nobody hears of."""


def taken(lake: Lake, frame: Any, table: str = "attempts") -> int:
    with lake.writing() as writing:
        return add_frame(frame, writing, table)


def positions(lake: Lake, table: str = "attempts") -> list[int]:
    """Read by another reader than Spark, by the manifest."""
    found: list[str] = []
    for path in lake.files(table):
        found += pyarrow.parquet.read_table(path, columns=["position"])["position"].to_pylist()
    return sorted(map(number_of, found))


def as_folder(lake: Lake, table: str = "attempts") -> list[int]:
    """Read by one who knows nothing of a manifest, and takes every file of the folder."""
    dataset = pyarrow.dataset.dataset(lake.folder / table, format="parquet", partitioning="hive")
    return sorted(map(number_of, dataset.to_table(columns=["position"])["position"].to_pylist()))


def some(spark: Any, *numbers: int, **fields: Any) -> Any:
    return attempts(spark, *(an_attempt(number, **fields) for number in numbers))


def test_rows_that_are_told_again_are_taken_once(shared_spark, lake):
    assert taken(lake, some(shared_spark, 1, 2, 3)) == 3
    assert taken(lake, some(shared_spark, 2, 3, 4, 5)) == 2
    assert taken(lake, some(shared_spark, 1, 2, 3, 4, 5)) == 0

    assert positions(lake) == as_folder(lake) == [1, 2, 3, 4, 5]
    assert lake.manifest().table("attempts").marks == {"a": position_text(5)}


def test_every_store_has_a_mark_of_its_own(shared_spark, lake):
    taken(lake, some(shared_spark, 1, 2, 3))
    assert taken(lake, some(shared_spark, 1, 2, shard="_b/ c")) == 2

    assert lake.manifest().table("attempts").marks == {
        "a": position_text(3),
        "_b/ c": position_text(2),
    }
    assert positions(lake) == [1, 1, 2, 2, 3]
    shards = {row.shard for row in read_raw(shared_spark, lake, "attempts").collect()}
    assert shards == {"a", "_b/ c"}


def test_both_readers_see_what_was_there(shared_spark, lake):
    row = an_attempt(
        7,
        ended_at=at(0.123456),
        tags={"tenant": "ä"},
        error="line\nlast: \x00\u2028",
        arguments='{"n":1}',
        reason=None,
    )
    taken(lake, attempts(shared_spark, row))

    [path] = lake.files("attempts")
    assert path.parent.name == "day=2026-11-15"
    assert path.name == f"a-{position_text(7)}-{position_text(7)}.1.parquet"
    [other] = pyarrow.parquet.ParquetFile(path).read().to_pylist()
    assert {name: other[name] for name in row if name != "tags"} | {
        "tags": dict(other["tags"])
    } == row
    [ours] = read_raw(shared_spark, lake, "attempts").collect()
    assert ours.error == row["error"]
    assert ours.ended_at.astimezone(UTC) == row["ended_at"]
    assert ours.day == date(2026, 11, 15)


def test_a_day_is_that_of_utc_whatever_the_session_thinks(shared_spark, lake):
    zone = shared_spark.conf.get("spark.sql.session.timeZone")
    shared_spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        late, early = at(12 * 3600 - 1), at(12 * 3600)
        frame = attempts(shared_spark, an_attempt(1, ended_at=late), an_attempt(2, ended_at=early))
        taken(lake, frame)
    finally:
        shared_spark.conf.set("spark.sql.session.timeZone", zone)

    days = [file.day for file in lake.manifest().table("attempts").files]
    assert days == ["2026-11-15", "2026-11-16"]


def test_an_empty_history_is_an_empty_lake(shared_spark, lake):
    assert taken(lake, attempts(shared_spark)) == 0

    assert lake.manifest()
    assert positions(lake) == []
    assert read_raw(shared_spark, lake, "attempts").collect() == []


def test_a_wide_row_and_a_day_with_one_row(shared_spark, lake):
    wide = "x" * 5_000_000
    taken(lake, attempts(shared_spark, an_attempt(1, result=wide)))
    taken(lake, attempts(shared_spark, an_attempt(2, ended_at=at(86400))))
    with lake.writing() as writing:
        assert compact(shared_spark, writing, nobody) == 0

    first, second = read_raw(shared_spark, lake, "attempts").orderBy("position").collect()
    assert first.result == wide
    assert second.day == date(2026, 11, 16)


def test_compacting_changes_files_and_no_row(shared_spark, lake):
    for first in (1, 4, 7):
        taken(lake, some(shared_spark, first, first + 1, first + 2))
    taken(lake, some(shared_spark, 1, 2, shard="b"))
    before = lake.manifest().table("attempts")
    with lake.writing() as writing:
        assert compact(shared_spark, writing, nobody) >= 2

    after = lake.manifest().table("attempts")
    assert len([file for file in after.files if file.shard == "a"]) == 1
    assert after.marks == before.marks
    assert positions(lake) == as_folder(lake) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9]
    assert taken(lake, some(shared_spark, 7, 8, 9, 10)) == 1
    with lake.writing() as writing:
        compact(shared_spark, writing, nobody)
        assert compact(shared_spark, writing, nobody) == 0
    assert positions(lake) == [1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10]


def test_large_files_stay_as_they_are(shared_spark, lake):
    taken(lake, some(shared_spark, 1))
    taken(lake, some(shared_spark, 2))

    with lake.writing() as writing:
        assert compact(shared_spark, writing, nobody, large=64) == 0


class Killed(BaseException):
    """As a signal that nobody catches."""


@pytest.mark.parametrize("at_step", range(4))
@pytest.mark.parametrize("change", ["take", "compact"])
def test_killed_at_any_step_the_lake_is_whole_and_the_next_one_goes_on(
    shared_spark, lake, monkeypatch, change, at_step
):
    """A kill -9 between any two steps that change the folder: rename, manifest, removal."""
    taken(lake, some(shared_spark, 1, 2))
    taken(lake, some(shared_spark, 3, 4))
    whole = positions(lake)
    steps = 0

    def killing(act: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps > at_step:
                raise Killed
            return act(*args, **kwargs)

        return step

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killing(Path.replace))
        patch.setattr(Path, "unlink", killing(Path.unlink))
        # The end of a process runs no finally: what is staged stays.
        patch.setattr("penstock.spark.pipelines.lake.lake.shutil.rmtree", lambda *a, **k: None)
        try:
            if change == "take":
                taken(lake, some(shared_spark, 5, 6))
            else:
                with lake.writing() as writing:
                    compact(shared_spark, writing, nobody)
        except Killed:
            pass

    found = positions(lake)
    assert found in (whole, [*whole, 5, 6])
    assert read_raw(shared_spark, lake, "attempts").count() == len(found)
    taken(lake, some(shared_spark, 1, 2, 3, 4, 5, 6))
    assert positions(lake) == as_folder(lake) == [1, 2, 3, 4, 5, 6]
    assert not list((lake.folder / "_staging").rglob("*"))


def test_one_writes_at_a_time(lake):
    with lake.writing(), pytest.raises(Refused, match="another process is writing"):
        lake.writing().__enter__()


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")

    for place in (tmp_path / "file", tmp_path / "file" / "lake"):
        with pytest.raises(Refused, match=r"is a file, or in one, .* with --lake"):
            Lake(place).writing().__enter__()
    with pytest.raises(Refused, match=r"cannot be written: .*Make the folder writable"):
        Lake("/proc/lake").writing().__enter__()
    with pytest.raises(Refused, match="in a path as a glob pattern"):
        Lake(tmp_path / "lake[1]")
    with pytest.raises(Refused, match="a lake is a folder of a local file system"):
        Lake("s3://bucket/lake")


def test_a_lake_of_a_newer_version_is_refused(lake):
    with lake.writing():
        pass
    text = (lake.folder / "manifest.json").read_text()
    (lake.folder / "manifest.json").write_text(text.replace('"version": 1', '"version": 9'))

    with pytest.raises(Refused, match="manifest version 9, this Penstock knows 1: upgrade"):
        lake.writing().__enter__()
    with pytest.raises(Refused, match="upgrade Penstock"):
        lake.files("attempts")


def test_what_is_no_lake_is_left_alone(tmp_path):
    (tmp_path / "mine.parquet").write_bytes(b"PAR1")

    with pytest.raises(Refused, match=r"holds mine.parquet and no manifest"):
        Lake(tmp_path).writing().__enter__()
    with pytest.raises(Refused, match="there is no lake in"):
        Lake(tmp_path).files("attempts")
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(Refused, match="is no manifest of a lake"):
        read_manifest(tmp_path)
    assert (tmp_path / "mine.parquet").exists()


def test_a_file_that_is_gone_is_named(shared_spark, lake):
    taken(lake, some(shared_spark, 1))
    lake.files("attempts")[0].unlink()

    one = position_text(1)
    with pytest.raises(Refused, match=f"has lost attempts/day=2026-11-15/a-{one}-{one}.1.parquet"):
        read_raw(shared_spark, lake, "attempts")


def test_columns_of_other_versions_do_not_matter(shared_spark, lake):
    """Additive evolution: a file with fewer columns reads as null, one with more is narrowed."""
    taken(lake, some(shared_spark, 1, reason="error"))
    [path] = lake.files("attempts")
    table = pyarrow.parquet.ParquetFile(path).read()
    table = table.drop_columns(["reason"]).append_column("later", [["column"]])
    pyarrow.parquet.write_table(table, path)

    [row] = read_raw(shared_spark, lake, "attempts").collect()
    assert row.reason is None
    assert row.job == "job-1"
    assert "later" not in row


def test_events_and_gauges_are_tables_like_attempts(shared_spark, lake):
    event = {"position": position_text(1), "shard": "a", "kind": "rule", "at": NOON, "tags": {}}
    gauge = {"position": position_text(2), "shard": "a", "at": NOON, "queue": "mail", "ready": 3}
    assert taken(lake, a_frame(shared_spark, "events", event), "events") == 1
    assert taken(lake, a_frame(shared_spark, "gauges", gauge), "gauges") == 1

    assert positions(lake, "events") == [1]
    assert read_raw(shared_spark, lake, "gauges").first().ready == 3
    assert msgspec.to_builtins(lake.manifest())["generation"] == 2


def test_a_disk_that_is_full_in_mid_change_is_one_sentence(lake):
    """What was published before is whole; nothing of the change is part of the lake."""
    with lake.writing():
        before = lake.manifest()

    with (
        pytest.raises(Refused, match=r"cannot be written: No space left\. What it held before"),
        lake.writing(),
    ):
        raise OSError(28, "No space left")

    assert lake.manifest() == before


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
