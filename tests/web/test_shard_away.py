"""Pages while a shard is away: each says which one, and shows what the others have."""

from __future__ import annotations

import pytest

from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_schedule, a_worker
from penstock.web.access import Role
from penstock.web.routes import ROUTES
from tests.brokers.sharded.unplugged import IN_A, IN_B, Unplugged, job_in, sharded
from tests.web.test_pages import text_of

# Datasets need an app; parts of pages are in pages, and what is not HTML says it otherwise.
PAGES = [
    *("/", "/jobs", "/flows", "/queues", "/rules", "/schedules", "/workers", "/shards", "/audit"),
    *("/reports", "/health", "/backfills"),
]


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def browser(serve, clock, stores):
    broker = sharded(clock, *stores)
    broker.enqueue([job_in(clock, IN_A, queue="here"), job_in(clock, IN_B, queue="there")])
    broker.put(Rule(RuleKind.LIMIT, queue="here", running=3))
    broker.put(a_schedule("hourly"))
    broker.renew([a_worker("alice")])
    return serve(broker).browser(Role.ADMIN)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_names_the_shard_and_shows_the_rest(browser, stores, path):
    assert "is away" not in text_of(browser.get(path).text)
    stores[1].away = True
    browser.get("/jobs")  # which finds out; a page that asks no shard knows by then

    found = browser.get(path)

    assert found.status_code == 200
    assert "shard b is away: nobody answers" in text_of(found.text)


def test_all_pages_of_the_navigation_are_tried():
    here = {route.path for route in ROUTES if route.nav}

    assert here - {"/datasets"} <= set(PAGES)


def test_jobs_of_the_others_are_listed_and_counted(browser, stores):
    stores[1].away = True

    assert "here" in text_of(browser.get("/jobs").text)
    queues = text_of(browser.get("/queues").text)
    assert "here" in queues
    assert "there" not in queues


def test_the_page_of_a_job_there_says_why_it_is_not_shown(browser, stores, clock):
    jobs = {name: browser.get(f"/jobs?q=queue:{name}").text for name in ("here", "there")}
    ids = {name: page.split("/jobs/0")[1].split('"')[0] for name, page in jobs.items()}
    stores[1].away = True

    assert browser.get(f"/jobs/0{ids['here']}").status_code == 200
    there = browser.get(f"/jobs/0{ids['there']}")
    assert there.status_code == 503
    assert "shard b: nobody answers" in text_of(there.text)
