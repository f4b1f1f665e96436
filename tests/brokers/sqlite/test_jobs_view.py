"""The views penstock_jobs, penstock_attempts and penstock_detached of a file."""

from __future__ import annotations

import json
import sqlite3

import pytest

from penstock import App
from penstock.broker.filter import Filter
from tests.jobs_in_sql import SEEN, a_store_of_jobs


@pytest.fixture
def app(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield app
    app.close()


@pytest.fixture
def raw(app, tmp_path):
    assert app.broker.count() == []
    with sqlite3.connect(tmp_path / "jobs.db") as raw:
        raw.row_factory = sqlite3.Row
        yield raw
    raw.close()


def test_every_job_is_there_as_the_store_shows_it(app, raw):
    stored = a_store_of_jobs(app)

    rows = {row["id"]: row for row in raw.execute("select * from penstock_jobs")}

    assert rows.keys() == stored.keys() == {job.id for job in app.broker.find(Filter()).jobs}
    for id, job in stored.items():
        row = rows[id]
        assert {name: row[name] for name in SEEN} == {name: getattr(job, name) for name in SEEN}
        assert json.loads(row["tags"] or "{}") == dict(job.tags)
        assert json.loads(row["arguments"]) == {
            **json.loads(job.body)["args"],
            "card": "***",
        }
    ended = next(row for row in rows.values() if row["state"] == "succeeded")
    assert (ended["result"], ended["ended_at"][-1]) == ("7", "Z")


def test_a_damaged_body_hides_no_other_job(app, raw):
    stored = a_store_of_jobs(app)
    raw.execute("update penstock_job set body = x'ff7b', tags = '{' where key = 'ada'")

    rows = raw.execute("select id, arguments from penstock_jobs").fetchall()

    assert len(rows) == len(stored)
    assert sum(row["arguments"] is None for row in rows) == 1


def test_attempts_and_detached_jobs(app, raw):
    @app.task(name="days", detached=True)
    def days() -> None: ...

    handle = days.enqueue()
    a_store_of_jobs(app)

    attempts = raw.execute("select id, attempt, state, error from penstock_attempts").fetchall()
    assert [tuple(row)[1:] for row in attempts] == [(1, "succeeded", None), (1, "failed", "bad")]
    assert [row["id"] for row in raw.execute("select id from penstock_detached")] == [handle.id]
