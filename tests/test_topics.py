"""Topics: who receives a publication, in the code and in the store."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec
import pytest

from penstock import App, KeyRing
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.subscription import Subscription, check_pattern, check_topic, fits
from penstock.errors import Refused
from penstock.job import State
from penstock.testing.clock import Clock
from tests.workers import drain


class Order(msgspec.Struct):
    id: int
    country: str = "FR"


@pytest.fixture
def app():
    return App(broker=MemoryBroker(Clock()))


@pytest.fixture
def receipt(app):
    @app.task(name="shop:receipt", queue="mail")
    def receipt(order: Order) -> int:
        return order.id

    return receipt


def names(app, topic, value=None, **options):
    """The tasks that received a publication."""
    handles = app.publish(topic, Order(7) if value is None else value, **options)
    return sorted(app.broker.get(handle.id).task for handle in handles)


@pytest.mark.parametrize(
    ("pattern", "topic", "fit"),
    [
        ("order.paid", "order.paid", True),
        ("order.paid", "order.sent", False),
        ("order.paid", "order.paid.late", False),
        ("order.*", "order.paid", True),
        ("order.*", "order", False),
        ("order.*", "order.paid.late", False),
        ("*.paid", "order.paid", True),
        ("order.#", "order", True),
        ("order.#", "order.paid.late", True),
        ("order.#", "orders", False),
        ("#", "order.paid", True),
        ("#.late", "order.paid.late", True),
        ("#.late", "late", True),
        ("#.late", "order.late.not", False),
        ("*.#.late", "late", False),
        ("a.#.b.#.c", "a.x.b.b.y.c", True),
        ("a.#.b.#.c", "a.c.b", False),
        ("#.#.#", "a", True),
    ],
)
def test_one_word_or_any_number(pattern, topic, fit):
    """B53."""
    assert fits(check_pattern(pattern), check_topic(topic)) is fit


def test_many_wildcards_are_no_burden():
    assert not fits(".".join(["#"] * 60 + ["b"]), ".".join(["a"] * 60))


@pytest.mark.parametrize("wrong", ["", ".", "a..b", "a b", "a.", "x" * 256, "a.b*", "é\n", None])
def test_what_is_no_topic_is_refused(app, wrong):
    with pytest.raises(Refused, match="at most 255 characters"):
        app.publish(wrong, 1)
    with pytest.raises(Refused, match="at most 255 characters"):
        check_pattern(wrong)


def test_a_topic_has_no_wildcards(app):
    with pytest.raises(Refused, match=r"topic 'order\.\*'"):
        app.publish("order.*", 1)


def test_each_subscription_gets_a_job_of_its_own(app, receipt):
    """V70."""

    @app.task(name="shop:count")
    def count(order: Order, topic: str) -> None: ...

    receipt.subscribe("order.*")
    count.subscribe("order.#")

    handles = app.publish("order.paid", Order(7), tags={"tenant": "a"}, key="ada")

    jobs = {job.task: job for job in (app.broker.get(each.id) for each in handles)}
    assert jobs["shop:receipt"].queue == "mail"
    assert jobs["shop:receipt"].body == b'{"args":{"order":{"id":7,"country":"FR"}}}'
    assert msgspec.json.decode(jobs["shop:count"].body)["args"]["topic"] == "order.paid"
    for job in jobs.values():
        assert (job.key, job.tags) == ("ada", {"tenant": "a", "topic": "order.paid"})
    assert app.publish("parcel.sent", 1) == []


def test_it_runs_as_any_job(app, receipt):
    receipt.subscribe("order.paid")
    with app.testing() as kit:
        [handle] = app.publish("order.paid", Order(7))
        kit.drain()

        assert handle.result() == 7


def test_a_filter_goes_by_arguments_and_tags(app, receipt):
    receipt.subscribe("order.paid", where="arg.order.country:FR arg.order.country:DE -tag.test:yes")

    assert names(app, "order.paid", Order(1, "FR")) == ["shop:receipt"]
    assert names(app, "order.paid", Order(1, "DE"), tags={"test": "no"}) == ["shop:receipt"]
    assert names(app, "order.paid", Order(1, "IT")) == []
    assert names(app, "order.paid", Order(1, "FR"), tags={"test": "yes"}) == []


def test_a_filter_by_anything_else_is_refused(app, receipt):
    receipt.subscribe("order.paid", where="state:failed")

    with pytest.raises(Refused, match=r"goes by arg\.NAME and tag\.NAME, not by state"):
        app.publish("order.paid", Order(1))


def test_what_one_of_them_cannot_take_goes_to_nobody(app, receipt):
    @app.task(name="shop:any")
    def anything(value: Any) -> None: ...

    receipt.subscribe("order.paid")
    anything.subscribe("order.paid")

    with pytest.raises(Refused, match="order"):
        app.publish("order.paid", {"id": "seven"})

    assert app.broker.count() == []


def test_options_of_the_task_are_those_of_its_jobs(app, receipt):
    receipt.options(priority=5, delay=60, expires=90, headers={"own": "yes"}).subscribe(
        "order.paid"
    )
    now = app.clock.now()

    [handle] = app.publish("order.paid", Order(1), headers={"own": "no", "trace": "t"})

    job = app.broker.get(handle.id)
    assert (job.priority, job.run_at, job.expires_at) == (5, now + 60, now + 90)
    assert msgspec.json.decode(job.body)["headers"] == {"own": "yes", "trace": "t"}


@pytest.mark.parametrize("options", [{"unique": "x"}, {"connection": object()}])
def test_options_of_one_job_are_refused(app, receipt, options):
    receipt.options(**options).subscribe("order.paid")

    with pytest.raises(Refused, match="are for one job"):
        app.publish("order.paid", Order(1))


def test_a_task_without_a_parameter_cannot_subscribe(app):
    @app.task
    def nothing() -> None: ...

    with pytest.raises(Refused, match="its first parameter receives what is published"):
        nothing.subscribe("order.paid")


def test_a_second_one_of_a_task_needs_a_name(app, receipt):
    receipt.subscribe("order.paid")
    with pytest.raises(Refused, match=r"two subscriptions are called shop:receipt, to order\.paid"):
        receipt.subscribe("order.sent")

    receipt.subscribe("order.sent", name="sent")

    assert names(app, "order.sent") == ["shop:receipt"]
    assert [each.name for each in app.topics.all()] == ["sent", "shop:receipt"]


def test_one_that_was_removed_receives_nothing(app, receipt):
    receipt.subscribe("order.paid")
    assert names(app, "order.paid") == ["shop:receipt"]

    assert app.topics.remove("shop:receipt", "ada", "counted elsewhere")

    assert names(app, "order.paid") == []
    assert app.topics.remove("shop:receipt") is False


def test_one_that_is_made_at_run_time_stays_until_removed(app, receipt):
    app.topics.put(receipt, "order.#", name="late", author="ada")
    assert names(app, "order.paid") == ["shop:receipt"]

    receipt.subscribe("order.paid", name="coded")
    with pytest.raises(Refused, match="is in the code of this app"):
        app.topics.put(receipt, "order.#", name="coded")


def test_programs_of_other_names_receive_only_what_they_ask_for():
    """D7."""
    broker = MemoryBroker(Clock())
    shop, other = App(broker=broker, name="shop"), App(broker=broker, name="other")
    for app, from_shop in ((shop, None), (other, None), (other, "shop")):

        @app.task(name=f"t:{from_shop}")
        def received(order: Order) -> None: ...

        received.subscribe("order.paid", app=from_shop)
        app.topics.declare()

    handles = shop.publish("order.paid", Order(1))

    jobs = [broker.get(handle.id) for handle in handles]
    assert sorted((job.app, job.task) for job in jobs) == [("other", "t:shop"), ("shop", "t:None")]


def test_in_the_callers_transaction_all_or_none(tmp_path):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task
    def received(order: Order) -> None: ...

    received.subscribe("order.paid")
    received.subscribe("order.#", name="every")
    app.broker.count()
    connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)

    connection.execute("begin immediate")  # a write of its own would wait for this one
    lost = app.publish("order.paid", Order(1), connection=connection)
    connection.execute("rollback")
    connection.execute("begin immediate")
    kept = app.publish("order.paid", Order(1), connection=connection)
    connection.execute("commit")

    assert [app.broker.get(each.id) for each in lost] == [None, None]
    assert [each.state() for each in kept] == [State.READY, State.READY]
    connection.close()
    app.close()


def test_what_is_published_is_encrypted_as_other_arguments():
    broker = MemoryBroker(Clock())
    sealed = App(broker=broker, keys=KeyRing(KeyRing.new_key()))

    @sealed.task(name="shop:receipt")
    def receipt(order: Order) -> int:
        return order.id

    receipt.subscribe("order.paid", where="arg.order.country:FR")
    [handle] = sealed.publish("order.paid", Order(7))

    assert b"country" in sealed.broker.get(handle.id).body
    assert b"FR" not in broker.get(handle.id).body


def test_a_worker_stores_the_subscriptions_of_its_code(app, receipt):
    receipt.subscribe("order.paid")
    assert app.broker.records(Subscription) == []

    drain(app)

    assert [each.name for each in app.broker.records(Subscription)] == ["shop:receipt"]
