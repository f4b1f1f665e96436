"""The page Shards: the map is drawn, and how far a move is."""

from __future__ import annotations

from penstock.brokers.sharded.resharding import Resharding
from penstock.web.access import Role
from tests.brokers.sharded.unplugged import Unplugged, sharded
from tests.web.test_pages import text_of


def test_the_map_is_drawn_with_moves_under_way(serve, clock):
    stores = Unplugged(clock), Unplugged(clock)
    broker = sharded(clock, *stores)
    broker.audit("move", "ada", "growing", {"buckets": "0-99", "to": "b", "says": "begun"})
    mover = Resharding(broker, dict).move(range(100), "b", busy=1.0)
    step = next(mover)
    browser = serve(broker).browser(Role.VIEW)

    page = browser.get("/shards").text

    assert page.count('<rect class="succeeded"') == 3
    said = text_of(page)
    assert f"{step.done} of 100" in said
    assert "<progress" in page
    assert "ada" in said
    list(mover)
    assert "<progress" not in browser.get("/shards").text


def test_what_is_on_its_way_and_who_is_away_is_said(serve, clock):
    stores = Unplugged(clock), Unplugged(clock)
    broker = sharded(clock, *stores)
    stores[0].take_out([0, 1, 2], "b")
    stores[1].away = True
    broker.shards.look_again()

    said = text_of(serve(broker).browser(Role.VIEW).get("/shards").text)

    assert "shard b is away: nobody answers" in said
    assert "1,024 buckets of ids on 2 shards" in said
    assert "a 509" in said


def test_one_store_says_that_it_is_one(memory_web):
    browser = memory_web.browser(Role.VIEW)

    assert "This is one store." in text_of(browser.get("/shards").text)
    assert 'href="/shards"' in browser.get("/health").text
