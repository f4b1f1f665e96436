"""The SQL files among the examples, on a real store: each statement answers what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from penstock import App, Retry
from penstock.job import succeeded
from penstock.testing.conformance.factories import claim, some_jobs
from penstock.worker import Worker

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shop(postgres_store_url) -> Iterator[App]:
    """A store with jobs in every place: packed, scheduled, running, failed, succeeded."""
    app = App(postgres_store_url)

    @app.task(name="shop:resize", queue="images")
    def resize(image: int) -> int:
        return image

    @app.task(name="shop:charge", queue="money", retry=Retry(limit=0))
    def charge(order: int) -> None:
        raise ValueError(f"card of {order} was refused")

    resize.enqueue_many([(image,) for image in range(10)])
    charge.enqueue(7)
    Worker(app, drain=True).work()
    resize.enqueue_many([(image,) for image in range(5)])
    resize.options(delay=3600).enqueue(99)
    yield app
    app.close()


def answers(url: str) -> dict[str, list[dict[str, Any]]]:
    """What every question of the file answers, by its name."""
    text = (EXAMPLES / "monitoring.sql").read_text(encoding="utf-8")
    found: dict[str, list[dict[str, Any]]] = {}
    with psycopg.connect(url, row_factory=dict_row) as connection:
        connection.read_only = True
        for part in text.split("\n\n-- ")[1:]:
            name, _, statement = part.partition(":")
            _, _, statement = statement.partition("\nselect")
            found[name] = connection.execute(f"select{statement}".encode()).fetchall()
    return found


def test_each_question_is_answered(shop, postgres_store_url):
    [running, *_] = claim(shop.broker, 3, tasks={"shop:resize": 1})

    found = answers(postgres_store_url)

    assert found["backlog"] == [
        {"queue": "images", "task": "shop:resize", "state": "ready", "jobs": 2},
        {"queue": "images", "task": "shop:resize", "state": "running", "jobs": 3},
        {"queue": "images", "task": "shop:resize", "state": "scheduled", "jobs": 1},
        {"queue": "money", "task": "shop:charge", "state": "failed", "jobs": 1},
    ]
    [oldest] = found["oldest"]
    assert oldest["queue"] == "images"
    assert 0 <= oldest["waited"] < 60
    rates = {row["task"]: row for row in found["rates"]}
    assert rates["shop:resize"]["succeeded"] == 10
    assert rates["shop:charge"]["failed"] == 1
    assert 0 <= rates["shop:resize"]["ran_p95"] < 60
    [failure] = found["failures"]
    assert failure["says"].endswith("ValueError: card of 7 was refused")
    assert (failure["reason"], failure["jobs"]) == ("error", 1)
    assert running.worker in {row["id"] for row in found["workers"]}
    assert [(row["worker"], row["jobs"]) for row in found["held"]] == [(running.worker, 3)]
    assert {"parcel", "lease", "job"} <= {row["name"] for row in found["room"]}


def test_a_restored_history_is_read_in_its_old_order(postgres_broker, postgres_store_url, clock):
    postgres_broker.enqueue(some_jobs(clock, 5))
    postgres_broker.settle([(job, succeeded()) for job in claim(postgres_broker, 5)])
    before = [event.job for event in postgres_broker.history()]
    renumber = (EXAMPLES / "renumber_history.sql").read_text(encoding="utf-8")
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        connection.execute("update penstock.history set position = position + (1::bigint << 60)")
        assert postgres_broker.history() == []

        connection.execute(renumber.encode())

    assert [event.job for event in postgres_broker.history()] == before
    postgres_broker.enqueue(some_jobs(clock, 1))
    postgres_broker.settle([(job, succeeded()) for job in claim(postgres_broker, 1)])
    assert len(postgres_broker.history()) == 6


def test_every_file_is_run_by_a_test():
    assert {path.name for path in EXAMPLES.glob("*.sql")} == {
        "monitoring.sql",
        "renumber_history.sql",
    }
