"""Datasets: a partition is made once, in order of need, whatever is killed or asked twice."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import App, Expect, Interval, Refused, Source, State
from penstock.rules.rule import Rule
from penstock.spark.datasets.frames import CheckFailed, read_versions
from penstock.spark.datasets.pipeline import Pipeline
from penstock.spark.datasets.run import fill
from penstock.spark.datasets.table import DatasetTable, write_file
from penstock.spark.pipelines.lake.lake import CommitConflict
from penstock.task.dataset import AskedPartitions
from penstock.task.dataset_plan import Made
from penstock.testing import Clock
from tests.arrow_session import ArrowSession, arrow, frame

UNTIL = datetime(2026, 1, 4, tzinfo=UTC).timestamp()
DAYS = ["2026-01-01", "2026-01-02", "2026-01-03"]


class Shop:
    """Days of rides, made of files that are counted; and days and a month made of them."""

    def __init__(self, folder: Path) -> None:
        self.app = app = App(f"sqlite:///{folder}/jobs.db")
        self.folder = folder
        self.calls: list[tuple[str, str]] = []
        self.files = "v1"  # of the source
        self.rows: Any = None  # what rides are, unless the source says it
        common: dict[str, Any] = {"spark": ArrowSession, "zone": "UTC"}

        def probes(spark: Any, interval: Interval) -> Any:
            return frame(v=[interval.start.day, 100])

        @app.dataset(
            name="rides",
            partition="day",
            table=folder / "rides",
            start=date(2026, 1, 1),
            inputs=[Source(probes, version=lambda _: self.files)],
            freshness=timedelta(hours=6),
            check=[self.no_zeros],
            **common,
        )
        def rides(spark: Any, interval: Interval, found: Any) -> Any:
            self.calls.append(("rides", interval.text))
            return found if self.rows is None else self.rows()

        @app.dataset(
            name="busy", partition="day", table=folder / "busy", inputs=[rides.past(2)], **common
        )
        def busy(spark: Any, day: date, found: Any) -> Any:
            self.calls.append(("busy", day.isoformat()))
            return frame(rides=[found.count()])

        self.rides, self.busy = rides, busy

    def no_zeros(self, found: Any) -> int:
        return sum(row["v"] == 0 for row in found.rows())

    def version(self, dataset: Any, text: str) -> Any:
        return DatasetTable(dataset.place).versions().get(text)

    def values(self, dataset: Any, text: str) -> list[Any]:
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        return read_versions(ArrowSession(), snapshot, [text]).rows()

    def states(self, name: str) -> dict[str, str]:
        pipeline = Pipeline(self.app)
        plans = pipeline.plan(pipeline.asked_partitions(AskedPartitions((name,), None, UNTIL)))
        return {
            each.plan.partition: each.state
            for each in pipeline.standings(plans)
            if each.plan.dataset == name
        }


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def t(shop: Shop) -> Any:
    with shop.app.testing(clock=Clock(datetime(2026, 2, 1, tzinfo=UTC).timestamp())) as t:
        yield t


def test_one_call_makes_what_is_missing_in_order_of_need(shop, t):
    filled = fill(shop.app, ["busy"], until=UNTIL)

    assert (filled.enqueued, filled.waiting) == ({"rides": 3}, 3)
    ran = t.drain()
    assert Counter(shop.calls) == Counter(
        [(name, day) for name in ("rides", "busy") for day in DAYS]
    )
    assert shop.calls.index(("busy", DAYS[2])) > shop.calls.index(("rides", DAYS[1]))
    assert {each.state for each in ran} == {State.SUCCEEDED}
    assert [shop.values(shop.busy, day)[0]["rides"] for day in DAYS] == [2, 4, 4]
    assert shop.version(shop.rides, DAYS[0]).rows == 2


# REQUIREMENTS S13
def test_asked_twice_there_is_nothing_new_neither_before_nor_after(shop, t):
    fill(shop.app, ["busy"], until=UNTIL)
    again = fill(shop.app, ["busy"], until=UNTIL)
    assert (again.enqueued, again.open) == ({}, 3)
    t.drain()

    after = fill(shop.app, ["busy"], until=UNTIL)

    assert (after.enqueued, after.open, after.waiting) == ({}, 0, 0)
    assert t.drain() == []


def test_whoever_asks_for_more_gets_it_from_jobs_that_were_there(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    fill(shop.app, ["busy"], until=UNTIL)

    t.drain()
    t.clock.advance(seconds=10)  # the second one lets the first go before it
    t.drain()

    assert shop.states("busy") == dict.fromkeys(DAYS, "current")
    assert Counter(shop.calls).most_common(1)[0][1] == 1


@pytest.mark.parametrize("point", ["run", "settle"])
def test_a_worker_killed_before_or_after_the_commit_leaves_one_version(shop, t, point):
    fill(shop.app, ["busy"], until=UNTIL)

    with t.crash_at(point, "rides"), t.crash_at(point, "busy"):
        t.drain()

    assert shop.states("busy") == dict.fromkeys(DAYS, "current")
    assert len(shop.calls) == 6  # killed after the commit, nothing is made again
    for dataset in (shop.rides, shop.busy):
        snapshot = DatasetTable(dataset.place).find()
        assert snapshot is not None
        assert snapshot.number == 3  # commits after the table was made: one for each day


def test_a_job_that_runs_twice_finds_its_own_version(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)

    ran = t.drain(twice=True, state=lambda: list(shop.calls))

    assert [each.difference for each in ran] == [None] * 6
    assert len(shop.calls) == 3


def test_of_two_at_the_same_time_the_second_finds_the_version_of_the_first(shop, t):
    first = fill(shop.app, ["rides"], until=UNTIL)
    assert first.enqueued == {"rides": 3}

    def while_it_is_made() -> Any:
        shop.rows = None
        shop.rides.task.enqueue(DAYS[0])  # by hand, beside the one that is named after the version
        made_meanwhile(shop, DAYS[0])
        return frame(v=[7])

    shop.rows = while_it_is_made
    ran = t.drain(1)[0]

    result = shop.rides.task.results.decode(ran.outcome.result)
    assert (result.found, result.job) == (True, "somebody else")
    assert shop.values(shop.rides, DAYS[0]) == [{"v": 1}]
    t.clock.advance(seconds=10)
    t.drain()
    assert [call for call in shop.calls if call[1] == DAYS[0]] == [("rides", DAYS[0])]
    # What was written and is no part of the table is gone.
    written = {path.name for path in (shop.rides.place / DAYS[0]).iterdir()}
    assert len(written) == 1


def test_a_job_by_hand_lets_the_one_that_is_to_make_the_version_go_first(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    shop.rides.task.options(priority=10).enqueue(DAYS[0])

    [ran] = t.drain(1)

    assert (ran.state, shop.calls) == (State.READY, [])


def made_meanwhile(shop: Shop, text: str) -> None:
    """Commit the version that the plan asks for, as another process would."""
    pipeline = Pipeline(shop.app)
    plans = pipeline.plan(pipeline.asked_partitions(AskedPartitions(("rides",), None, UNTIL)))
    commit(shop.rides.place, text, f"{plans['rides', text].base}.0", [1])


def commit(
    folder: Path, text: str, run: str, values: list[int], job: str = "somebody else"
) -> None:
    table = arrow.table({"v": values})
    into = DatasetTable(folder)
    file = write_file(into.folder, f"{text}/{run}.parquet", table.to_batches(), table.schema)
    made = Made(
        dataset="rides", partition=text, run=run, job=job, attempt=1, rows=1, bytes=1, inputs=[]
    )
    into.create(table.schema).commit(made, [file])


def test_of_two_commits_from_one_snapshot_the_second_is_refused(tmp_path):
    commit(tmp_path, "a", "1-x.0", [1])
    first, second = (DatasetTable(tmp_path).find() for _ in range(2))
    assert first is not None
    assert second is not None
    table = arrow.table({"v": [2]})
    files = first.table.folder
    file = write_file(files, "b/1-y.0.parquet", table.to_batches(), table.schema)
    made = Made(
        dataset="rides", partition="b", run="1-y.0", job="j", attempt=1, rows=1, bytes=1, inputs=[]
    )
    first.commit(made, [file])

    with pytest.raises(CommitConflict):
        second.commit(msgspec.structs.replace(made, job="k", run="1-z.0"), [file])

    after = DatasetTable(tmp_path).find()
    assert after is not None
    assert (after.committed_by("j"), after.committed_by("k")) == (True, False)
    assert after.versions()["b"].run == "1-y.0"
    found = after.made("b", job="j")
    assert found == made


def test_a_check_that_fails_commits_nothing_and_readers_keep_what_was_there(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    before = shop.version(shop.rides, DAYS[0])
    shop.files, shop.rows = "v2", lambda: frame(v=[0, 5])

    fill(shop.app, ["rides"], until=UNTIL)
    ran = t.drain()

    assert {each.state for each in ran} == {State.FAILED}
    assert f"{CheckFailed.__name__}: rides 2026-01-01 is not committed: 1 rows" in (
        ran[0].outcome.error or ""
    )
    assert shop.version(shop.rides, DAYS[0]) == before
    assert shop.values(shop.rides, DAYS[0]) == [{"v": 1}, {"v": 100}]
    assert len(list((shop.rides.place / DAYS[0]).iterdir())) == 1
    assert shop.states("rides") == dict.fromkeys(DAYS, "failed")
    data = [event.data or b"" for event in t.broker.history() if event.kind == "event"]
    checks = [msgspec.json.decode(each)["value"]["results"][0] for each in data]
    assert [each["bad"] for each in checks] == [0, 0, 0, 1, 1, 1]

    shop.rows = None
    filled = fill(shop.app, ["rides"], until=UNTIL)
    assert (filled.enqueued, filled.retried) == ({}, 3)
    t.drain()
    assert shop.states("rides") == dict.fromkeys(DAYS, "current")


def test_a_changed_source_makes_what_hangs_on_it_again_and_only_that(shop, t):
    fill(shop.app, ["busy"], until=UNTIL)
    t.drain()
    shop.calls.clear()
    fill(
        shop.app,
        ["rides"],
        since=datetime(2026, 1, 3, tzinfo=UTC).timestamp(),
        until=UNTIL,
        again=True,
    )
    t.drain()
    assert shop.calls == [("rides", DAYS[2])]

    assert shop.states("busy") == {DAYS[0]: "current", DAYS[1]: "current", DAYS[2]: "stale"}
    fill(shop.app, ["busy"], until=UNTIL)
    t.drain()
    assert shop.calls == [("rides", DAYS[2]), ("busy", DAYS[2])]


def test_a_table_that_was_lost_is_made_again(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    shop.rides.place.rename(shop.folder / "gone")

    filled = fill(shop.app, ["rides"], until=UNTIL)

    assert filled.enqueued == {"rides": 3}
    t.drain()
    assert shop.states("rides") == dict.fromkeys(DAYS, "current")


def test_a_new_column_is_added_and_another_type_is_refused(shop, t):
    shop.rows = lambda: frame(v=[1])
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    shop.files, shop.rows = "v2", lambda: frame(v=[2], city=["Paris"])
    fill(shop.app, ["rides"], until=UNTIL)
    t.drain()
    assert shop.values(shop.rides, DAYS[0]) == [{"v": 2, "city": "Paris"}]
    shop.files, shop.rows = "v3", lambda: frame(v=["two"])
    fill(shop.app, ["rides"], until=UNTIL)

    ran = t.drain()

    assert "column v is now string, and in the table" in (ran[0].outcome.error or "")
    assert shop.values(shop.rides, DAYS[0]) == [{"v": 2, "city": "Paris"}]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (lambda: None, "returned None, and no DataFrame"),
        (lambda: frame(run=[1]), "its frame has a column 'run'"),
    ],
)
def test_what_is_no_frame_of_a_table_fails_the_run(shop, t, rows, says):
    shop.rows = rows
    fill(shop.app, ["rides"], until=UNTIL)

    assert says in (t.drain(1)[0].outcome.error or "")


def test_a_partition_without_rows_is_there_all_the_same(shop, t):
    shop.rows = lambda: frame(v=arrow.array([], arrow.int64()))
    fill(shop.app, ["busy"], until=UNTIL)

    t.drain()

    assert shop.version(shop.rides, DAYS[0]).rows == 0
    assert shop.values(shop.busy, DAYS[1]) == [{"rides": 0}]


def test_no_more_run_at_a_time_than_asked_and_limits_of_others_stand(shop, t):
    fill(shop.app, ["rides"], until=UNTIL)
    assert [rule.running for rule in t.broker.records(Rule)] == [4]
    fill(shop.app, ["rides"], until=UNTIL, max_running=2)
    assert [rule.running for rule in t.broker.records(Rule)] == [2]
    shop.app.limit("datasets", running=1, author="ada")
    fill(shop.app, ["rides"], until=UNTIL)

    with pytest.raises(Refused, match="has a limit already"):
        fill(shop.app, ["rides"], until=UNTIL, max_running=2)


def test_a_schedule_makes_what_is_missing_of_all_that_is_over(shop, t):
    shop.app.schedule("0 3 * * *")(shop.busy)
    t.clock.advance(days=2)
    t.drain()
    t.clock.advance(days=1)

    t.drain()

    assert ("busy", "2026-02-03") in shop.calls
    assert len(set(shop.calls)) == len(shop.calls) == 2 * 34


def test_what_is_late_by_its_freshness_is_named(shop, t):
    pipeline = Pipeline(shop.app)
    plans = pipeline.plan(pipeline.asked_partitions(AskedPartitions(("busy",))))

    late = list(pipeline.late(pipeline.standings(plans)))

    assert late[0] == ("rides", DAYS[0])
    assert late[-1] == ("rides", "2026-01-30")  # that of yesterday has six hours from midnight on
    assert {name for name, _ in late} == {"rides"}


def test_a_plan_looks_once_at_each_table_and_in_pages_at_the_store(shop, t, monkeypatch):
    looks: Counter[str] = Counter()
    find_table, find_jobs = DatasetTable.find, t.broker.find

    def found(table: DatasetTable) -> Any:
        looks[Path(str(table)).name] += 1
        return find_table(table)

    def jobs(*given: Any) -> Any:
        looks["jobs"] += 1
        return find_jobs(*given)

    fill(shop.app, ["busy"], until=UNTIL)
    monkeypatch.setattr(DatasetTable, "find", found)
    monkeypatch.setattr(t.broker, "find", jobs)

    states = shop.states("busy")

    assert len(states) == 3
    assert looks == {"rides": 1, "busy": 1, "jobs": 1}


def test_a_run_whose_input_was_never_made_says_which(shop, t):
    shop.busy.task.enqueue("2026-01-02")

    [ran] = t.drain()

    assert "busy 2026-01-02 is made of rides 2026-01-01, which was never made" in (
        ran.outcome.error or ""
    )


def test_a_plain_call_writes_nothing_and_importing_starts_no_spark(shop):
    found = shop.busy(ArrowSession(), date(2026, 1, 1), frame(v=[1, 2]))

    assert found.rows() == [{"rides": 2}]
    assert not shop.busy.place.exists()
    assert shop.app.tasks["busy"].queue == "datasets"


def declared(folder: Path, function: Any = None, **options: Any) -> Any:
    app = App(f"sqlite:///{folder}/jobs.db")

    def rides(spark: Any, interval: Interval) -> Any: ...

    return app.dataset(**{"partition": "day", "table": "lake/rides", "name": "rides", **options})(
        function or rides
    )


@pytest.mark.parametrize("inputs", [lambda rides: [rides], lambda rides: [rides.past(7)]])
def test_without_a_zone_a_dataset_has_that_of_its_first_input(tmp_path, inputs):
    rides = declared(tmp_path, zone="Europe/Paris")

    @rides.app.dataset(partition="week", table="lake/weeks", inputs=inputs(rides))
    def weeks(spark: Any, interval: Interval, found: Any) -> Any: ...

    assert weeks.partitions.zone == "Europe/Paris"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"partition": "year"}, "partition='year'"),
        ({"zone": "Mars"}, "zone='Mars' is no time zone"),
        ({"table": ""}, "table=''"),
        ({"table": "hdfs://canary@name/rides"}, "begins with hdfs: and a table is in a folder"),
        ({"table": Path("s3://bucket/rides")}, "begins with s3: and a table is in a folder"),
        ({"table": "s3://canary:secret@bucket/x"}, "settings belong in PENSTOCK_STORAGE_OPTIONS"),
        ({"table": "s3://canary@bucket/x"}, "settings belong in PENSTOCK_STORAGE_OPTIONS"),
        ({"table": "abfss://c@a.example.org/x?sig=canary"}, "PENSTOCK_STORAGE_OPTIONS"),
        ({"table": "s3://bucket/"}, "a bucket and a path in it, as in s3://bucket/rides"),
        ({"table": "jdbc:postgresql://h/db?password=canary"}, "names a JDBC table"),
        ({"table": "lake/*"}, "as a pattern"),
        ({"inputs": "rides"}, r"write a list, inputs=\[...\]"),
        ({"inputs": [7]}, "the input 7 is no dataset"),
        ({"inputs": ["other"]}, r"takes \(spark, interval, input1\), which are 3 parameters"),
        ({"check": 7}, "check=7"),
        ({"check": Expect("v > 0", on_failure="stop")}, "on_failure='stop'"),  # pyright: ignore[reportArgumentType]
        ({"start": "soon"}, "start='soon': 'soon' names no day"),
        ({"partition": ["a"], "start": "2026-01-01"}, "its partitions are names"),
        ({"partition": ["a"], "after": ["previous"]}, "names have no order"),
    ],
)
def test_a_dataset_that_cannot_be_is_refused_where_it_is_declared(tmp_path, options, says):
    with pytest.raises(Refused, match=says) as error:
        declared(tmp_path, **options)
    assert "canary" not in str(error.value)  # a URL may have a password


def test_two_datasets_cannot_share_a_table_nor_take_that_of_others(tmp_path):
    dataset = declared(tmp_path, start="2026-01-01")
    dataset.app.dataset(partition="day", table="lake/rides", name="twin")(
        lambda spark, interval: None
    )
    with pytest.raises(Refused, match="datasets rides and twin have one table"):
        Pipeline(dataset.app)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "a.parquet").touch()
    with pytest.raises(Refused, match="needs a folder of its own"):
        DatasetTable(tmp_path / "others").find()


def test_a_relative_table_is_beside_the_project_wherever_a_process_is_started(
    tmp_path, monkeypatch
):
    dataset = declared(tmp_path)
    monkeypatch.chdir(tmp_path)

    assert dataset.place == Path(__file__).parents[1] / "lake" / "rides"


def test_threads_that_begin_a_table_together_create_it_once_and_lose_no_commit(tmp_path):
    """Each commits behind the snapshot that it saw, or looks again."""
    together = threading.Barrier(4)

    def work(folder: Path, n: int) -> None:
        together.wait()
        while True:
            try:
                commit(folder, f"p{n}", f"1-{n}.0", [n], job=f"job{n}")
                return
            except CommitConflict:
                continue

    for folder in (tmp_path / f"t{n}" for n in range(6)):
        threads = [threading.Thread(target=work, args=(folder, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        snapshot = DatasetTable(folder).find()
        assert snapshot is not None
        assert sorted(snapshot.versions()) == ["p0", "p1", "p2", "p3"]
        assert snapshot.number == 4
