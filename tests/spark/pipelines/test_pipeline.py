"""penstock pipeline, as a person types it, on the session that runs already."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.cli.root import root
from penstock.job import failed, succeeded
from penstock.spark.pipelines.lake.lake import Lake
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, claim, some_jobs


class Pipeline:
    """Runs the command on a store and a lake of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.lake = Lake(folder / "lake")
        self._url = url

    def __call__(self, step: str, *words: str, code: int = 0) -> Any:
        given = ["pipeline", step, "--lake", str(self.lake.folder), "--url", self._url, *words]
        result = CliRunner().invoke(root, given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    def json(self, step: str, *words: str, code: int = 0) -> Any:
        return json.loads(self(step, *words, "--json", code=code).stdout)


@pytest.fixture
def store(sqlite_url: str) -> Iterator[Broker]:
    broker = open_broker(sqlite_url)
    yield broker
    broker.close()


@pytest.fixture
def pipeline(
    shared_spark: Any, tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> Pipeline:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_PROFILE", raising=False)
    return Pipeline(tmp_path, sqlite_url)


def ten_jobs(store: Broker) -> None:
    """Ten that ended, three of them badly."""
    store.enqueue(some_jobs(Clock(store.clock.now()), 10))
    now = store.clock.now()
    store.settle(
        [
            (job, begun(failed("Boom: 7") if number < 3 else succeeded(), now))
            for number, job in enumerate(claim(store, 10))
        ]
    )


def test_history_becomes_a_lake_reports_and_a_page(pipeline, store):
    ten_jobs(store)
    store.enqueue(some_jobs(Clock(store.clock.now()), 2))

    ran = pipeline.json("run")
    assert ran["taken"]["attempts"] == ran["rows"]["attempts"] == 10
    assert ran["days"]["minutes"] >= 1
    assert pipeline.json("run")["taken"]["attempts"] == 0

    said = pipeline("report").stdout
    assert "from the store" in said
    assert "What fails, and why?" in said
    assert "Boom: #" in said
    assert "What was open at the end?" in said
    assert "from the store" in (pipeline.folder / "penstock-report.html").read_text()

    store.prune(store.clock.now() + 1)
    large = pipeline.json("report", "--page", "other.html")
    assert large["source"] == "lake"
    assert (large["total"]["jobs"], large["total"]["failed"]) == (10, 3)
    assert sum(row["ready"] for row in large["open_jobs"]) == 2  # as of the last run
    assert "from the lake" in (pipeline.folder / "other.html").read_text()


@pytest.mark.soak
def test_small_files_become_large_ones(pipeline, store):
    for _ in range(2):
        ten_jobs(store)
        pipeline("run")

    assert "files fewer" in pipeline("compact").stdout
    assert pipeline.json("compact")["fewer"] == 0


def test_a_replay_is_told_before_it_is_done_and_done_once(pipeline, store):
    ten_jobs(store)
    pipeline("run")
    where = ("--where", "task = 'mail:send' and state = 'failed' and day >= '2026-01-01'")

    assert pipeline.json("replay", *where, "--dry-run")["enqueued"] == 3
    assert sum(count.ready for count in store.count()) == 0
    assert "3 of 3 jobs are enqueued again as 'replay'" in pipeline("replay", *where).stdout
    assert pipeline.json("replay", *where)["known"] == 3
    assert sum(count.ready for count in store.count()) == 3


def test_what_cannot_be_is_one_sentence(pipeline, store):
    """An empty history is a report; a lake that is not there, or a condition, is refused."""
    assert pipeline.json("report")["first_at"] is None
    for words, sentence in (
        (("report", "--from", "lake"), "there is no lake in"),
        (("compact",), "there is no lake in"),
        (("replay",), "replay needs --where"),
        (("run", "--where", "true"), "replay needs --where"),
        (("report", "--page", "nowhere/page.html"), "nowhere/page.html: there is no such folder"),
    ):
        assert sentence in pipeline(*words, code=2).stderr
    ten_jobs(store)
    pipeline("run")
    assert "is no valid condition" in pipeline("replay", "--where", "x = 1", code=2).stderr
