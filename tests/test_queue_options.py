"""What the options of a queue do: for its jobs, for its workers, after a change while they run."""

from __future__ import annotations

import msgspec
import pytest

from penstock import App, Retry, State
from penstock.app import queue_options
from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.views import LEASE_SECONDS
from penstock.brokers.memory import MemoryBroker
from penstock.enqueue.codec import RetryWire, read_body
from penstock.errors import Refused
from penstock.testing.conformance.factories import a_worker, claim_for
from penstock.worker import Worker


@pytest.fixture
def store(clock):
    return MemoryBroker(clock)


def an_app(store, **options):
    app = App(broker=store, **options)

    @app.task(name="ship", queue="orders")
    def ship(number: int) -> None:
        raise OSError(number)

    return app, ship


def override(store, **options):
    return store.put(QueueOptions(queue="orders", override=Options(**options)), "ada", "why not")


def run(app):
    Worker(app, threads=1, async_slots=1, drain=True).work()


def test_a_queue_says_what_its_tasks_do_not(store):
    app, ship = an_app(store)
    app.queue("orders", retry=Retry(limit=1, delay=0), keep=60, timeout=5)
    job = ship.enqueue(1)

    run(app)

    ended = store.get(job.id)
    assert (ended.state, ended.failures) == (State.FAILED, 2)
    assert ended.keep_until == ended.ended_at + 60
    assert ship.timeout_of(ended) == 5


def test_what_a_task_or_a_job_says_goes_before_its_queue(store):
    app = App(broker=store)
    app.queue("orders", retry=Retry(limit=5, delay=0), timeout=5, on_success="delete")

    @app.task(queue="orders", retry=Retry(limit=0), timeout=7, on_success="keep")
    def pack() -> None:
        raise OSError

    job = pack.enqueue()
    longer = pack.options(timeout=9).enqueue()
    run(app)

    assert store.get(job.id).failures == 1
    assert [pack.timeout_of(store.get(each.id)) for each in (job, longer)] == [7, 9]
    assert pack.policy_in("orders").on_success == "keep"


def test_given_options_go_before_a_preset_and_an_app_says_what_its_queues_do_not(store):
    app, ship = an_app(store, queue_defaults={"timeout": 30, "keep": 60, "lease": 40})
    app.queue("orders", {"timeout": 10, "crash_budget": 9}, timeout=5)
    app.know_time()
    assert app.broker is store

    assert app.queues.of("orders") == Options(timeout=5.0, crash_budget=9, keep=60.0, lease=40.0)
    assert app.queues.of("others") == Options(timeout=30.0, keep=60.0, lease=40.0)
    assert read_body(ship.job(1).body).crash_budget == 9


def test_an_override_holds_for_workers_that_run_and_is_undone(store, monkeypatch):
    """V68: the new timeout and the new retry, without a restart."""
    app, ship = an_app(store)
    app.queue("orders", timeout=60)
    monkeypatch.setattr(queue_options, "SECONDS_BETWEEN", 0.0)
    assert app.broker is store
    record = override(store, timeout=5.0, retry=RetryWire(limit=3))
    app.queues.refresh(store, "", 1)
    queued = msgspec.structs.replace(ship.job(1), provisional=None)

    assert (ship.timeout_of(queued), ship.policy_in("orders").retry.limit) == (5, 3)

    store.put(QueueOptions(queue="orders", reset=tuple(record.override.said)))
    app.queues.refresh(store, "", 2)
    assert (ship.timeout_of(queued), ship.policy_in("orders").retry.limit) == (60, 0)


def test_a_producer_looks_again_once_a_minute(store, monkeypatch):
    app, ship = an_app(store)
    ship.enqueue(1)
    override(store, crash_budget=7)
    assert read_body(ship.job(1).body).crash_budget is None

    monkeypatch.setattr(queue_options, "READ_AGAIN_SECONDS", 0.0)
    app.queues.declare_anew()
    ship.enqueue(2)

    assert read_body(ship.job(1).body).crash_budget == 7


def test_the_lease_of_a_worker_is_that_of_its_strictest_queue_unless_it_has_its_own(store):
    app, _ = an_app(store)
    app.queue("orders", lease=60)
    app.queue("mail", lease=30)
    app.queue("films")
    assert app.broker is store

    leases = [
        Worker(app, threads=1, queues=queues, lease=lease).row.lease
        for queues, lease in (
            (None, None),
            (["orders", "films"], None),
            (["films"], None),
            (["orders"], 5.0),
        )
    ]

    assert leases == [30.0, 60.0, LEASE_SECONDS, 5.0]


def test_an_older_release_that_restarts_leaves_the_declaration_of_the_newer_one(store, clock):
    def release(code, timeout):
        app, _ = an_app(store)
        app.__dict__["code"] = code
        app.queue("orders", timeout=timeout)
        assert app.broker is store
        return store.records(QueueOptions)[0]

    release("old", 60)
    assert release("new", 30).declared == Options(timeout=30.0)
    claim_for(store, a_worker(code="new"))

    assert release("old", 60).declared == Options(timeout=30.0)

    clock.advance(seconds=60)  # nobody runs the newer one any more: it was rolled back
    assert release("old", 60).declared == Options(timeout=60.0)


def test_a_program_that_may_only_enqueue_goes_by_its_own_declaration(clock, caplog):
    class ForProducers(MemoryBroker):
        def put(self, *_, **__):
            raise Refused("this login may not")

    app, ship = an_app(ForProducers(clock))
    app.queue("orders", crash_budget=7)

    job = app.broker.get(ship.enqueue(1).id)

    assert read_body(job.body).crash_budget == 7
    assert "queue orders: its options are not in the store: this login may not" in caplog.text


def test_programs_of_different_names_have_queues_of_their_own(store):
    for name, timeout in (("shop", 5), ("media", 60)):
        app, _ = an_app(store, name=name)
        app.queue("orders", timeout=timeout)
        assert app.broker is store
        assert app.queues.of("orders").timeout == timeout

    assert [(each.id, each.declared.timeout) for each in store.records(QueueOptions)] == [
        ("media|orders", 60.0),
        ("shop|orders", 5.0),
    ]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"retries": 3}, TypeError, r"retries=...\): there is no such option; "),
        ({"lease": 1}, Refused, "a lease of 1 s: 5 s or more"),
        ({"running": 0}, Refused, "a limit of 0 running: it is 1 or more"),
        ({"retry": 3}, Refused, r"queue orders: retry=3: write Retry\("),
        ({"retry": Retry(on=(OSError,))}, Refused, "exception classes are code and stay with the"),
        ({"rate": "often"}, Refused, "rate 'often': write 10/s"),
    ],
)
def test_options_that_nobody_could_keep_are_refused(store, options, error, sentence):
    app, _ = an_app(store)

    with pytest.raises(error, match=sentence):
        app.queue("orders", **options)
