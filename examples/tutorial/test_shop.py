"""Tests of the shop: no worker, no waiting."""

import sqlite3
from decimal import Decimal
from pathlib import Path

import pytest
from place_order import place_order
from shop import Order, app, confirm, make_mailer

ORDER = Order(7, "ada@example.org", Decimal("9.90"))


class FakeMailer:
    """Remembers what would have been sent."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.broken = False

    def send(self, to: str, text: str) -> None:
        """Remember, or fail as a network does."""
        if self.broken:
            raise ConnectionError
        self.sent.append(f"{to}: {text}")


def test_a_confirmation_is_sent() -> None:
    mailer = FakeMailer()
    with app.testing() as t:
        t.replace(make_mailer, mailer)
        handle = confirm.enqueue(ORDER)
        t.assert_enqueued(confirm, ORDER)
        t.drain()

        assert handle.result() == "Order 7, 9.90 EUR, is on its way."
        assert len(mailer.sent) == 1


def test_a_network_error_is_tried_again_after_a_minute() -> None:
    mailer = FakeMailer()
    with app.testing() as t:
        t.replace(make_mailer, mailer)
        confirm.enqueue(ORDER)
        mailer.broken = True
        t.drain()
        mailer.broken = False
        assert not mailer.sent

        t.clock.advance(minutes=1)
        t.drain()

        assert len(mailer.sent) == 1


def test_a_worker_that_dies_before_it_settles_sends_twice() -> None:
    mailer = FakeMailer()
    with app.testing() as t:
        t.replace(make_mailer, mailer)
        confirm.enqueue(ORDER)
        with t.crash_at("settle"):
            t.drain()

        assert len(mailer.sent) == 2  # at least once: hand the service an idempotency key


def test_an_order_that_fails_leaves_no_job(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with app.testing(url=f"sqlite:///{file}") as t:
        t.replace(make_mailer, FakeMailer())
        connection = sqlite3.connect(file)
        connection.execute("create table orders (id integer primary key, customer, total)")

        with pytest.raises(ValueError, match="cost something"):
            place_order(connection, "ada@example.org", Decimal(0))
        assert t.jobs() == []

        place_order(connection, "ada@example.org", Decimal(5))
        assert len(t.jobs(confirm)) == 1
        connection.close()
