"""Queues as programs declare them: the store keeps their order, and everybody is told."""

from __future__ import annotations

import pytest

from penstock import App, State
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused
from penstock.rules.key_order import in_turn, policies
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_worker, claim_for
from penstock.worker import Worker


@pytest.fixture
def store(clock):
    return MemoryBroker(clock)


def an_app(store):
    app = App(broker=store)

    @app.task(name="ship", queue="orders")
    def ship(number: int) -> None: ...

    return app, ship


def test_a_store_is_told_of_an_order_when_it_is_used(store):
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")
    app.queue("mail", fair=True)
    app.queue("clicks", relaxed=True)
    assert store.records(Rule) == []

    ship.options(key="ada").enqueue(1)

    assert policies(store.records(Rule)) == {"orders": "wait", "mail": "fair"}


def test_marks_it_again_writes_nothing(store):
    for _ in range(2):
        app, ship = an_app(store)
        app.queue("orders", ordered="wait")
        ship.options(key="ada").enqueue(1)

    assert len([event for event in store.history() if event.kind == "rule"]) == 1


def test_the_declaration_of_the_program_that_started_last_stands(store):
    """V44: what two programs declare differently is no error; only one program's is."""
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")
    ship.options(key="ada").enqueue(1)
    other, ship = an_app(store)
    other.queue("orders", ordered="skip")

    ship.options(key="ada").enqueue(2)

    assert policies(store.records(Rule)) == {"orders": "skip"}


def test_a_program_that_never_heard_of_it_keeps_the_order(store, clock):
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")
    first = ship.options(key="ada").enqueue(1)
    clock.advance(seconds=1)  # ids of two programs are in the order of their times
    other, ship = an_app(store)
    ship.options(key="ada").enqueue(2)

    jobs = claim_for(other.broker, a_worker(tasks={"ship": 1}), limit=9)

    assert [job.id for job in jobs] == [first.id]


def test_a_queue_that_is_declared_late_is_told_as_well(store):
    app, ship = an_app(store)
    ship.enqueue(1)
    app.queue("orders", ordered="skip")

    ship.options(key="ada").enqueue(2)

    assert policies(store.records(Rule)) == {"orders": "skip"}


def test_a_job_without_a_key_is_refused_by_an_ordered_queue(store):
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")

    for enqueue in (ship.enqueue, ship.options(delay=5).enqueue, ship.job):
        with pytest.raises(Refused, match="queue orders is ordered by key, and this job has none"):
            enqueue(1)
    with pytest.raises(Refused, match="ordered by key"):
        ship.enqueue_many([(1,), (2,)])

    assert store.count() == []


def test_tests_of_an_app_have_its_order(store):
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")

    with app.testing():
        ship.options(key="ada").enqueue(1)
        assert policies(app.broker.records(Rule)) == {"orders": "wait"}

    assert store.records(Rule) == []


def test_an_order_names_a_queue_and_a_policy():
    with pytest.raises(Refused, match="about a whole queue"):
        Rule(RuleKind.ORDER, policy="wait")
    with pytest.raises(Refused, match="about a whole queue"):
        Rule(RuleKind.ORDER, queue="orders", task="ship", policy="wait")
    with pytest.raises(Refused, match="there are wait, skip, batch, fair"):
        Rule(RuleKind.ORDER, queue="orders", policy="fifo")
    with pytest.raises(Refused, match="a pause has no policy"):
        Rule(RuleKind.PAUSE, queue="orders", policy="wait")


def test_lanes_of_one_queue_and_priority_change_places_and_no_others(clock):
    from penstock.job import Lane

    lanes = [Lane("mail", f"task-{n}") for n in range(4)]
    offers = [
        lanes[0],
        Lane("media", "a"),
        lanes[1],
        Lane("mail", "urgent", priority=9),
        *lanes[2:],
    ]

    seen = {tuple(in_turn(offers, {"mail": "fair"}, lambda lane: lane)) for _ in range(200)}

    assert len(seen) > 5
    assert {(order[1].queue, order[3].task) for order in seen} == {("media", "urgent")}
    assert in_turn(offers, {}, lambda lane: lane) == offers


def test_registering_a_queue_the_same_way_again_is_nothing(store):
    """A44: idempotent, in a program and among programs."""
    for _ in range(2):
        app, ship = an_app(store)
        assert app.queue("orders", ordered="wait") == app.queue("orders", ordered="wait")
        ship.options(key="ada").enqueue(1)

    assert policies(store.records(Rule)) == {"orders": "wait"}


@pytest.mark.parametrize("options", [{}, {"fair": True}, {"ordered": "skip"}, {"relaxed": True}])
def test_registering_a_queue_differently_is_refused_and_both_are_shown(store, options):
    """A44: in one program."""
    app, _ = an_app(store)
    app.queue("orders", ordered="wait")

    with pytest.raises(
        Refused, match=r"registered with order=wait, and now with (nothing|order=|relaxed=)"
    ):
        app.queue("orders", **options)


def test_a_program_that_says_nothing_of_an_order_keeps_the_one_that_stands(store, clock):
    """A44: an operator may have set it, and no program is to stand still for that."""
    app, ship = an_app(store)
    app.queue("orders", ordered="wait")
    first = ship.options(key="ada").enqueue(1)
    clock.advance(seconds=1)
    other, ship = an_app(store)
    other.queue("orders", relaxed=True)
    ship.options(key="ada").enqueue(2)

    jobs = claim_for(other.broker, a_worker(tasks={"ship": 1}), limit=9)

    assert [job.id for job in jobs] == [first.id]


def test_of_a_queue_that_nobody_serves_it_is_said(store):
    """A44: the job is stored, and `why` and the handle say what it waits for."""
    _, ship = an_app(store)
    handle = ship.options(queue="nowhere").enqueue(1)
    assert store.why(handle.id).cause == "no_worker"
    claim_for(store, a_worker(tasks={"ship": 1}, queues=("orders",)), ("orders",))

    why = store.why(handle.id)

    assert why.cause == "no_queue"
    assert "nowhere" in why.sentence


def test_a_worker_serves_every_queue_without_being_told_also_after_a_restart(store):
    """A44, A45: the default queue, registered ones, and ones that it never heard of."""
    app, ship = an_app(store)
    app.queue("orders", fair=True)
    Worker(app, threads=1, drain=True).work()
    waiting = [ship.options(queue=queue).enqueue(1) for queue in ("default", "orders", "new")]
    restarted, _ = an_app(store)

    Worker(restarted, threads=1, drain=True).work()

    assert [handle.state() for handle in waiting] == [State.SUCCEEDED] * 3
