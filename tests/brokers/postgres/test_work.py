"""Work on PostgreSQL: what only a server with many sessions and crashes brings about."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime

import psycopg
import pytest

from penstock import App
from penstock.app.clock import ticks
from penstock.brokers.postgres import PostgresBroker
from penstock.brokers.postgres.claimable_lanes import PostgresCandidateLane, PostgresClaimableLanes
from penstock.brokers.server_clock import FRESH_SECONDS, StoreClock
from penstock.errors import PenstockError, StoreUnreachable
from penstock.job import Lane, State, put_back, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    claim_for,
    settle_and_claim_for,
    some_jobs,
)


@pytest.fixture
def sessions(postgres_store_url):
    """A session beside the broker's own."""
    with psycopg.connect(postgres_store_url, autocommit=True) as connection:
        yield connection


def test_a_claim_that_was_lost_in_a_crash_does_not_settle_the_next(
    postgres_broker, clock, sessions
):
    """The same attempt, claimed again by another: the first one's word is stale."""
    postgres_broker.enqueue([a_job(clock, key="ada")])
    [lost] = claim(postgres_broker)
    sessions.execute("update penstock.job set state = 'ready', attempt = 0, worker = null")
    clock.advance(seconds=1)
    [held] = claim(postgres_broker, worker="worker-2")

    assert held.attempt == lost.attempt
    assert postgres_broker.settle([(lost, put_back("shutdown"))]) == [False]
    assert postgres_broker.settle([(lost, succeeded())]) == [False]
    assert postgres_broker.settle([(held, succeeded())]) == [True]


def test_what_a_limit_held_back_is_looked_for_though_other_work_was_announced(
    postgres_broker, clock
):
    postgres_broker.enqueue(some_jobs(clock, 4))
    postgres_broker.put(Rule(RuleKind.LIMIT, running=2))
    taken = claim(postgres_broker, limit=9)
    postgres_broker.settle([(job, succeeded()) for job in taken])
    # A look from the bottom is due; a claim from what was announced is allowed.
    threading.Event().wait(1.1)
    postgres_broker.enqueue(some_jobs(clock, 1, task="mail:sweep"))

    assert len(taken) == 2
    assert len(claim(postgres_broker, limit=9)) == 2


def test_a_retry_does_not_take_a_key_that_another_has_taken_meanwhile(
    postgres_broker, clock, sessions
):
    from penstock.job import Outcome, Unique

    job = a_job(clock, unique=Unique("welcome-ada"))
    postgres_broker.enqueue([job])
    [held] = claim(postgres_broker)
    postgres_broker.settle([(held, Outcome(State.FAILED, "error", failures=1))])
    other = psycopg.connect(sessions.info.dsn)
    other.execute(
        "insert into penstock.unique_key (key, job, until) values (%s, gen_random_uuid(), 'ended')",
        ("welcome-ada",),
    )
    retried: list[list[str]] = []
    trying = threading.Thread(target=lambda: retried.append(postgres_broker.act("retry", [job.id])))
    trying.start()
    trying.join(timeout=0.3)  # it waits for the other transaction
    other.commit()
    trying.join()
    other.close()

    assert retried == [[]]
    assert postgres_broker.get(job.id).state is State.FAILED


def test_a_settle_is_not_kept_waiting_by_who_takes_an_expired_key_over(
    postgres_broker, clock, sessions
):
    from penstock.job import Unique

    postgres_broker.enqueue([a_job(clock, unique=Unique("welcome-ada", seconds=10))])
    [held] = claim(postgres_broker)
    other = psycopg.connect(sessions.info.dsn)
    other.execute("update penstock.unique_key set until = until")
    try:
        assert postgres_broker.settle([(held, succeeded())]) == [True]
    finally:
        other.rollback()
        other.close()


def test_counts_are_folded_though_jobs_come_one_by_one(
    postgres_broker, clock, sessions, monkeypatch
):
    monkeypatch.setattr("penstock.brokers.postgres.recovery.FOLD_SECONDS", 0.0)
    worker = a_worker()
    for _ in range(20):
        postgres_broker.enqueue([a_job(clock)])
        [job] = claim_for(postgres_broker, worker)
        settle_and_claim_for(postgres_broker, [(job, succeeded())], worker)
    postgres_broker.recover(by=worker.id)  # one that just came has nothing to fold
    postgres_broker.recover(by=worker.id)

    assert sessions.execute("select count(*) from penstock.tally").fetchone() == (0,)


def test_a_cancel_finds_a_job_however_often_its_parcel_is_cut(
    postgres_broker, postgres_store_url, clock
):
    """The rest of a parcel is another row each time: the last look keeps claims out."""
    jobs = some_jobs(clock, 100)
    postgres_broker.enqueue(jobs)
    stop = threading.Event()

    def cut(name: str) -> None:
        broker = PostgresBroker(postgres_store_url, clock=clock)
        while not stop.is_set():
            claim_for(broker, a_worker(name), limit=1)
        broker.close()

    cutting = [threading.Thread(target=cut, args=(f"cutter-{n}",)) for n in range(3)]
    for thread in cutting:
        thread.start()
    found = [postgres_broker.act("cancel", [job.id]) for job in reversed(jobs[-20:])]
    stop.set()
    for thread in cutting:
        thread.join()

    assert all(found)


def test_offers_may_be_used_by_many_threads_at_once():
    """A worker's own thread claims, and so may a caller's."""
    candidates = PostgresClaimableLanes()
    lanes = [Lane("mail", f"mail:{n}") for n in range(50)]
    rows = [[lane.hash.to_bytes(8, "big", signed=True), None, None, None, None] for lane in lanes]
    names = {lane.hash: lane for lane in lanes}
    worker = a_worker(tasks={lane.task: 1 for lane in lanes})
    errors: list[Exception] = []
    until = time.monotonic() + 1.0

    def use() -> None:
        try:
            while time.monotonic() < until:
                candidates.forget(names)
                candidates.floors()
                candidates.learn(rows, names.__getitem__, 1.0, seconds=0.0, bottom=False)
                for candidate in candidates.best(worker, None, None, 1.0).lanes:
                    candidates.exhausted(candidate)
        except Exception as error:
            errors.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(0.000_01)
    try:
        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)

    assert errors == []


def test_a_look_that_was_slow_once_does_not_put_off_the_next_for_long():
    candidates = PostgresClaimableLanes()
    candidates.learn([], lambda _: Lane("mail", "mail:send"), 1.0, seconds=30.0, bottom=True)

    assert candidates._bottom_at - time.monotonic() <= 1.0


def test_an_offer_knows_how_many_parcels_to_ask_for():
    candidate = PostgresCandidateLane(7, Lane("mail", "mail:send"))
    candidate.per_parcel = 100.0

    assert [candidate.guess(want) for want in (1, 100, 250)] == [1, 2, 3]


def test_an_answer_that_took_long_does_not_move_the_clock():
    clock = StoreClock(lambda: None)
    now = ticks()
    clock.measured(1000.0, now, now + 0.01)
    before = clock.now()
    clock.measured(2000.0, now, now + 12)

    assert abs(clock.now() - before) < 1
    clock.measured(2000.0, now, now + 0.01)
    assert clock.now() > 1990


def test_the_clock_is_measured_again_after_a_while():
    clock = StoreClock(lambda: None)
    assert clock.stale()
    now = ticks()
    clock.measured(1000.0, now, now)
    assert not clock.stale()
    clock.measured(1000.0, now - FRESH_SECONDS - 1, now - FRESH_SECONDS - 1)
    assert clock.stale()


def test_somebody_who_sets_this_machine_s_clock_does_not_move_it(monkeypatch):
    clock = StoreClock(lambda: None)
    now = ticks()
    clock.measured(1000.0, now, now)
    right = time.time

    monkeypatch.setattr("time.time", lambda: right() + 3600)

    assert abs(clock.now() - 1000.0) < 60


def test_a_server_that_does_not_say_the_time_is_not_asked_again_at_once():
    asked: list[float] = []
    clock = StoreClock(lambda: asked.append(1))
    now = ticks()
    clock.measured(1000.0, now - FRESH_SECONDS - 1, now - FRESH_SECONDS - 1)
    assert clock.stale()

    clock.refresh()

    assert asked == [1]
    assert not clock.stale()


@pytest.mark.parametrize("joined", [False, True])
def test_after_an_hour_without_a_call_the_server_is_asked_before_a_job_is_made(
    postgres_store_url, joined
):
    """Whatever happened to the two clocks meanwhile; a web server may only join transactions."""
    app = App(postgres_store_url)

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    greet.enqueue("ada")
    clock = app.broker.clock
    now, an_hour_ago = clock.now(), ticks() - 3600
    clock.measured(now - 3600 - 500, an_hour_ago, an_hour_ago)  # 500 s behind what it is
    assert clock.now() < now - 490

    if joined:
        with psycopg.connect(postgres_store_url) as connection:
            handle = greet.options(delay=60, connection=connection).enqueue("ada")
    else:
        handle = greet.options(delay=60).enqueue("ada")

    stored = app.broker.get(handle.id)
    assert stored.run_at == pytest.approx(now + 60, abs=30)
    assert stored.enqueued_at == pytest.approx(now, abs=30)
    app.close()


def test_who_waits_for_a_unique_key_keeps_nobody_else_waiting(postgres_url):
    """It is held by a transaction that stays open."""
    app = App(postgres_url)

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    assert app.broker
    refused: list[Exception] = []

    def same_key() -> None:
        try:
            greet.options(unique="welcome-ada").enqueue("ada")
        except StoreUnreachable as error:
            refused.append(error)

    with psycopg.connect(postgres_url) as holder:
        greet.options(connection=holder, unique="welcome-ada").enqueue("ada")
        waiting = threading.Thread(target=same_key)
        waiting.start()
        began = time.monotonic()
        for number in range(20):
            greet.enqueue(str(number))
        took = time.monotonic() - began
        waiting.join()
        assert took < 30  # each of them would have waited for as long
        assert "try again" in str(refused[0])
    app.close()


def test_a_database_that_begins_otherwise_is_worked_with_as_read_committed(postgres_url):
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"alter database {name} set default_transaction_isolation = 'serializable'"
        )
    broker = PostgresBroker(postgres_url)
    with broker.store.connection() as connection, broker.store.transaction(connection) as db:
        [alone] = connection.execute("show default_transaction_isolation").fetchone()
        within = db.execute("show transaction_isolation").fetchone()["transaction_isolation"]
    broker.close()

    assert (alone, within) == ("read committed", "read committed")


def test_a_server_that_became_read_only_hands_out_nothing(postgres_url):
    """V39: a claim is a write, so that a primary that was demoted starts no job any more."""
    name = postgres_url.rpartition("/")[2].partition("?")[0]
    broker = PostgresBroker(postgres_url)
    broker.enqueue(some_jobs(broker.clock, 3))
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"alter database {name} set default_transaction_read_only = on")
    broker.close()
    demoted = PostgresBroker(postgres_url)

    for _ in range(3):
        with pytest.raises(PenstockError, match="read-only"):
            claim(demoted, 3)

    assert [count.ready for count in demoted.count()] == [3]
    demoted.close()


def test_prunes_may_run_at_the_same_time(postgres_url):
    broker = PostgresBroker(postgres_url)
    today = int(time.time() // 86400)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for day in range(today - 30, today - 20):
            at = datetime.fromtimestamp(day * 86400, UTC)
            connection.execute(
                f"create table penstock.history_{at:%Y%m%d} partition of penstock.history "
                f"for values from ({day * 86400}) to ({(day + 1) * 86400})"
            )
    errors: list[Exception] = []

    def prune() -> None:
        try:
            broker.prune(time.time() - 15 * 86400)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=prune) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.close()

    assert errors == []
