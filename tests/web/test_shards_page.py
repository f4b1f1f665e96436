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


def test_the_map_is_read_anew_when_others_move_buckets(serve, clock):
    stores = Unplugged(clock), Unplugged(clock)
    broker, of_mover = sharded(clock, *stores), sharded(clock, *stores)
    browser = serve(broker).browser(Role.VIEW)
    of_mover.audit("move", "ada", "growing", {"buckets": "0-99", "to": "b", "says": "begun"})
    mover = Resharding(of_mover, dict).move(range(100), "b", busy=1.0)
    assert "0 of 100" in text_of(browser.get("/shards").text)

    step = next(mover)

    said = text_of(browser.get("/shards").text)
    assert f"{step.done} of 100" in said
    assert f"b {512 + step.done} " in said
    list(mover)
    assert "100 of 100" in text_of(browser.get("/shards").text)


def test_names_of_others_are_text_on_the_page(serve, clock):
    broker = sharded(clock, Unplugged(clock), Unplugged(clock))
    odd = "<b onclick=x>&amp;ada</b>"
    broker.audit("move", odd, "", {"buckets": "0-9", "to": "<i>b", "says": "begun"})
    broker.audit("move", "eve", "", {"buckets": "not buckets", "to": "b", "says": "begun"})
    broker.audit("move", "eve", "", {"buckets": ["0"], "to": 7, "says": "begun"})

    page = serve(broker).browser(Role.VIEW).get("/shards")

    assert page.status_code == 200
    assert "<b onclick" not in page.text
    assert "<i>" not in page.text
    assert "&lt;b onclick=x&gt;&amp;amp;ada" in page.text


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
