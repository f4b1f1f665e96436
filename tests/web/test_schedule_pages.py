"""Schedules on pages: the next ten times, what was decided and why, holding back and running."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

from penstock.schedules.schedule import Schedule
from penstock.schedules.timetable import decide
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_schedule
from penstock.web.access import Role
from tests.web.conftest import Web
from tests.web.test_pages import text_of


def test_schedules_are_listed_with_what_comes_next_and_came_last(web: Web, broker, clock):
    kept = broker.put(a_schedule("hourly"))
    clock.advance(seconds=3601)
    decide(broker, kept)

    said = text_of(web.client(Role.VIEW).get("/schedules").text)

    assert "hourly mail:sweep every 3600 s on in 59 min 59 s enqueued now last job" in said
    assert "penstock schedules" in said


def test_a_cron_is_shown_in_words_and_one_that_is_none_as_it_is(memory_web: Web, memory_broker):
    memory_broker.put(a_schedule("early", cron="30 6 * * 1-5", zone="Europe/Paris"))
    memory_broker.put(a_schedule("newer", cron="30 6 * * <b>"))
    client = memory_web.client(Role.VIEW)

    said = text_of(client.get("/schedules").text)
    early, newer = client.get("/api/v1/schedules").json()["schedules"]

    assert "30 6 * * 1-5 (Europe/Paris) at 06:30 on Monday through Friday" in said
    assert "30 6 * * <b> (UTC) unreadable" in said
    assert early["cron_in_words"] == "at 06:30 on Monday through Friday"
    assert newer["cron_in_words"] is None


def test_a_schedule_shows_its_next_ten_slots_and_where_its_clocks_are_set(serve, memory_broker):
    clock = Clock(datetime(2026, 10, 20, tzinfo=UTC).timestamp())
    from penstock.brokers.memory import MemoryBroker

    broker = MemoryBroker(clock=clock)
    broker.put(a_schedule("nightly", cron="30 2 * * *", zone="Europe/Paris"))

    said = text_of(
        serve(broker).client(Role.VIEW).get("/schedules/one", params={"name": "nightly"}).text
    )

    assert "30 2 * * * (Europe/Paris) at 02:30 every day" in said
    assert said.count("02:30:00 CE") == 10
    assert "Sat 2026-10-24 02:30:00 CEST +0200" in said
    assert "Mon 2026-10-26 02:30:00 CET +0100" in said
    assert "clocks in Europe/Paris go back 60 min" in said
    assert "penstock schedules nightly --next 10" in said


def test_decisions_are_shown_with_who_and_why(web: Web, broker, clock):
    broker.put(a_schedule("hourly"))
    broker.put(a_schedule("other"))
    browser = web.browser(Role.OPERATE)

    paused = browser.post("/schedules/pause", data={"name": "hourly", "reason": "stocktaking"})
    clock.advance(seconds=7201)
    [schedule] = [each for each in broker.records(Schedule) if each.name == "hourly"]
    decide(broker, schedule)
    resumed = browser.post("/schedules/resume", data={"name": "hourly", "reason": "done"})

    assert (paused.status_code, resumed.status_code) == (303, 303)
    said = text_of(browser.get(paused.headers["location"]).text)
    assert "paused by otto : stocktaking" in said
    assert "skipped: paused 2 slots" in said
    assert "resumed by otto : done" in said
    other = text_of(browser.get("/schedules/one", params={"name": "other"}).text)
    assert "stocktaking" not in other


def test_a_schedule_is_run_now_and_leads_to_its_job(web: Web, broker, clock):
    broker.put(a_schedule("hourly"))
    browser = web.browser(Role.OPERATE)

    answer = browser.post("/schedules/run", data={"name": "hourly", "reason": "a customer asks"})

    assert answer.status_code == 303
    id = answer.headers["location"].removeprefix("/jobs/")
    assert broker.get(id).tags == {"schedule": "hourly"}
    assert id in browser.get("/schedules/one", params={"name": "hourly"}).text


def test_a_schedule_is_removed(web: Web, broker):
    broker.put(a_schedule("hourly"))

    browser = web.browser(Role.OPERATE)
    assert 'action="/schedules/remove"' in browser.get("/schedules/one?name=hourly").text

    answer = browser.post("/schedules/remove", data={"name": "hourly"})

    assert answer.status_code == 303
    assert broker.records(Schedule) == []


def test_a_viewer_changes_no_schedule_and_one_that_is_not_there_is_not_found(
    memory_web: Web, memory_broker
):
    memory_broker.put(a_schedule("hourly"))
    viewer, operator = memory_web.browser(Role.VIEW), memory_web.browser(Role.OPERATE)

    for verb in ("pause", "resume", "run", "remove"):
        assert viewer.post(f"/schedules/{verb}", data={"name": "hourly"}).status_code == 403
        assert operator.post(f"/schedules/{verb}", data={"name": "daily"}).status_code == 404
    assert "/schedules/pause" not in viewer.get("/schedules/one?name=hourly").text
    assert operator.get("/schedules/one").status_code == 404
    assert [each.paused for each in memory_broker.records(Schedule)] == [False]


def test_many_schedules_are_searched_and_paged(memory_web: Web, memory_broker):
    for number in range(120):
        memory_broker.put(a_schedule(f"s{number:03}"))
    client = memory_web.client(Role.VIEW)

    page = client.get("/schedules", params={"page": 3})
    found = client.get("/schedules", params={"q": "S11"})

    names = re.findall(r'href="/schedules/one\?name=([^"]+)"', page.text)
    assert [html.unescape(each) for each in names] == [
        f"s{number:03}" for number in range(100, 120)
    ]
    assert found.text.count("<tr data-row>") == 10


def test_with_no_schedule_the_page_says_how_to_make_one(memory_web: Web):
    said = text_of(memory_web.client(Role.VIEW).get("/schedules").text)

    assert '@app.schedule("0 * * * *", zone="Europe/Paris")' in said
