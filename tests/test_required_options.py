"""V49: a queue may require options; work that lacks one is refused, with what to write."""

from __future__ import annotations

import pytest

from penstock import App, Refused, Retry
from penstock.broker.queue_options import Options, QueueOptions


@pytest.fixture
def app() -> App:
    return App("memory:")


def add_ship(app: App, **options):
    @app.task(name="ship", queue="orders", **options)
    def ship(number: int) -> None: ...

    return ship


def test_work_that_lacks_a_required_option_is_refused(app):
    app.queue("orders", require=("timeout", "retry"))
    ship = add_ship(app, retry=Retry(limit=2))

    says = r"queue orders requires timeout, and nobody says so for jobs of ship: write @app.task"
    for attempt in (
        lambda: ship.enqueue(1),
        lambda: ship.job(1),
        lambda: ship.enqueue_many([(1,), (2,)]),
        lambda: ship.map([1, 2]),
    ):
        with pytest.raises(Refused, match=says):
            attempt()
    assert app.broker.count() == []


def test_a_job_a_task_or_the_queue_may_say_it(app):
    app.queue("orders", require="timeout")
    with pytest.raises(Refused):
        add_ship(app).enqueue(1)
    app.queue("others", require=["timeout"], timeout=5)

    @app.task(queue="orders", timeout=5)
    def pack() -> None: ...

    @app.task(queue="others")
    def send() -> None: ...

    pack.enqueue()
    send.enqueue()
    app.tasks["ship"].options(timeout=9).enqueue(1)
    assert sum(row.ready for row in app.broker.count()) == 3


def test_an_app_may_require_them_of_every_queue():
    app = App("memory:", queue_defaults={"require": ("lease",)})
    ship = add_ship(app, timeout=5)

    with pytest.raises(Refused, match=r'requires lease.*write app.queue\("orders", lease=...\)'):
        ship.enqueue(1)
    app.queue("orders", lease=30)
    ship.enqueue(1)


def test_an_operator_may_say_it_too_and_take_it_back(app):
    app.queue("orders", require="timeout")
    ship = add_ship(app)
    app.broker.put(QueueOptions(queue="orders", override=Options(timeout=5.0)), "ada")
    app.queues.declare(app.broker, "", lambda: "")
    ship.enqueue(1)

    app.broker.put(QueueOptions(queue="orders", reset=("timeout",)), "ada")
    app.queues.declare(app.broker, "", lambda: "")
    with pytest.raises(Refused, match="requires timeout"):
        ship.enqueue(2)


def test_a_name_that_is_no_option_is_refused(app):
    with pytest.raises(Refused, match="'timeuot' is no option of a queue"):
        app.queue("orders", require=("timeuot",))
