"""Frame in, frame out: each row is called once, and what became of it comes back with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions

import penstock.spark
from penstock import App, Refused, ResultGone
from penstock.app.locate import load_app
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind
from penstock.spark import apply_frame, row_id
from tests.spark.conftest import whatever_the_store
from tests.spark.frames import jobs_in

TASKS = Path(__file__).with_name("apply_tasks.py")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a line for each call."""
    path = tmp_path / "calls.txt"
    path.touch()
    monkeypatch.setenv("LAB_CALLS", str(path))
    return path


@pytest.fixture
def app(store_url: str, calls: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("PENSTOCK_URL", store_url)
    app = load_app(f"{TASKS}:app")
    yield app
    app.close()


@pytest.fixture
def worker(app: App) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock", "worker", f"{TASKS}:app", "--processes", "1"]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env={**os.environ, **path}) as process:
        yield process
        process.terminate()


def frame_of(spark: Any, *texts: str) -> Any:
    rows = [(*pair, "kept", "too") for pair in enumerate(texts)]
    return spark.createDataFrame(rows, "id int, text string, state string, `the.json` string")


def test_each_row_comes_back_with_its_result(
    spark: Any, app: App, worker: Any, calls: Path, tmp_path: Path
):
    """Issue 5: typed result columns; rows that are done are not called again, whoever asks."""
    task = app.tasks["lab:score"]
    rows = frame_of(spark, "a b", "bad", "c")

    scored = penstock.spark.apply(rows, task, id="id", name="june", into=str(tmp_path / "scored"))
    again = penstock.spark.apply(
        frame_of(spark, "a b", "bad", "c", "d e f"), task, id="id", name="june"
    )

    found = {row.id: row for row in scored.collect()}
    assert scored.columns == ["id", "text", "state", "the.json", "result", "error", "attempt"]
    assert (found[0].result.points, found[0].result.words) == (0.0, ["a", "b"])
    assert (found[1].result, found[1].attempt, found[1].state) == (None, 1, "kept")
    assert found[1]["the.json"] == "too"
    assert "bad text" in found[1].error
    assert {row.id: row.result and row.result.points for row in again.collect()} == {
        0: 0.0,
        1: None,
        2: 1.0,
        3: 1.5,
    }
    assert sorted(calls.read_text().split()) == ["0", "1", "2", "3"]


def points_of(frame: Any) -> dict[int, Any]:
    return {row.id: row.result and (row.result.points, row.result.words) for row in frame.collect()}


# REQUIREMENTS S14
@whatever_the_store
def test_a_result_never_stands_beside_other_arguments(
    spark: Any, app: App, worker: Any, calls: Path
):
    """S13: yesterday's result beside today's text was what one got."""
    task = app.tasks["lab:score"]
    yesterday, today = frame_of(spark, "a", "b"), frame_of(spark, "a", "b today")
    penstock.spark.apply(yesterday, task, id="id", name="june")

    with pytest.raises(Refused) as refused:
        penstock.spark.apply(today, task, id="id", name="june")
    kept = penstock.spark.apply(today, task, id="id", name="june", on_change="keep")
    called = calls.read_text().split()
    again = [
        penstock.spark.apply(today, task, id="id", name="june", **options)
        for options in ({"on_change": "again"}, {"on_change": "again"}, {})
    ]
    before = penstock.spark.apply(yesterday, task, id="id", name="june")
    other = penstock.spark.apply(today, task, id="id", name="july")

    assert str(refused.value) == (
        "row 0 of partition 1: id=1 was enqueued with other arguments: write"
        ' on_change="again" to run such rows again, "keep" to leave them as they are, or give the'
        ' write another name. The row: {"id":1,"text":"b today"}. Filter such rows out, or collect'
        ' them with .option("rejects", path)'
    )
    assert sorted(called) == ["0", "1"]
    assert points_of(kept) == points_of(before) == {0: (0.0, ["a"]), 1: (0.5, ["b"])}
    for frame in (*again, other):
        assert points_of(frame) == {0: (0.0, ["a"]), 1: (0.5, ["b", "today"])}
    assert sorted(calls.read_text().split()) == ["0", "0", "1", "1", "1"]


@whatever_the_store
def test_another_version_of_the_task_calls_nothing_again_unasked(
    spark: Any, app: App, worker: Any, calls: Path
):
    """S13: a deploy in mid-run; the version is compared, and not part of the id."""
    task = app.tasks["lab:score"]
    penstock.spark.apply(frame_of(spark, "a"), task, id="id", name="june")
    newer = App(app.resolved_url.url).task(name="lab:score", version=2)(task.function)

    with pytest.raises(Refused, match="version 1 of the task, which has version 2 now"):
        penstock.spark.apply(frame_of(spark, "a"), newer, id="id", name="june")
    kept = penstock.spark.apply(frame_of(spark, "a"), newer, id="id", name="june", on_change="keep")

    assert points_of(kept) == {0: (0.0, ["a"])}
    assert calls.read_text().split() == ["0"]
    newer.app.close()


def test_a_frame_that_is_another_each_time_is_refused(
    shared_spark: Any, app: App, sqlite_url: str, worker: Any
):
    task = app.tasks["lab:score"]
    spark = penstock.spark.attach(shared_spark, url=app.resolved_url.url)
    frame = spark.sql("select 1 as id")
    chance = functions.udf(lambda _: __import__("uuid").uuid4().hex, "string", useArrow=False)
    frame = frame.withColumn("text", chance.asNondeterministic()("id"))

    with pytest.raises(Refused, match=r"row id=1 has other arguments each time .* persist\(\)"):
        penstock.spark.apply(frame, task, id="id", name="june")


def test_a_rate_is_a_limit_that_ends_with_it(spark: Any, app: App, worker: Any, store_url: str):
    task = app.tasks["lab:score"]

    penstock.spark.apply(frame_of(spark, "a", "b"), task, id="id", name="june", rate="100/s")

    assert [rule for rule in app.broker.records(Rule) if rule.kind is RuleKind.LIMIT] == []
    assert {job.state for job in jobs_in(store_url)} == {State.SUCCEEDED}
    app.limit(task=task, rate="5/s", reason="the partner asked for it")
    with pytest.raises(Refused, match="already has a limit"):
        penstock.spark.apply(frame_of(spark, "c"), task, id="id", name="june", rate="100/s")


def test_what_cannot_be_applied_is_refused(shared_spark: Any, app: App, sqlite_url: str):
    task = app.tasks["lab:score"]
    spark = penstock.spark.attach(shared_spark, url=app.resolved_url.url)
    rows = frame_of(spark, "a")

    with pytest.raises(Refused, match="name is empty"):
        penstock.spark.apply(rows, task, id="id", name=" ")
    with pytest.raises(Refused, match="on_change='ignore': one of refuse, again, keep"):
        penstock.spark.apply(rows, task, id="id", name="june", on_change="ignore")  # pyright: ignore[reportArgumentType]  on purpose
    with pytest.raises(Refused, match="no such column"):
        penstock.spark.apply(rows, task, id="key", name="june")
    with pytest.raises(Refused, match="its results would be gone"):
        penstock.spark.apply(rows, app.tasks["lab:forget"], id="id", name="june")
    for name in ("error", "Result"):
        with pytest.raises(Refused, match="rename that of the frame"):
            penstock.spark.apply(rows.withColumnRenamed("state", name), task, id="id", name="june")
    with pytest.raises(Refused, match=r"decorated with @app\.task"):
        penstock.spark.apply(rows, task.function, id="id", name="june")  # pyright: ignore[reportArgumentType]  on purpose
    penstock.spark.attach(shared_spark, url="sqlite:////elsewhere/jobs.db")
    with pytest.raises(Refused, match="the session's sqlite:////elsewhere"):
        penstock.spark.apply(rows, task, id="id", name="june")


def test_an_answer_is_not_written_over_anything_else(
    shared_spark: Any, app: App, sqlite_url: str, tmp_path: Path
):
    """A lake above all: into="lake" instead of "lake/scored" would have been the end of it."""
    task = app.tasks["lab:score"]
    spark = penstock.spark.attach(shared_spark, url=app.resolved_url.url)
    rows = frame_of(spark, "a")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "manifest.json").write_text("{}")
    kept = tmp_path / "rows"
    rows.write.parquet(str(kept))

    with pytest.raises(Refused, match=r"holds manifest.json, and all of it would be overwritten"):
        penstock.spark.apply(rows, task, id="id", name="june", into=str(tmp_path / "lake"))
    with pytest.raises(Refused, match="is a file"):
        penstock.spark.apply(
            rows, task, id="id", name="june", into=str(tmp_path / "lake" / "manifest.json")
        )
    with pytest.raises(Refused, match="is what the frame is read from"):
        penstock.spark.apply(
            spark.read.parquet(str(kept)), task, id="id", name="june", into=str(kept)
        )
    assert jobs_in(app.resolved_url.url) == []


def test_a_row_whose_job_was_deleted_is_named(
    spark: Any, app: App, worker: Any, monkeypatch: pytest.MonkeyPatch
):
    """It ends with a sentence, and does not wait for what will never come, nor for other jobs."""
    task = app.tasks["lab:score"]
    penstock.spark.apply(frame_of(spark, "a"), task, id="id", name="june")
    app.broker.act("delete", [row_id(task.name, 0, name="june")])
    task.options(delay=3600).enqueue(id=1, text="of somebody else, for later")
    monkeypatch.setattr(apply_frame, "_ROWS_SECONDS", 0.0)

    with pytest.raises(ResultGone, match="no longer has the job of row id=0"):
        penstock.spark.apply(frame_of(spark, "a"), task, id="id", name="june")
