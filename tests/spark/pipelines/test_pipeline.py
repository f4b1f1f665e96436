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
from penstock.operate.audit import AuditQuery, read_audit
from penstock.operate.audit_text import audit_sentence
from penstock.spark.pipelines.lake.lake import Lake
from penstock.spark.pipelines.report.queries import ReportData
from penstock.spark.pipelines.report.sections import sections
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import begun, claim, some_jobs
from tests.spark.pipelines.history import an_attempt, at, put_rows
from tests.spark.pipelines.test_report import Checked


class Pipeline:
    """Runs the command on a store and a lake of its own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.lake = folder / "lake"
        self._url = url

    def __call__(self, step: str, *words: str, code: int = 0) -> Any:
        given = ["pipeline", step, "--lake", str(self.lake), "--url", self._url, *words]
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
    now = ("--since", "1h", "--until", "2999-01-01", "--queue", "default")
    assert pipeline.json("report", *now, "--task", "mail:send")["total"]["jobs"] == 10
    assert pipeline.json("report", "--until", "2026-01-01")["total"]["jobs"] == 0
    assert pipeline.json("report", "--task", "other")["first_at"] is None


def test_a_report_starts_no_spark(pipeline, store, monkeypatch):
    ten_jobs(store)
    monkeypatch.setattr(
        "penstock.cli.lake_command.LakeCommand._spark", lambda _: pytest.fail("Spark")
    )

    assert pipeline.json("report", "--from", "store")["total"]["jobs"] == 10
    put_rows(Lake(pipeline.lake), "attempts", an_attempt(1))
    assert pipeline.json("report", "--from", "lake")["source"] == "lake"


def test_small_files_become_large_ones_and_old_days_go(pipeline):
    """No Spark session: Delta's library does it."""
    lake = Lake(pipeline.lake)
    put_rows(lake, "attempts", an_attempt(1, ended_at=at(-9000 * 86400)), an_attempt(2))
    put_rows(lake, "attempts", an_attempt(3))

    assert "1 files fewer" in pipeline("compact").stdout
    assert pipeline.json("compact")["fewer"] == 0
    assert "1 rows of attempts were older" in pipeline("compact", "--keep", "9000d").stdout
    assert sum(lake.table("attempts").rows_by_day().values()) == 2


def test_rows_are_forgotten_after_a_dry_run_that_says_what_is_lost(pipeline, store):
    """Who did it is in the audit; whose rows they were is not, or the next run took it again."""
    lake = Lake(pipeline.lake)
    put_rows(lake, "attempts", an_attempt(1, key="ada"), an_attempt(2, tags={"who": "ada"}))
    said = pipeline("forget-rows", "--key", "ada", "--dry-run")
    assert "1 attempts, 0 events would be deleted, from 1 files" in said.stdout
    assert "Time travel ends: 1 earlier versions" in said.stderr.replace("\n", " ")
    assert sum(lake.table("attempts").rows_by_day().values()) == 2
    assert store.history() == []

    done = pipeline("forget-rows", "--key", "ada", "--reason", "she asked").stdout
    assert "1 attempts, 0 events are deleted" in done
    assert pipeline.json("forget-rows", "--tag", "who=ada")["rows"]["attempts"] == 1

    assert lake.table("attempts").rows_by_day() == {}
    first, second = read_audit(store, AuditQuery()).entries
    assert {first.reason, second.reason} == {"", "she asked"}
    sentence = audit_sentence(first)
    assert (sentence.did, sentence.more) == ("deleted rows of", "(1 rows)")
    assert not [row for row in store.history() if "ada" in str(row)]


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
    said = " ".join(Checked((pipeline.folder / "penstock-report.html").read_text()).texts)
    assert "No attempt has ended in this time; from the store" in said
    assert said.count("No rows in this history.") == len(sections(ReportData()))
    for words, sentence in (
        (("report", "--from", "lake"), "there is no lake in"),
        (("compact",), "there is no lake in"),
        (("replay",), "replay needs --where"),
        (("run", "--where", "true"), "replay needs --where"),
        (("run", "--since", "7d"), "--since belongs to pipeline report"),
        (("report", "--since", "soon"), "soon"),
        (("report", "--page", "nowhere/page.html"), "nowhere/page.html: there is no such folder"),
    ):
        assert sentence in pipeline(*words, code=2).stderr
    ten_jobs(store)
    pipeline("run")
    assert "is no valid condition" in pipeline("replay", "--where", "x = 1", code=2).stderr
