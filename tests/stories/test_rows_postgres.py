"""Rows of the requirements on PostgreSQL, a test each: D1-D9 and D12-D22.

They were written for systems with a table of events beside a queue of notifications. Here one
store is both: a notification is a hint, and a claim is what a held one is. Where a row describes
that mechanism, its effect is tested.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import State
from penstock.brokers.postgres import PostgresBroker
from penstock.job import put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    begun,
    claim,
    claim_for,
    settle,
    some_jobs,
)
from tests.stories.conftest import Story, eventually

PAUSE = Rule(RuleKind.PAUSE, queue="default")


@pytest.fixture
def story(tmp_path: Path, postgres_url: str) -> Iterator[Story]:
    story = Story(tmp_path, postgres_url)
    yield story
    story.close()


@pytest.fixture
def broker(postgres_broker: PostgresBroker) -> PostgresBroker:
    return postgres_broker


def reads_of(url: str, table: str) -> tuple[int, int]:
    """Scans of the whole table so far, and rows that its indexes led to."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_user_tables "
            "where schemaname = 'penstock' and relname = %s",
            (table,),
        ).fetchone()
    assert row is not None
    return row


def idle_beside(story: Story, seconds: float) -> None:
    nap = story.task("nap")
    nap.options(delay=3600).enqueue_many([(n,) for n in range(10_000)])
    story.start()
    assert nap.enqueue(-1).result(timeout=60) == -1
    time.sleep(2)
    scans, rows = reads_of(story.url, "job")

    time.sleep(seconds)

    scans_after, rows_after = reads_of(story.url, "job")
    assert scans_after == scans
    assert rows_after - rows < 10 * seconds  # a few for each look, whatever there is


def test_d1_nothing_searches_through_what_cannot_run(story):
    """D1: ten thousand stored jobs that are not due cost an idle worker nothing."""
    idle_beside(story, seconds=3)


@pytest.mark.soak
def test_d1_nothing_searches_through_what_cannot_run_for_a_minute(story):
    """D1."""
    idle_beside(story, seconds=60)


def test_d2_a_producer_and_a_worker_are_all_it_takes(story):
    """D2: delayed, retried and unpaused jobs run with no scheduler beside them."""
    story.broker.put(Rule(RuleKind.PAUSE, task="crunch"))
    story.start()
    delayed = story.task("nap").options(delay=1).enqueue(1)
    retried = story.task("stumble").enqueue(2)
    paused = story.task("crunch").enqueue(3)

    assert delayed.result(timeout=60) == 1
    assert retried.result(timeout=60) == 2
    assert paused.state() is State.READY
    story.broker.clear(Rule, rule_id(RuleKind.PAUSE, task="crunch"))
    assert paused.result(timeout=60)[0] == 3


def test_d3_an_enqueue_stores_the_job_and_makes_it_known(story):
    """D3: with no worker there is one job, and the first claim is handed that id."""
    handle = story.task("nap").enqueue(1)

    [count] = story.broker.count()
    assert (count.ready, count.running) == (1, 0)
    assert [job.id for job in claim(story.broker, 5, tasks={"nap": 1})] == [handle.id]


def test_d4_a_job_keeps_its_id_over_many_claims(broker, clock):
    """D4: what holds it is another thing each time."""
    job = a_job(clock)
    broker.enqueue([job])
    [first] = claim(broker)
    settle(broker, first, put_back("limit"))
    clock.advance(seconds=1)
    [second] = claim(broker)

    assert first.id == second.id == job.id
    assert (first.attempt, second.attempt) == (1, 2)
    assert str(first.lease) != job.id


def test_d5_a_new_job_has_no_retries_no_holder_and_is_due_at_once(broker, clock):
    """D5."""
    for job in (a_job(clock), a_job(clock, tags={"a": "b"})):
        broker.enqueue([job])

        stored = broker.get(job.id)

        assert (stored.failures, stored.lapses, stored.attempt) == (0, 0, 0)
        assert (stored.worker, stored.claimed_at) == (None, None)
        assert stored.enqueued_at == pytest.approx(clock.now(), abs=0.01)
        assert stored.run_at is None or stored.run_at <= clock.now()


def test_d6_a_job_shows_all_its_fields_and_when_it_was_enqueued_never_changes(broker, clock):
    """D6: id, queue, task, version, body, failures, run_at, enqueued_at, claimed_at, worker."""
    job = a_job(clock, queue="mail", run_at=clock.now() + 1)
    broker.enqueue([job])
    enqueued_at = broker.get(job.id).enqueued_at
    for failures in (1, 2):
        clock.advance(seconds=60)
        [held] = claim(broker)
        assert (held.claimed_at, held.worker) == (clock.now(), "worker-1")
        settle(broker, held, begun(try_again("OSError", clock.now() + 5), clock.now()))

        stored = broker.get(job.id)
        assert (stored.id, stored.queue, stored.task, stored.version) == (
            job.id,
            "mail",
            "mail:send",
            1,
        )
        assert (stored.body, stored.failures) == (job.body, failures)
        assert stored.run_at == clock.now() + 5
        assert stored.enqueued_at == enqueued_at


def test_d7_queue_and_task_pick_exactly_one_handler(broker, clock):
    """D7: the same name in two queues, and a version that nobody here has."""
    one, other = a_job(clock, queue="one"), a_job(clock, queue="other")
    newer = a_job(clock, queue="one", version=2)
    broker.enqueue([one, other, newer])

    assert [job.id for job in claim_for(broker, a_worker("a"), ["one"], 10)] == [one.id]
    assert [job.id for job in claim_for(broker, a_worker("b"), ["other"], 10)] == [other.id]
    assert claim_for(broker, a_worker("c", tasks={"mail:sweep": 1}), None, 10) == []
    assert broker.get(newer.id).state is State.READY


def test_d8_a_job_runs_in_another_process_after_enqueue_returned(story):
    """D8."""
    story.start()
    handle = story.task("nap").enqueue(1, seconds=0.1)
    returned = time.monotonic()
    handle.result(timeout=60)

    [(_, _, pid, at)] = story.ledger("nap")

    assert int(pid) != os.getpid()
    assert float(at) > returned - 0.01


def test_d9_a_worker_takes_no_more_than_it_can_run(story):
    """D9: two hands, ten slow jobs: two at once, the rest stay where they are."""
    handles = [story.task("nap").enqueue(n, seconds=0.4) for n in range(10)]
    story.start(threads=2)
    seen: Counter[int] = Counter()
    while any(handle.state() is not State.SUCCEEDED for handle in handles):
        counts = story.broker.count()
        seen[sum(count.running for count in counts)] += 1
        time.sleep(0.02)

    starts = sorted(float(line[-1]) for line in story.ledger("nap"))
    assert max(seen) == 2
    assert all(later - earlier > 0.35 for earlier, later in zip(starts, starts[2:], strict=False))


def test_d12_a_hint_about_nothing_is_harmless(story):
    """D12: hints for jobs that are gone, for lanes that never were, and such as nobody can read."""
    fleet = story.start()
    assert story.task("nap").enqueue(1).result(timeout=60) == 1
    gone = story.task("nap").options(delay=0.5).enqueue(2)
    assert story.broker.act("delete", [gone.id]) == [gone.id]
    with psycopg.connect(story.url, autocommit=True) as connection:
        for said in ("12345", "what is this", "", "," * 100, str(2**70)):
            connection.execute("select pg_notify('penstock', %s)", (said,))
    time.sleep(1)

    assert story.task("nap").enqueue(3).result(timeout=60) == 3
    assert [line[1] for line in story.ledger("nap")] == ["1", "3"]
    assert fleet.process.poll() is None
    assert "ERROR" not in fleet.output()


def test_d13_a_delayed_job_runs_when_it_is_due_and_not_before(broker, clock):
    """D13: ninety seconds; and who waits for it sleeps."""
    job = a_job(clock, run_at=clock.now() + 90)
    broker.enqueue([job])
    for _ in range(3):
        assert claim(broker) == []
        clock.advance(seconds=29.9)
    began = time.monotonic()
    while broker.wait(None, 0.0):
        pass
    assert broker.wait(None, 0.1) is False
    assert time.monotonic() - began >= 0.09
    clock.advance(seconds=0.3)

    assert [each.id for each in claim(broker)] == [job.id]
    assert claim(broker) == []


def test_d14_a_job_that_is_held_is_left_alone_until_the_lease_ran_out(broker, clock):
    """D14."""
    job = a_job(clock)
    broker.enqueue([job])
    claim(broker, worker="worker-1")
    clock.advance(seconds=14)
    assert broker.recover() == 0
    assert claim(broker, worker="worker-2") == []

    clock.advance(seconds=2)

    assert broker.recover() == 1
    assert [each.id for each in claim(broker, worker="worker-2")] == [job.id]


def test_d15_a_paused_job_stays_and_nobody_is_handed_it(broker, clock):
    """D15."""
    broker.enqueue(some_jobs(clock, 5))
    broker.put(PAUSE)

    assert claim(broker, 10) == []
    [count] = broker.count()
    assert (count.paused, count.ready, count.running, count.total) == (5, 0, 0, 5)


def test_d16_nine_times_sent_and_ten_workers_make_one_run(story, clock):
    """D16."""
    job = story.task("nap").job(1)
    for _ in range(9):
        story.app.enqueue([job])
    brokers = [PostgresBroker(story.url) for _ in range(10)]
    gate, got = threading.Barrier(10), []

    def take(number: int) -> None:
        gate.wait()
        got.extend(claim(brokers[number], 5, worker=f"worker-{number}", tasks={"nap": 1}))

    takers = [threading.Thread(target=take, args=(number,)) for number in range(10)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    for broker in brokers:
        broker.close()

    assert [each.id for each in got] == [job.id]


CHECKS: dict[str, tuple[Callable, Callable]] = {
    "paused": (
        lambda broker, clock, job: broker.put(PAUSE),
        lambda broker, clock, job: broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="default")),
    ),
    "blocked": (
        lambda broker, clock, job: broker.put(Rule(RuleKind.BLOCK, task="mail:send")),
        lambda broker, clock, job: broker.clear(Rule, rule_id(RuleKind.BLOCK, task="mail:send")),
    ),
    "held": (
        lambda broker, clock, job: claim(broker, worker="other"),
        lambda broker, clock, job: broker.recover(dead="other", started=()),
    ),
}


@pytest.mark.parametrize("order", [*itertools.permutations(CHECKS)], ids="-".join)
def test_d17_in_whatever_order_the_checks_come_the_outcome_is_the_same(broker, clock, order):
    """D17: any one of them keeps the job back, without a claim; with none left it runs once."""
    job = a_job(clock)
    broker.enqueue([job])
    for name in sorted(order, key=lambda name: name != "held"):  # what a rule covers nobody holds
        CHECKS[name][0](broker, clock, job)
        assert claim(broker) == []
    held = broker.get(job.id).attempt
    for name in order:
        assert claim(broker) == []
        CHECKS[name][1](broker, clock, job)
        clock.advance(seconds=1)
    assert broker.get(job.id).attempt == held

    [ran] = claim(broker, 10)
    assert (ran.id, ran.lapses, ran.failures) == (job.id, 0, 0)


def test_d18_no_lock_is_held_while_a_job_runs(story):
    """D18: whoever wants its row has it at once, and no transaction of the worker is open."""
    plain = story.task("nap").enqueue(1, seconds=3.0)
    tagged = story.task("nap").options(tags={"a": "b"}).enqueue(2, seconds=3.0)
    story.start()
    eventually(lambda: len(story.ledger("nap")) == 2)

    with psycopg.connect(story.url) as connection:
        held = connection.execute("select id from penstock.lease for update nowait").fetchall()
        rows = connection.execute(
            "update penstock.job set reason = 'looked at' where state = 'running' returning id"
        ).fetchall()
        connection.rollback()
        [(open_for,)] = connection.execute(
            "select coalesce(max(extract(epoch from now() - xact_start)), 0) from pg_stat_activity "
            "where application_name = 'penstock' and datname = current_database() "
            "and state like 'idle in transaction%'"
        ).fetchall()

    assert (len(held), len(rows)) == (1, 1)
    assert open_for < 2.0  # less than the jobs take
    assert [plain.result(timeout=60), tagged.result(timeout=60)] == [1, 2]


def test_d19_what_a_worker_took_comes_back_when_it_is_silent_for_a_lease(broker, clock):
    """D19: a minute where the lease is a minute; fifteen seconds by default."""
    for lease in (60.0, 15.0):
        job = a_job(clock)
        broker.enqueue([job])
        assert claim(broker, worker="silent", lease=lease)
        clock.advance(seconds=lease - 1)
        assert broker.recover() == 0

        clock.advance(seconds=2)

        assert broker.recover() == 1
        [again] = claim(broker, worker="other")
        assert again.id == job.id
        settle(broker, again, succeeded())


def test_d20_a_longer_lease_holds_longer(broker, clock):
    """D20: five minutes, and not one."""
    job = a_job(clock)
    broker.enqueue([job])
    assert claim(broker, worker="silent", lease=300.0)
    clock.advance(seconds=61)
    assert broker.recover() == 0

    clock.advance(seconds=240)

    assert broker.recover() == 1
    assert [each.id for each in claim(broker, worker="other")] == [job.id]


def test_d21_success_takes_the_job_out_of_its_place_in_one_step(broker, clock):
    """D21: there is no moment between its end and its removal; sent again it is known."""
    jobs = [a_job(clock), a_job(clock, tags={"a": "b"})]
    broker.enqueue(jobs)
    held = claim(broker, 2)
    assert broker.settle([(job, succeeded()) for job in held]) == [True, True]

    assert broker.enqueue(jobs).known == {job.id for job in jobs}
    assert broker.settle([(job, succeeded()) for job in held]) == [False, False]
    assert claim(broker, 10) == []
    assert broker.recover(dead="worker-1") == 0
    assert sum(count.total for count in broker.count()) == 0


def test_d22_a_job_whose_worker_is_killed_runs_again_and_ends(story):
    """D22."""
    handle = story.task("nap").enqueue(1, seconds=0.8)
    fleet = story.start()
    eventually(lambda: story.ledger("nap"))
    os.kill(fleet.children()[0], signal.SIGKILL)

    assert handle.result(timeout=60) == 1
    assert len(story.ledger("nap")) == 2
    assert story.successes() == {handle.id: 1}
    assert sum(count.total for count in story.broker.count()) == 0
