"""Backfills on pages: where each partition is, and running a range again."""

from __future__ import annotations

import re
from datetime import date

import pytest

from penstock import App
from penstock.broker.views import WorkerRow
from penstock.job import failed, succeeded
from penstock.operate.backfill_status import parse_partition, read_backfill
from penstock.rules.rule import Rule, rule_id
from penstock.testing.conformance.factories import a_job, claim_for, some_jobs
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of

ONE = "/backfills/one"
TASK = "shop:report"


@pytest.fixture
def app(broker) -> App:
    """January: eight days are done, two failed, the rest is to run."""
    app = App(broker=broker)

    @app.task(name=TASK)
    def report(day: date) -> None: ...

    report.backfill("2026-01-01", "2026-01-31")
    broker.clear(Rule, rule_id("limit", None, TASK, per_key=True))
    run(broker, 10, bad={2, 5})
    return app


def run(broker, most: int, bad: frozenset[int] | set[int] = frozenset()) -> list[str]:
    jobs = claim_for(broker, WorkerRow(id="w", tasks={TASK: 1}), limit=most)
    for number, job in enumerate(jobs):
        broker.settle([(job, failed("no data") if number in bad else succeeded())])
    return [job.tags["partition"] for job in jobs]


def cells(page: str) -> dict[str, str]:
    return dict(re.findall(r'<span class="sr">(\S+) (\w+)</span>', page))


def test_the_grid_has_every_partition_with_its_state(web: Web, broker, clock, app):
    broker.enqueue(some_jobs(clock, 20, task=TASK))

    page = web.client(Role.VIEW).get(ONE, params={"task": TASK})

    shown = cells(page.text)
    assert list(shown) == [f"2026-01-{day:02}" for day in range(1, 32)]
    assert [shown[f"2026-01-{day:02}"] for day in (1, 3, 6, 11)] == [
        "succeeded",
        "failed",
        "failed",
        "ready",
    ]
    said = text_of(page.text)
    assert "31 partitions: 21 ready , 8 succeeded , 2 failed" in said
    assert "penstock find key:backfill task:shop:report" in said


def test_tasks_with_a_backfill_are_listed(web: Web, broker, clock, app):
    broker.enqueue([a_job(clock)])

    page = web.client(Role.VIEW).get("/backfills")

    assert re.findall(r"/backfills/one\?task=([^\"]+)", page.text) == ["shop%3Areport"]


def test_what_failed_in_a_range_is_tried_again_by_whoever_asks(web: Web, broker, app):
    browser = web.browser(Role.OPERATE)
    given = {"task": TASK, "first": "2026-01-04", "last": "2026-01-31"}

    answer = browser.post("/backfills/retry", data={**given, "reason": "data came"})

    shown = cells(browser.get(answer.headers["location"]).text)
    assert answer.status_code == 303
    assert (shown["2026-01-06"], "2026-01-03" in shown) == ("ready", False)
    [event] = [row for row in broker.history(None) if row.kind == "retry"]
    assert b"otto" in event.data
    assert b"data came" in event.data
    assert browser.post("/backfills/retry", data=given).status_code == 409


def test_a_whole_range_runs_once_more_where_the_app_has_the_task(serve, broker, app):
    browser = serve(app).browser(Role.OPERATE)
    given = {"task": TASK, "first": "2026-01-01", "last": "2026-01-03"}
    assert "/backfills/again" in browser.get(ONE, params=given).text

    answer = browser.post("/backfills/again", data=given)

    assert answer.status_code == 303
    assert set(cells(browser.get(ONE, params=given).text).values()) == {"ready"}
    assert {each.text: each.runs for each in read_backfill(broker, TASK).partitions[:3]} == {
        "2026-01-01": 2,
        "2026-01-02": 2,
        "2026-01-03": 1,
    }


def test_without_the_app_or_with_no_range_nothing_is_run_again(
    serve, memory_web: Web, memory_broker
):
    app = App(broker=memory_broker)

    @app.task(name=TASK)
    def report(day: date) -> None: ...

    bare, with_app = memory_web.browser(Role.OPERATE), serve(app).browser(Role.OPERATE)

    for browser, given, sentence in (
        (bare, {"task": TASK}, "was started without an app"),
        (with_app, {"task": TASK}, "give the first and the last partition"),
        (with_app, {"task": TASK, "first": "x", "last": "y"}, "is of type date"),
        (with_app, {"task": "gone", "first": "2026-01-01", "last": "2026-01-01"}, "no task"),
    ):
        answer = browser.post("/backfills/again", data=given)
        assert answer.status_code == 422
        assert sentence in text_of(answer.text)
    assert memory_broker.count() == []


def test_a_viewer_runs_nothing_again(memory_web: Web):
    viewer = memory_web.browser(Role.VIEW)

    for verb in ("retry", "again"):
        assert viewer.post(f"/backfills/{verb}", data={"task": TASK}).status_code == 403


def test_with_no_backfill_the_pages_say_how_to_make_one(memory_web: Web):
    client = memory_web.client(Role.VIEW)

    assert 'report.backfill("2026-01-01", "2026-01-31")' in text_of(client.get("/backfills").text)
    assert "a second call enqueues none" in text_of(client.get(ONE, params={"task": "x"}).text)
    assert client.get(ONE).status_code == 404


def test_partitions_of_every_kind_are_read_and_stay_in_order(memory_broker, clock):
    from penstock.enqueue.ids import derived_id
    from penstock.task.backfill import KEY, TAG

    texts = ["10", "9", "2026-01-02", "2026-01-01T01:00:00+00:00", "none", "2026-01-01T01:00"]
    memory_broker.enqueue(
        [
            a_job(
                clock, TASK, id=derived_id(KEY, TASK, text, bucket=KEY), key=KEY, tags={TAG: text}
            )
            for text in texts
        ]
    )

    looked = read_backfill(memory_broker, TASK)

    assert [each.text for each in looked.partitions] == [
        "9",
        "10",
        "2026-01-01T01:00:00+00:00",
        "2026-01-02",
        "2026-01-01T01:00",
        "none",
    ]
    assert [len(row) for _, row in looked.rows()] == [2, 1, 1, 2]
    assert [each.text for each in looked.within("10", "10").partitions] == ["10"]
    assert parse_partition("2026-01-02") == date(2026, 1, 2)
