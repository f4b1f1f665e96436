"""Workers that make partitions are killed with -9: each partition has one version all the same."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.app.locate import load_app
from penstock.spark.datasets.frames import read_versions
from penstock.spark.datasets.run import fill
from penstock.spark.datasets.table import DatasetTable
from penstock.testing.checker import check_store
from tests.arrow_session import ArrowSession
from tests.stories.conftest import Story, eventually

TARGET = f"{Path(__file__).parent / 'dataset_tasks.py'}:app"
ROOT = Path(__file__).parents[2]
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize("story", ["sqlite"], indirect=True)
def test_killed_anywhere_each_partition_has_one_version(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PENSTOCK_URL", story.url)
    app = load_app(TARGET)
    rides, busy = app.datasets.values()
    fill(app, ["busy"], until=FEBRUARY)
    path = Path(os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    for days in (2, 4, 6):
        fleet = story.start(target=TARGET, path=path, threads=2)
        eventually(lambda: len(seen(rides)) >= days, what=f"{days} days are made")  # noqa: B023
        for pid in (fleet.pid, *fleet.children()):
            os.kill(pid, signal.SIGKILL)
        fleet.wait()
        assert_whole(rides)

    story.start(target=TARGET, path=path, threads=2, drain=True).wait(120)

    assert len(seen(rides)) == 12
    [month] = rows(busy, "2026-01")
    assert month == {"rides": 36}
    for dataset in (rides, busy):
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        assert snapshot.number == len(snapshot.versions())  # one commit for each partition
        # Each version is the one that its job says it made.
        for text, version in snapshot.versions().items():
            made = snapshot.made(text, run=version.run)
            assert made is not None
            result = dataset.task.results.decode(app.broker.get(made.job).result)
            assert (result.run, result.rows) == (version.run, version.rows)
    verdict = check_store(app.broker)
    assert verdict.ok, verdict
    app.close()


def seen(dataset: Any) -> dict[str, Any]:
    return DatasetTable(dataset.place).versions()


def rows(dataset: Any, text: str) -> list[Any]:
    snapshot = DatasetTable(dataset.place).find()
    assert snapshot is not None
    return read_versions(ArrowSession(), snapshot, [text]).rows()


def assert_whole(dataset: Any) -> None:
    """What a reader sees between two kills: each day that is there is there completely."""
    for text in seen(dataset):
        assert rows(dataset, text) == [{"day": text}] * 3
