"""The lakes that a store knows, as a person looks at them and gives them up. No Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.lake_mark import Mark
from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.brokers.positions import position_text
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.lake.raw_tables import create_raw_tables
from penstock.testing.clock import Clock

DAY = 86400


@pytest.fixture
def store(cli: Any) -> Iterator[Broker]:
    broker = cli.store()
    yield broker
    broker.close()


def findings(cli, code: int = 0) -> list[tuple[str, str]]:
    found = cli.json("doctor", code=code)["findings"]
    return [(each["colour"], each["says"]) for each in found if each["name"] == "lakes"]


def test_lakes_are_listed(cli, store):
    assert "no lake has taken history" in cli("pipeline", "lakes").stdout
    store.put(Mark(lake="lake-1", place="/srv/lake"))

    assert "/srv/lake" in cli("pipeline", "lakes").stdout
    [mark] = cli.json("pipeline", "lakes")
    assert (mark["lake"], mark["position"], mark["gap"]) == ("lake-1", BEGINNING, None)


def test_a_lake_is_given_up_by_its_folder_or_its_id_also_when_its_files_are_gone(
    cli, store, tmp_path: Path
):
    create_raw_tables(Lake(tmp_path / "here"))
    here = Lake(tmp_path / "here").id
    for lake, place in (("by-id", ""), (here, "elsewhere"), ("gone", str(tmp_path / "gone"))):
        store.put(Mark(lake=lake, place=place))

    for named in ("by-id", str(tmp_path / "here"), str(tmp_path / "gone")):
        assert (
            "keeps no more history for the lake"
            in cli("pipeline", "forget", "--lake", named).stdout
        )
    assert store.records(Mark) == []
    assert [row.kind for row in store.history()].count("lake") == 6

    said = cli("pipeline", "forget", "--lake", "other", code=2).stderr
    assert "keeps no history for a lake other; its lakes are: none" in said


def test_only_run_says_how_long_a_store_waits(cli, store):
    assert "belongs to pipeline run" in cli("pipeline", "lakes", "--hold", "3d", code=2).stderr


@pytest.mark.parametrize("hold", [0.0, 30.0 * DAY])
def test_the_doctor_names_a_lake_that_stands_still_and_is_red_on_a_gap(cli, store, hold):
    """SPARK 2, lake: past the cap doctor is red, until the lake knows; yellow before."""
    assert findings(cli) == []
    clock = Clock(store.clock.now() - 20 * DAY)
    earlier = open_broker(f"sqlite:///{cli.folder / 'penstock.db'}", clock=clock)
    earlier.put(Mark(lake="old", place="/srv/old", hold=hold))
    [(colour, says)] = findings(cli)
    assert colour == "yellow"
    assert "/srv/old has not been updated for 2" in says

    earlier.prune(clock.now() + 10 * DAY)
    [(colour, says)] = findings(cli, code=0 if hold else 1)
    earlier.close()
    assert colour == ("yellow" if hold else "red")
    assert (
        hold
        or f"/srv/old misses 1 row of the history (behind position 0, up to {position_text(1)})"
        in says
    )

    [mark] = store.records(Mark)
    store.put(mark)
    assert [colour for colour, _ in findings(cli)] == ["green"]


def _a_file(folder: Path) -> str:
    folder.write_text("not a folder")
    return "is a file, or in one, and a lake is a folder: name another one with --lake"


def _earlier(folder: Path) -> str:
    folder.mkdir()
    (folder / "manifest.json").write_text('{"version": 1}')
    return "is a lake of an earlier Penstock, with a manifest.json: name another folder"


def _newer(folder: Path) -> str:
    create_raw_tables(Lake(folder))
    Lake(folder).table("attempts").delta.alter.set_table_properties(
        {"penstock.lake": "9"}, raise_if_not_exists=False
    )
    return "has version 9, this Penstock knows 1: upgrade Penstock here"


@pytest.mark.parametrize("bad", [_a_file, _earlier, _newer])
def test_a_lake_that_cannot_be_written_is_refused_before_anything_is_read(
    cli, store, tmp_path: Path, bad
):
    """Issue 5: one sentence that says what to do, a code, and nothing changed."""
    folder = tmp_path / "lake"
    says = bad(folder)
    before = sorted(folder.rglob("*"))

    said = cli("pipeline", "run", "--lake", str(folder), code=2).stderr

    assert says in said.replace("\n", " ")
    assert sorted(folder.rglob("*")) == before
    assert store.records(Mark) == []
