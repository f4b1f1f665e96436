"""A store that is away: every page says so, none its password; and then it is back."""

from __future__ import annotations

import re

from penstock.brokers import open_broker
from penstock.web.access import Role
from penstock.web.routes import ROUTES
from tests.factories import some_jobs
from tests.web.conftest import served
from tests.web.test_pages import text_of

CANARY = "canary-of-a-password"
PAGES = [route.path for route in ROUTES if route.nav and route.path != "/health"]


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
        assert re.search(r"Not now 503 the store \S+ does not answer.* Try again", said)
    assert (health.status_code, found.status_code) == (200, 200)
    assert "an accepted job survives" in text_of(health.text)
    assert "1 red" in text_of(found.text)
    assert "it does not answer" in text_of(found.text)
    assert CANARY not in health.text + found.text
    assert {path: page.status_code for path, page in back.items()} == dict.fromkeys(PAGES, 200)
