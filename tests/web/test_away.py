"""A store that is away: every page says so, none its password; and then it is back."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from penstock.brokers import open_broker
from penstock.brokers.sqlite import SqliteBroker
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    begun,
    enqueue_and_claim,
    settle,
    some_jobs,
)
from penstock.web.access import Role
from penstock.web.routes import ROUTES
from tests.web.conftest import served
from tests.web.test_pages import text_of

CANARY = "canary-of-a-password"
# Datasets are those of the app, and none of this one are in the store.
ANSWER = {"/health", "/datasets"}
PAGES = [route.path for route in ROUTES if route.nav and route.path not in ANSWER]


def test_while_the_store_is_away_every_page_says_so_and_none_its_password(own_postgres, clock):
    url = own_postgres.create_database()
    with_password = re.sub(r"^(postgres(?:ql)?://[^@:/]+)(?=@)", rf"\1:{CANARY}", url)
    broker = open_broker(with_password)
    broker.enqueue(some_jobs(clock, 1))
    try:
        with served(broker, url=with_password) as web:
            browser = web.browser(Role.VIEW)
            assert browser.get("/jobs").status_code == 200
            own_postgres.stop()

            away = {path: browser.get(path) for path in PAGES}
            health, found = browser.get("/health"), browser.get("/health/findings")

            own_postgres.start()
            back = {path: browser.get(path) for path in PAGES}
    finally:
        broker.close()

    assert CANARY in with_password
    for path, page in away.items():
        said = text_of(page.text)
        assert page.status_code == 503, (path, said)
        assert CANARY not in page.text
        assert re.search(r"Unavailable 503 the store \S+ does not answer.* Try again", said)
    assert (health.status_code, found.status_code) == (200, 200)
    assert "an accepted job survives" in text_of(health.text)
    assert "1 red" in text_of(found.text)
    assert "it does not answer" in text_of(found.text)
    assert CANARY not in health.text + found.text
    assert {path: page.status_code for path, page in back.items()} == dict.fromkeys(PAGES, 200)


@pytest.fixture
def moved(tmp_path, clock):
    """A dashboard of a file with one job, and a place to put that file aside."""
    aside = tmp_path / "aside"
    aside.mkdir()
    broker = SqliteBroker(tmp_path / "jobs.db", clock)
    broker.enqueue([a_job(clock, queue="harbour")])
    with served(broker) as web:
        yield web, tmp_path / "jobs.db", aside
    broker.close()


def move(file, to):
    """A store with all that is beside it: its log is a part of it."""
    for each in file.parent.glob(f"{file.name}*"):
        each.rename(to / each.name)


def test_a_file_that_was_moved_away_is_missed_and_nothing_is_done_to_it(moved, clock):
    web, file, aside = moved
    browser = web.browser(Role.OPERATE)
    assert "harbour" in text_of(browser.get("/jobs").text)
    move(file, aside)

    away = {path: browser.get(path) for path in PAGES}
    rest = web.client(Role.VIEW).get("/api/v1/jobs")
    paused = browser.post("/rules/pause", data={"queue": "harbour"})
    made = file.exists()
    move(aside / file.name, file.parent)
    back = {path: browser.get(path) for path in PAGES}

    for path, page in away.items():
        assert page.status_code == 503, path
        assert "jobs.db is gone: its file was moved or deleted while in use" in text_of(page.text)
    assert (rest.status_code, paused.status_code, made) == (503, 503, False)
    assert "moved or deleted" in rest.json()["error"]
    assert {path: page.status_code for path, page in back.items()} == dict.fromkeys(PAGES, 200)
    assert web.site.broker.records(Rule) == []


def test_another_file_in_its_place_is_what_is_shown_and_changed(moved, clock):
    web, file, aside = moved
    browser = web.browser(Role.OPERATE)
    move(file, aside)
    other = SqliteBroker(file, clock)
    other.enqueue([a_job(clock, queue="new")])

    assert "harbour" not in text_of(browser.get("/queues").text)
    assert browser.post("/rules/pause", data={"queue": "new"}).status_code == 303

    assert [rule.queue for rule in other.records(Rule)] == ["new"]
    other.close()


def test_what_happens_in_another_file_is_live_though_its_history_is_shorter(moved, clock):
    web, file, aside = moved
    for _ in range(5):
        web.site.broker.put(Rule(RuleKind.PAUSE, "harbour"))
    live = web.site.live

    def tick():
        return asyncio.run(web.site.run(live.read))

    tick()
    move(file, aside)
    other = SqliteBroker(file, clock)
    tick()
    settle(other, enqueue_and_claim(other, clock), begun(succeeded(), clock.now()))

    assert tick().succeeded == 1
    other.close()


def test_many_readers_go_over_to_another_file_together(moved, clock):
    web, file, aside = moved
    over = threading.Event()
    seen: list[int] = []

    def look() -> None:
        client = web.client(Role.VIEW)
        while not over.is_set():
            seen.append(client.get("/api/v1/jobs").status_code)

    readers = [threading.Thread(target=look) for _ in range(4)]
    for reader in readers:
        reader.start()
    client = web.client(Role.VIEW)
    for number in range(5):
        folder = aside / str(number)
        folder.mkdir()
        other = SqliteBroker(folder / file.name, clock)
        other.enqueue([a_job(clock, queue=f"other-{number}")])
        other.close()
        move(file, aside)
        move(folder / file.name, file.parent)
        while f"other-{number}" not in client.get("/api/v1/jobs").text:
            pass
    over.set()
    for reader in readers:
        reader.join()

    assert set(seen) <= {200, 503}
    assert client.get("/api/v1/jobs").status_code == 200


def test_what_is_no_store_is_named_and_the_file_is_used_again_once_it_is_back(moved):
    web, file, aside = moved
    client = web.client(Role.VIEW)
    move(file, aside)
    file.write_bytes(b"this is no store" * 1000)

    broken = client.get("/api/v1/jobs")
    file.unlink()
    gone = client.get("/api/v1/jobs")
    made = file.exists()
    move(aside / file.name, file.parent)
    back = client.get("/api/v1/jobs")

    assert "jobs.db cannot be used as a store" in broken.json()["error"]
    assert (gone.status_code, made) == (503, False)
    assert [job["queue"] for job in back.json()["jobs"]] == ["harbour"]
