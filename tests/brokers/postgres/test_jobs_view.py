"""The views penstock.jobs and penstock.attempts, and the look-ups beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row

from penstock import App
from penstock.testing.conformance.factories import a_worker, claim_for
from tests.brokers.postgres.logins import Logins
from tests.jobs_in_sql import SEEN, a_store_of_jobs

VIEWS = "penstock.jobs, penstock.attempts, penstock.detached"


@pytest.fixture
def app(postgres_url: str) -> Iterator[App]:
    app = App(postgres_url)
    yield app
    app.close()


@pytest.fixture
def raw(app: App, postgres_url: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    assert app.broker.count() == []
    with psycopg.connect(postgres_url, row_factory=dict_row, autocommit=True) as raw:
        yield raw


def test_every_job_is_there_as_the_store_shows_it(app, raw):
    stored = a_store_of_jobs(app)

    rows = {str(row["id"]): row for row in raw.execute("select * from penstock.jobs")}

    assert rows.keys() == stored.keys()
    for id, job in stored.items():
        row = rows[id]
        assert {name: row[name] for name in SEEN} == {name: getattr(job, name) for name in SEEN}
        assert (row["tags"] or {}) == dict(job.tags)
        assert row["arguments"] == {**msgspec.json.decode(job.body)["args"], "card": "***"}
        assert abs(row["enqueued_at"].timestamp() - job.enqueued_at) < 0.001
    assert [row["result"] for row in rows.values() if row["state"] == "succeeded"] == [7]
    attempts = raw.execute("select attempt, state, error from penstock.attempts").fetchall()
    assert [tuple(row.values()) for row in attempts] == [
        (1, "succeeded", None),
        (1, "failed", "bad"),
    ]


def test_each_is_looked_up_wherever_it_is(app, raw):
    stored = a_store_of_jobs(app)

    def ids(call: str, *parameters: Any) -> list[str]:
        rows = raw.execute(f"select id from penstock.{call}", parameters).fetchall()
        return [str(row["id"]) for row in rows]

    for id in stored:
        assert ids("jobs_by_id(array[%s]::uuid[])", id) == [id]
    [with_key] = [id for id, job in stored.items() if job.key == "ada"]
    assert ids("jobs_by_unique_key(%s)", "once") == [with_key]
    assert ids("jobs_by_tag(%s, %s)", "order", "7") == [with_key]
    assert ids("jobs_by_tag(%s, %s)", "order", "8") == []


def test_no_look_up_reads_a_whole_table(app, raw):
    stored = a_store_of_jobs(app)
    raw.execute("set enable_seqscan = off")  # what is left has no index to go by
    with raw.transaction():
        for id in stored:
            raw.execute("select * from penstock.jobs_by_id(array[%s]::uuid[])", (id,))
        raw.execute("select * from penstock.jobs_by_tag('order', '7')")
        raw.execute("select * from penstock.jobs_by_unique_key('once')")
        scanned = raw.execute(
            "select relname from pg_stat_xact_user_tables"
            " where seq_scan > 0 and relname in ('job', 'parcel', 'tag', 'unique_key', 'history')"
        ).fetchall()

    assert scanned == []


def test_a_damaged_body_hides_no_other_job(app, raw):
    stored = a_store_of_jobs(app)
    raw.execute("update penstock.job set body = '\\xff7b', tags = '{' where key = 'ada'")
    app.tasks["shop:pay"].enqueue(1, "a \0 b", "4111-1111")  # no jsonb, though it is JSON

    rows = raw.execute("select id, arguments from penstock.jobs").fetchall()

    assert len(rows) == len(stored) + 1
    assert sum(row["arguments"] is None for row in rows) == 2


def test_no_claim_waits_for_whoever_looks(app, raw):
    a_store_of_jobs(app)
    with raw.transaction():
        raw.execute("select count(*) from penstock.jobs, penstock.attempts")

        assert claim_for(app.broker, a_worker("w2", tasks={"shop:pay": 1}), limit=1)


def test_a_login_that_only_looks_sees_no_secret(app, raw, logins: Logins):
    stored = a_store_of_jobs(app)
    name = logins.login()
    for grant in (
        f"usage on schema penstock to {name}",
        f"select on {VIEWS} to {name}",
        f"execute on function penstock.jobs_by_tag to {name}",
    ):
        raw.execute(f"grant {grant}")  # pyright: ignore[reportArgumentType]

    with psycopg.connect(logins.url_of(name), autocommit=True) as login:
        [[count]] = login.execute("select count(*) from penstock.jobs").fetchall()
        tagged = login.execute("select id from penstock.jobs_by_tag('order', '7')").fetchall()
        shown = login.execute("select string_agg(arguments::text, '') from penstock.jobs")
        assert "4111" not in shown.fetchall()[0][0]
        for denied in ("penstock.job", "penstock.jobs_by_id(array[]::uuid[])"):
            with pytest.raises(errors.InsufficientPrivilege):
                login.execute(f"select * from {denied}")  # pyright: ignore[reportArgumentType]

    assert (count, len(tagged)) == (len(stored), 1)
