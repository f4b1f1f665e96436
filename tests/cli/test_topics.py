"""penstock topics: who would receive a publication, publish, and remove a subscription."""

from __future__ import annotations

import pytest

from penstock import App


@pytest.fixture
def subscribed(shop):
    """Two subscriptions in the project's store."""
    app = App(f"sqlite:///{shop.folder / 'penstock.db'}")

    @app.task(name="shop:receipt", queue="mail")
    def receipt(order: dict[str, object]) -> None: ...

    app.topics.put(receipt, "order.*", where="arg.order.country:FR")
    app.topics.put(receipt, "order.#", name="every")
    app.close()
    return shop


def test_they_are_listed(subscribed):
    listed = subscribed("topics").stdout

    assert "arg.order.country:FR" in listed
    [every, receipt] = subscribed.lines("topics")
    assert (every["name"], every["pattern"], every["queue"]) == ("every", "order.#", "mail")
    assert (receipt["task"], receipt["where"]) == ("shop:receipt", "arg.order.country:FR")


def test_a_dry_run_says_who_would_receive_it_and_stores_nothing(subscribed):
    """B53."""
    french = subscribed("topics", "publish", "order.paid", '{"country": "FR"}', "--dry-run").stdout
    other = subscribed("topics", "publish", "order.paid", '{"country": "IT"}', "--dry-run").stdout
    nobody = subscribed("topics", "publish", "parcel.sent", "--dry-run").stdout

    assert "order.paid: 2 jobs would be stored" in french
    assert "  shop:receipt: shop:receipt in mail" in french
    assert "order.paid: 1 job would be stored" in other
    assert "nobody subscribed to parcel.sent" in nobody
    assert subscribed.lines("find") == []


def test_it_publishes(subscribed):
    [answer] = subscribed.lines("topics", "publish", "order.paid", "{}", "--tag", "tenant=a")

    assert answer["subscriptions"] == ["every"]
    [job] = subscribed.lines("find", "tag.tenant:a", "tag.topic:order.paid")
    assert [job["id"]] == answer["ids"]


def test_one_is_removed_by_its_name(subscribed):
    removed = subscribed("topics", "unsubscribe", "every", "--reason", "ended").stdout
    again = subscribed("topics", "unsubscribe", "every", code=1).stdout

    assert "subscription every is removed" in removed
    assert "there is no subscription every" in again
    assert [each["name"] for each in subscribed.lines("topics")] == ["shop:receipt"]


@pytest.mark.parametrize("words", [["publish"], ["unsubscribe"], ["list", "every"]])
def test_what_is_missing_is_said(subscribed, words):
    assert "publish needs a topic" in subscribed("topics", *words, code=2).stderr
