"""Datasets in an object store: a real S3 API on loopback, and the same promises as in a folder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import App, Expect, Interval, Refused, State
from penstock.broker.filter import Filter
from penstock.operate.storage_options import VARIABLE, without_secrets
from penstock.spark.datasets.frames import read_versions, write_frame
from penstock.spark.datasets.pipeline import Pipeline
from penstock.spark.datasets.run import fill
from penstock.spark.datasets.status import node_json, why_partition
from penstock.spark.datasets.table import DatasetTable
from penstock.spark.pipelines.lake.lake import CommitConflict
from penstock.task.dataset_plan import Made
from penstock.testing import Clock
from penstock.worker import Worker
from tests.arrow_session import ArrowSession, frame
from tests.spark.pipelines.s3_server import S3, running

fs: Any = import_module("pyarrow.fs")

UNTIL = datetime(2026, 1, 3, tzinfo=UTC).timestamp()
DAYS = ["2026-01-01", "2026-01-02"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with running() as s3:
        yield s3


@pytest.fixture(autouse=True)
def _settings(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**s3.options, "max_retries": "2", "retry_timeout": "30s"}
    monkeypatch.setenv(VARIABLE, " ".join(f"{name}={value}" for name, value in options.items()))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"s3://bucket/{request.node.name}"


class Shop:
    """Rides of days, and a count of them that has a column of the name `day`."""

    def __init__(self, folder: Path, place: str) -> None:
        self.app = app = App(f"sqlite:///{folder}/jobs.db")
        self.value = 1
        self.during: Any = lambda: None

        @app.dataset(
            name="rides",
            partition="day",
            table=f"{place}/rides",
            start="2026-01-01",
            spark=ArrowSession,
            check=[lambda found: sum(row["v"] == 0 for row in found.rows())],
        )
        def rides(spark: Any, interval: Interval) -> Any:
            self.during()
            return frame(v=[self.value, 100], day=[interval.text] * 2)

        @app.dataset(
            name="busy", partition="day", table=f"{place}/busy/", inputs=[rides], spark=ArrowSession
        )
        def busy(spark: Any, day: date, found: Any) -> Any:
            return frame(rides=[found.count()], seen=[found.rows()[0]["day"]])

        self.rides, self.busy = rides, busy

    def values(self, dataset: Any, text: str) -> list[Any]:
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        return read_versions(ArrowSession(), snapshot, [text]).rows()


@pytest.fixture
def shop(tmp_path: Path, place: str) -> Shop:
    return Shop(tmp_path, place)


@pytest.fixture
def t(shop: Shop) -> Any:
    with shop.app.testing(clock=Clock(datetime(2026, 2, 1, tzinfo=UTC).timestamp())) as t:
        yield t


def written(t: Any) -> bytes:
    """All that the store's history has."""
    return b"".join(msgspec.json.encode(event) for event in t.broker.history())


def objects(place: str) -> list[str]:
    """What is there beside logs."""
    folder = DatasetTable(place).folder.filesystem()
    selector = fs.FileSelector("", recursive=True)
    return sorted(
        info.path for info in folder.get_file_info(selector) if info.path.endswith(".parquet")
    )


@pytest.mark.parametrize("point", ["run", "settle"])
def test_killed_before_or_after_the_commit_each_partition_has_one_version(shop, t, point):
    fill(shop.app, ["busy"], until=UNTIL)

    with t.crash_at(point, "rides"), t.crash_at(point, "busy"):
        ran = t.drain()

    assert {each.state for each in ran if each.outcome is not None} == {State.SUCCEEDED}
    for dataset in (shop.rides, shop.busy):
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        assert (sorted(snapshot.versions()), snapshot.number) == (DAYS, 2)
    assert shop.values(shop.rides, DAYS[1]) == [
        {"v": 1, "day": DAYS[1]},
        {"v": 100, "day": DAYS[1]},
    ]
    assert shop.values(shop.busy, DAYS[0]) == [{"rides": 2, "seen": DAYS[0]}]
    pipeline = Pipeline(shop.app)
    assert node_json(pipeline, "busy").table == shop.busy.place
    made = why_partition(pipeline, "busy", DAYS[0]).made
    assert made is not None
    assert made.rows == 1
    log = DatasetTable(shop.rides.place).folder.filesystem()
    with log.open_input_file(f"_delta_log/{2:020d}.json") as stream:
        assert b"canary" not in stream.read() + written(t)


def test_a_writer_killed_between_its_files_and_the_commit_leaves_the_version_before(place):
    """By kill -9, in a process of its own; then the next attempt commits."""
    made_by(place, "1-a.0", 1)

    writer = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.test_datasets_in_s3", place],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None
    assert writer.stdin is not None
    assert writer.stdout.readline() == b"written\n"
    writer.kill()
    writer.wait()
    writer.stdout.close()
    writer.stdin.close()

    snapshot = DatasetTable(place).find()
    assert snapshot is not None
    assert len(objects(place)) == 2
    assert snapshot.versions()["a"].run == "1-a.0"
    assert read_versions(ArrowSession(), snapshot, ["a"]).rows() == [{"v": 1}]
    made_by(place, "1-a.1", 2)
    after = DatasetTable(place).find()
    assert after is not None
    assert read_versions(ArrowSession(), after, ["a"]).rows() == [{"v": 2}]


def made_by(place: str, run: str, value: int, snapshot: Any = None) -> None:
    table, rows = DatasetTable(place), frame(v=[value])
    files = write_frame(rows, table.folder, "a", run)
    made = Made(
        dataset="rides", partition="a", run=run, job=run, attempt=1, rows=1, bytes=1, inputs=[]
    )
    (snapshot or table.create(rows.table.schema)).commit(made, files)


def test_of_two_commits_from_one_snapshot_the_second_is_refused(place):
    made_by(place, "1-a.0", 1)
    first, second = (DatasetTable(place).find() for _ in range(2))
    made_by(place, "1-b.0", 2, first)

    with pytest.raises(CommitConflict):
        made_by(place, "1-c.0", 3, second)

    after = DatasetTable(place).find()
    assert after is not None
    assert after.versions()["a"].run == "1-b.0"


def test_a_run_that_fails_takes_its_files_away_and_leaves_the_version_before(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    before = objects(shop.rides.place)
    shop.value = 0

    fill(shop.app, ["rides"], until=UNTIL, again=True)
    ran = t.drain()

    assert {each.state for each in ran} == {State.FAILED}
    assert "1 rows do not pass" in (ran[0].outcome.error or "")
    assert objects(shop.rides.place) == before
    assert shop.values(shop.rides, DAYS[0])[0]["v"] == 1


def test_a_storage_that_refuses_is_one_sentence_without_a_key(shop, t, s3):
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    fill(shop.app, ["rides"], until=UNTIL, again=True)
    shop.during = lambda: s3.put("-/403=1000")
    try:
        [ran] = t.drain(1)
        with pytest.raises(Refused, match=r"the table s3://.* cannot be read: ") as error:
            DatasetTable(shop.rides.place).find()
    finally:
        s3.put("-/403=0")

    assert "cannot be written: " in (ran.outcome.error or "")
    assert "canary" not in str(error.value)
    assert b"canary" not in written(t)
    shop.during = lambda: None
    fill(shop.app, ["rides"], until=UNTIL, again=True)
    t.drain()
    assert shop.values(shop.rides, DAYS[0])[0]["v"] == 1


def test_what_a_storage_says_is_told_without_what_is_secret():
    options = {"AWS_SECRET_ACCESS_KEY": "a/b", "AZURE_STORAGE_SAS_TOKEN": "sig", "AWS_REGION": "eu"}

    told = without_secrets("GET https://x/?k=a%2Fb&t=sig in eu: a/b is wrong", options)

    assert told == "GET https://x/?k=***&t=*** in eu: *** is wrong"


def test_settings_that_are_no_names_with_values_are_refused_unseen(monkeypatch, place):
    monkeypatch.setenv(VARIABLE, "canary-secret")

    with pytest.raises(Refused, match="PENSTOCK_STORAGE_OPTIONS: a name and a value") as error:
        DatasetTable(place)

    assert "canary" not in str(error.value)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_spark_reads_writes_and_checks_it_and_no_plan_has_a_key(
    spark: Any, store_url: str, place: str
):
    """The settings reach the executors, and a column of an input that is new is null before."""
    app = App(store_url)
    plans: list[str] = []
    types = "id", "cast(id as decimal(9, 2)) as price", "timestamp'2026-03-01 10:00:00Z' as at"

    @app.dataset(
        name="rides",
        partition=["north", "south"],
        table=f"{place}/rides",
        check=[Expect("id < 2", at_most=1), lambda found: found.where("at is null")],
    )
    def rides(spark: Any, partition: str) -> Any:
        more = ["array(named_struct('a', id)) as days"] if partition == "south" else []
        return spark.range(3).selectExpr(*types, *more)

    @app.dataset(
        name="all", partition="month", table=f"{place}/all", inputs=[rides], start="2026-03"
    )
    def every(spark: Any, month: date, found: Any) -> Any:
        plans.append(
            found._sc._jvm.PythonSQLUtils.explainString(found._jdf.queryExecution(), "extended")
        )
        return found.selectExpr(
            "count(*) as n", "sum(price) as price", "min(at) as at", "max(days[0].a) as a"
        )

    fill(app, ["all"], until=datetime(2026, 4, 1, tzinfo=UTC).timestamp())
    Worker(app, drain=True, threads=1).work()

    snapshot = DatasetTable(every.place).find()
    assert snapshot is not None, app.broker.find(Filter()).jobs
    [row] = read_versions(spark, snapshot, ["2026-03"]).collect()
    assert (row.n, int(row.price), row.a) == (6, 6, 2)
    assert row["at"].timestamp() == datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()
    assert "canary" not in "".join(plans)
    app.close()


def write_and_wait(place: str) -> None:
    """Write the files of a version, and be killed before the commit."""
    write_frame(frame(v=[7]), DatasetTable(place).folder, "a", "1-killed.0")
    print("written", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    write_and_wait(sys.argv[1])
