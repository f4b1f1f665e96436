"""The story of examples/spark/congestion.py on real Spark: killed, and deployed in between."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.datasets.frames import read_versions
from penstock.spark.datasets.pipeline import Pipeline
from penstock.spark.datasets.run import fill
from penstock.spark.datasets.status import counted
from penstock.spark.datasets.table import DatasetTable
from penstock.task.dataset import AskedPartitions
from penstock.testing import Clock
from penstock.testing.checker import check_store

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)

EXAMPLE = Path(__file__).parents[2] / "examples" / "spark" / "congestion.py"
START = date(2026, 1, 30)
DAYS = [f"2026-01-{day}" for day in (30, 31)]
FEBRUARY = datetime(2026, 2, 1, tzinfo=UTC).timestamp()  # in Paris January is over


LATE = '{"vehicle": 999, "lat": 48.85, "lon": 2.35, "speed": 20.0, "hour": 12}\n'


@pytest.fixture
def deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Any]:
    """The program as a worker of this release would import it."""
    monkeypatch.setenv("PENSTOCK_URL", f"sqlite:///{tmp_path}/jobs.db")
    monkeypatch.setenv("CONGESTION", str(tmp_path))
    monkeypatch.setenv("CONGESTION_START", START.isoformat())
    monkeypatch.setenv("CONGESTION_DETACHED", "0")  # in the one session that this process has

    def release(number: int) -> Any:
        monkeypatch.setenv("RELEASE", str(number))
        spec = spec_from_file_location("congestion", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "congestion", module)
        spec.loader.exec_module(module)
        return module

    return release


def views(spark: Any, program: Any) -> dict[tuple[str, int], tuple[int, float]]:
    """What a reader of the month sees."""
    snapshot = DatasetTable(program.congestion.place).find()
    assert snapshot is not None
    rows = read_versions(spark, snapshot, ["2026-01"]).collect()
    return {(row.road, row.hour): (row.probes, row.slow) for row in rows}


def states(program: Any) -> dict[str, dict[str, int]]:
    pipeline = Pipeline(program.app)
    asked = AskedPartitions(("conflated", "congestion"), None, FEBRUARY)
    return counted(pipeline.standings(pipeline.plan(pipeline.asked_partitions(asked))))


def test_a_month_comes_to_the_same_views_through_kills_and_a_deploy(
    spark: Any, store_url: str, deployed: Callable[[int], Any]
):
    first = deployed(1)
    first.make_files(START, len(DAYS))
    with first.app.testing(clock=Clock(FEBRUARY)) as t:
        filled = fill(first.app, ["congestion"])
        assert (filled.enqueued, filled.waiting) == ({"conflated": 2}, 1)
        with (
            t.crash_at("claim", "conflated"),
            t.crash_at("run", "conflated"),
            t.crash_at("settle", "congestion"),
        ):
            t.drain()
        verdict = check_store(t.broker)
    assert verdict.ok, verdict
    assert verdict.seen["lapses"] == 2  # who dies before the start of a job costs it nothing
    assert states(first) == {"conflated": {"current": 2}, "congestion": {"current": 1}}
    seen = views(spark, first)
    assert seen["E4", 9] == (4, 1.0)  # two vehicles, two days
    assert seen["E4", 12] == (4, 0.0)

    second = deployed(2)
    assert states(second) == {"conflated": {"stale": 2}, "congestion": {"stale": 1}}
    (second.HERE / "raw" / DAYS[1] / "probes-1.json").write_text(LATE)
    with second.app.testing(clock=Clock(FEBRUARY)) as t:
        fill(second.app, ["congestion"])
        t.drain(len(DAYS))
        assert views(spark, second) == seen  # until the month is committed
        with t.crash_at("settle", "congestion"):
            t.drain()
        verdict = check_store(t.broker)
    assert verdict.ok, verdict
    assert states(second) == {"conflated": {"current": 2}, "congestion": {"current": 1}}
    assert views(spark, second) == {
        **seen,
        ("E4", 12): (5, 0.2),
    }
    for dataset, commits in ((second.conflated, 4), (second.congestion, 2)):
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        assert snapshot.number == commits  # one for each partition and release, whatever was killed
