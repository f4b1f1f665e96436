"""Lineage: events of runs by OpenLineage's words; no run waits or fails for who receives them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock import App, State
from penstock.spark import lineage_of
from penstock.spark.datasets.run import fill
from penstock.spark.lineage import (
    MOST_WAITING,
    SWITCH,
    LineageSender,
    Table,
    export_lineage,
    lineage_sender,
    name_of,
)
from penstock.testing import Clock
from tests.arrow_session import ArrowSession
from tests.test_datasets import DAYS, Shop

ONE_DAY = datetime(2026, 1, 2, tzinfo=UTC).timestamp()


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "lineage.jsonl"
    monkeypatch.setenv(SWITCH, f"file://{file}")
    return file


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Any]:
    shop = Shop(tmp_path)
    with shop.app.testing(clock=Clock(datetime(2026, 2, 1, tzinfo=UTC).timestamp())) as t:
        yield shop, t


def told(shop: Shop, file: Path) -> list[dict[str, Any]]:
    shop.app.resources.close()
    return read(file)


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


# REQUIREMENTS S32
def test_a_dataset_tells_what_it_was_made_of_and_what_it_wrote(shop, file):
    shop, t = shop
    fill(shop.app, ["busy"], until=ONE_DAY)
    t.drain()

    events = told(shop, file)

    assert [(each["job"]["name"], each["eventType"]) for each in events] == [
        ("rides", "START"),
        ("rides", "COMPLETE"),
        ("busy", "START"),
        ("busy", "COMPLETE"),
    ]
    rides, busy = events[1], events[3]
    [output] = rides["outputs"]
    version = shop.version(shop.rides, DAYS[0])
    assert (output["namespace"], output["name"]) == ("file", str(shop.rides.place))
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert output["facets"]["version"]["datasetVersion"] == version.run
    [assertion] = output["facets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["assertion"], assertion["success"]) == ("no_zeros", True)
    [source] = busy["inputs"]
    assert source["name"] == str(shop.rides.place)
    assert source["facets"]["version"]["datasetVersion"] == version.run
    assert rides["run"]["facets"]["nominalTime"]["nominalStartTime"].startswith("2026-01-01T00:00")
    assert len({each["run"]["runId"] for each in events}) == 2


def test_a_run_that_fails_tells_its_class_and_no_word_of_its_message(shop, file):
    shop, t = shop

    def secret() -> Any:
        raise ValueError("the password is hunter2")

    shop.rows = secret
    fill(shop.app, ["rides"], until=ONE_DAY)
    [ran] = t.drain()

    start, fail = told(shop, file)

    assert ran.state is State.FAILED
    assert (start["eventType"], fail["eventType"]) == ("START", "FAIL")
    assert fail["run"]["facets"]["errorMessage"]["message"] == "ValueError"
    assert "hunter2" not in file.read_text("utf-8")


def test_a_job_that_is_put_back_has_an_end_too(shop, file):
    shop, t = shop
    fill(shop.app, ["rides"], until=ONE_DAY)
    shop.rides.task.options(priority=10).enqueue(DAYS[0])  # lets the first go before it

    t.drain(1)

    assert [each["eventType"] for each in told(shop, file)] == ["START", "ABORT"]


def test_a_spark_task_tells_the_tables_that_it_names(tmp_path, file):
    app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="conflate", spark=ArrowSession)
    def conflate(spark: Any, password: str) -> None:
        lineage_of(reads=["s3://ada:key@raw/probes"], writes=[tmp_path / "conflated"])

    with app.testing() as t:
        conflate.enqueue("hunter2")
        t.drain()
        app.resources.close()

    start, complete = read(file)
    assert (start["inputs"], complete["eventType"]) == ([], "COMPLETE")
    [read_, written] = [*complete["inputs"], *complete["outputs"]]
    assert (read_["namespace"], read_["name"]) == ("s3://raw", "probes")
    assert written["name"] == str(tmp_path / "conflated")
    assert not any(word in file.read_text("utf-8") for word in ("hunter2", "key@"))
    app.close()


def test_an_export_tells_the_store_without_its_password(file):
    with export_lineage("postgresql://ada:hunter2@db:5432/shop?x=1", "/lake", ["events"]) as run:
        run.outputs = [Table("/lake/events", rows=3)]

    start, complete = read(file)
    [read_] = start["inputs"]
    assert (read_["namespace"], read_["name"]) == ("postgresql://db:5432", "shop/events")
    assert complete["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert "hunter2" not in file.read_text("utf-8")


def test_off_by_default_nothing_is_sent_and_nothing_is_needed(shop, tmp_path, monkeypatch):
    monkeypatch.delenv(SWITCH, raising=False)
    shop, t = shop
    fill(shop.app, ["rides"], until=ONE_DAY)

    t.drain()
    lineage_of(reads=["nowhere"])

    assert shop.app.resources.open(lineage_sender) is None


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("http://ada:hunter2@127.0.0.1:1", "lineage is not told: http://ada:***@127.0.0.1:1"),
        ("ftp://ada:hunter2@host", "'ftp://ada:***@host': file:///var/log/lineage.jsonl, https"),
        ("file:///nowhere/at/all/lineage.jsonl", "lineage is not told: file:///nowhere"),
    ],
)
def test_a_receiver_that_is_away_or_wrong_fails_no_run_and_is_said_once(
    shop, monkeypatch, caplog, target, says
):
    shop, t = shop
    monkeypatch.setenv(SWITCH, target)
    fill(shop.app, ["rides"], until=ONE_DAY)

    with caplog.at_level(logging.WARNING, "penstock.lineage"):
        [ran] = t.drain()
        shop.app.resources.close()

    assert ran.state is State.SUCCEEDED
    said = [row.getMessage() for row in caplog.records if row.name == "penstock.lineage"]
    assert len(said) == 1
    assert says in said[0]
    assert "hunter2" not in said[0]


def test_a_receiver_that_does_not_answer_holds_up_nobody(caplog):
    answered = threading.Event()
    sender = LineageSender("https://slow", emit=lambda _: answered.wait(60))

    for n in range(MOST_WAITING + 10):
        sender.send(n)
    sender.close(0)
    answered.set()
    sender.close()

    assert caplog.text.count("too many wait") == 1


def test_events_go_over_http_with_the_key(shop, monkeypatch):
    shop, t = shop
    posted: list[tuple[str, str | None, dict[str, Any]]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            posted.append((self.path, self.headers["authorization"], json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv(SWITCH, f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "open sesame")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fill(shop.app, ["rides"], until=ONE_DAY)
    t.drain()
    shop.app.resources.close()
    server.shutdown()
    server.server_close()

    assert [(path, key) for path, key, _ in posted] == [
        ("/api/v1/lineage", "Bearer open sesame")
    ] * 2
    assert [event["eventType"] for _, _, event in posted] == ["START", "COMPLETE"]


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("/lake/rides", ("file", "/lake/rides")),
        ("file:///lake/rides", ("file", "/lake/rides")),
        ("s3://bucket/lake/rides/", ("s3://bucket", "lake/rides")),
        (
            "abfss://box@account.dfs.core.windows.net/x",
            ("abfss://box@account.dfs.core.windows.net", "x"),
        ),
    ],
)
def test_tables_are_named_by_where_they_are(place, name):
    assert name_of(Table(place)) == name
