"""Reports: what the store tells of the last while, how far it looked, and the lake's own page."""

from __future__ import annotations

import html
import json
import os
import re

import pytest

from penstock.broker.lake_mark import Mark
from penstock.job import failed, succeeded, try_again
from penstock.testing.conformance.factories import a_job, begun, claim, settle, some_jobs
from penstock.web.access import Role
from penstock.web.pages.reports import REPORT
from tests.web.conftest import Web
from tests.web.test_pages import text_of

CHART = re.compile(r'data-chart="([^"]*)"')


def end_some(broker, clock):
    broker.enqueue(some_jobs(clock, 20))
    for number, job in enumerate(claim(broker, limit=20)):
        clock.advance(seconds=1)
        outcome = failed("no") if number < 2 else succeeded()
        if number == 2:
            outcome = try_again("later", clock.now() + 3600)
        settle(broker, job, begun(outcome, clock.now() - 0.5))


def test_what_ended_is_added_up_by_task(web: Web, broker, clock):
    clock.advance(seconds=3600 - clock.now() % 3600)
    end_some(broker, clock)
    clock.advance(seconds=60)
    broker.gauge()
    clock.advance(seconds=60)

    page = web.client(Role.VIEW).get("/reports")

    said = text_of(page.text)
    assert page.status_code == 200
    assert "mail:send default 20 17 2 1" in said
    assert re.search(r"(49[5-9]|50[0-5]) ms", said)
    assert "penstock pipeline report" in said


def test_rates_waits_and_depth_are_drawn_and_a_time_without_workers_is_a_gap(
    web: Web, broker, clock
):
    clock.advance(seconds=3600 - clock.now() % 3600)
    broker.enqueue(some_jobs(clock, 3) + some_jobs(clock, 2, queue="slow"))
    for _ in range(3):
        broker.gauge()
        clock.advance(seconds=60)
    clock.advance(seconds=600)
    broker.gauge()
    clock.advance(seconds=60)

    page = web.client(Role.VIEW).get("/reports")

    drawn = [json.loads(html.unescape(each)) for each in CHART.findall(page.text)]
    depth = next(each for each in drawn if each["unit"] == "jobs")
    assert depth["at"][1] - depth["at"][0] == 60.0
    [ready] = [each["values"] for each in depth["series"] if each["label"] == "ready"]
    assert ready[-14:] == [5, 5, 5, *[None] * 10, 5]
    slow = web.client(Role.VIEW).get("/reports", params={"queue": "slow"}).text
    drawn = [json.loads(html.unescape(each)) for each in CHART.findall(slow)]
    depth = next(each for each in drawn if each["unit"] == "jobs")
    assert depth["series"][0]["values"][-1] == 2


def test_a_range_that_there_is_not_is_refused(memory_web: Web):
    client = memory_web.client(Role.VIEW)

    for path in ("/reports", "/api/v1/trends"):
        answer = client.get(path, params={"over": "year"})
        assert (answer.status_code, "hour, day, fortnight" in answer.text) == (422, True)


def test_a_store_without_history_says_how_to_begin(memory_web: Web):
    said = text_of(memory_web.client(Role.VIEW).get("/reports").text)

    assert "Nothing is recorded yet" in said
    assert "--lake PATH" in said


def test_the_report_of_the_lake_is_served_where_nothing_can_run(
    serve, memory_broker, tmp_path, clock
):
    memory_broker.put(Mark(lake="lake-1", place=str(tmp_path)))
    web = serve(memory_broker, lake=tmp_path)
    client = web.client(Role.VIEW)
    assert client.get("/reports/lake").status_code == 404
    assert f"--page {tmp_path}/{REPORT}" in text_of(client.get("/reports").text)
    (tmp_path / REPORT).write_text("<h1>Penstock report</h1><script>alert(1)</script>")

    answer = client.get("/reports/lake")

    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "sandbox" in policy
    assert "script-src" not in policy
    assert 'href="/reports/lake"' in client.get("/reports").text


def test_names_of_tasks_are_shown_and_never_run(web: Web, broker, clock):
    hostile = "<script>alert(1)</script>"
    broker.enqueue([a_job(clock, hostile, queue=hostile)])
    [job] = claim(broker, tasks={hostile: 1})
    settle(broker, job, begun(succeeded(), clock.now()))
    clock.advance(seconds=60)
    broker.gauge()
    clock.advance(seconds=60)

    page = web.client(Role.VIEW).get("/reports")

    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "alert(1)" in text_of(page.text)


SECRET = b"<p>PENSTOCK_URL=postgresql://ada:hunter2@db/shop</p>"


def lake_with(tmp_path, how):
    """A lake in which somebody laid something of that name, to be shown by us; what it leads to."""
    lake, victim = tmp_path / "lake", tmp_path / "secret"
    lake.mkdir()
    victim.write_bytes(SECRET)
    place = lake / REPORT
    if how == "link":
        place.symlink_to(victim)
    elif how == "environment":
        place.symlink_to("/proc/self/environ")
    elif how == "link inside":
        (lake / "other.html").write_bytes(SECRET)
        place.symlink_to("other.html")
    elif how == "hard link":
        place.hardlink_to(victim)
    elif how == "pipe":
        os.mkfifo(place)
    elif how == "folder":
        place.mkdir()
    else:
        place.write_bytes(SECRET)
        if os.geteuid() == 0:
            os.chown(place, 65534, 65534)
        else:
            place.unlink()
    return lake


@pytest.mark.parametrize(
    "how",
    ["link", "environment", "link inside", "hard link", "pipe", "folder", "of a third person"],
)
def test_nothing_else_is_shown_as_the_report_of_the_lake(
    memory_broker, tmp_path, serve, monkeypatch, how
):
    monkeypatch.setenv("PENSTOCK_DASHBOARD_TOKENS", "hunter2")
    client = serve(memory_broker, lake=lake_with(tmp_path, how)).client(Role.VIEW)

    report, page = client.get("/reports/lake"), client.get("/reports")

    assert (report.status_code, page.status_code) == (404, 200)
    assert "hunter2" not in report.text + page.text
    assert "PATH=" not in report.text
    assert 'href="/reports/lake"' not in page.text


def test_why_a_report_is_not_shown_is_said(memory_broker, tmp_path, serve):
    client = serve(memory_broker, lake=lake_with(tmp_path, "link")).client(Role.VIEW)

    for place in ("/reports/lake", "/reports"):
        assert f"{REPORT} is a link, and is not followed" in text_of(client.get(place).text)


def test_a_report_that_is_too_large_is_not_shown(memory_broker, tmp_path, serve):
    client = serve(memory_broker, lake=tmp_path).client(Role.VIEW)
    with (tmp_path / REPORT).open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)

    assert client.get("/reports/lake").status_code == 404


def test_a_lake_that_is_a_link_itself_was_named_by_the_operator(memory_broker, tmp_path, serve):
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / REPORT).write_text("<p>ours</p>")
    (tmp_path / "named").symlink_to("lake")

    client = serve(memory_broker, lake=tmp_path / "named").client(Role.VIEW)

    assert client.get("/reports/lake").text == "<p>ours</p>"
