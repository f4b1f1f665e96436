"""Order per key: one at a time, in the order of their ids, whoever claims."""

from __future__ import annotations

import threading

import pytest

from penstock.errors import Refused
from penstock.job import State, failed, put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    claim_for,
    ids_of,
    part,
    settle,
    settle_and_claim_for,
)

LIMIT, ORDER, PAUSE = RuleKind.LIMIT, RuleKind.ORDER, RuleKind.PAUSE


@pytest.fixture(params=["wait", "skip"])
def policy(request, broker):
    """Both policies: they differ only in what a job that failed for good does."""
    broker.put(Rule(ORDER, queue="orders", policy=request.param))
    return request.param


def in_order(broker, clock, count, key="ada", **fields):
    """Jobs of one key, stored; each comes after all that were made before, whatever its lane."""
    jobs = []
    for _ in range(count):
        clock.advance(seconds=0.01)
        jobs.append(a_job(clock, **{"queue": "orders", "key": key, **fields}))
    broker.enqueue(jobs)
    return ids_of(jobs)


def taken(broker, limit=10, worker="worker-1"):
    return ids_of(claim(broker, limit, worker))


def end(broker, outcome=None, limit=10):
    """Claim what there is and end it; returns the ids."""
    jobs = claim(broker, limit)
    assert all(settle(broker, job, outcome or succeeded()) for job in jobs)
    return ids_of(jobs)


def test_jobs_of_a_key_run_one_at_a_time_in_their_order(broker, clock, policy):
    """V44, A49: event n+1 is not handed out before n has ended, also not in one claim."""
    ids = in_order(broker, clock, 4)

    for expected in ids:
        [job] = claim(broker, 10)
        assert job.id == expected
        assert taken(broker, worker="worker-2") == []
        assert settle(broker, job, succeeded())

    assert taken(broker) == []


def test_the_next_one_comes_with_the_claim_that_ends_the_one_before(broker, clock, policy):
    ids = in_order(broker, clock, 2)
    [head] = claim(broker, 10)

    accepted, jobs = settle_and_claim_for(broker, [(head, succeeded())], a_worker(), limit=10)

    assert accepted == [True]
    assert ids_of(jobs) == ids[1:]


def test_keys_do_not_wait_for_each_other(broker, clock, policy):
    ada, bob = in_order(broker, clock, 2, "ada"), in_order(broker, clock, 2, "bob")

    assert sorted(taken(broker)) == sorted([ada[0], bob[0]])


def test_order_is_over_tasks_versions_and_priorities(broker, clock, policy):
    """V44: the key of a queue is one line, whatever lanes its jobs are in."""
    ids = in_order(broker, clock, 1)
    ids += in_order(broker, clock, 1, task="mail:sweep")
    ids += in_order(broker, clock, 1, priority=100)
    ids += in_order(broker, clock, 1, version=0)
    ids += in_order(broker, clock, 1, task="media:resize", priority=-100)

    assert [end(broker) for _ in ids] == [[id] for id in ids]


def test_the_same_key_in_another_queue_is_another_line(broker, clock, policy):
    ids = in_order(broker, clock, 2)
    other = in_order(broker, clock, 2, queue="mail")

    assert sorted(taken(broker)) == sorted([ids[0], *other])


def test_a_head_that_waits_for_its_retry_holds_its_key(broker, clock, policy):
    """V44: also while it is due later, and a worker has nothing else to do."""
    ids = in_order(broker, clock, 2)
    [head] = claim(broker, 10)
    settle(broker, head, try_again("no", clock.now() + 60))

    assert taken(broker) == []
    clock.advance(seconds=61)
    assert end(broker) == ids[:1]
    assert end(broker) == ids[1:]


def test_a_head_that_is_due_later_holds_its_key(broker, clock, policy):
    ids = in_order(broker, clock, 1, run_at=clock.now() + 60) + in_order(broker, clock, 1)

    assert taken(broker) == []
    clock.advance(seconds=61)
    assert taken(broker) == ids[:1]


def test_a_head_that_is_put_back_comes_first_again(broker, clock, policy):
    """RetryLater, a pause and a shutdown put back uncounted."""
    ids = in_order(broker, clock, 3)
    [head] = claim(broker, 10)
    clock.advance(seconds=5)
    settle(broker, head, put_back("shutdown"))

    assert end(broker) == ids[:1]
    assert end(broker) == ids[1:2]


def test_a_head_whose_worker_died_comes_first_again(broker, clock, policy):
    ids = in_order(broker, clock, 3)
    assert taken(broker) == ids[:1]
    clock.advance(seconds=10)
    assert taken(broker, worker="worker-2") == []
    clock.advance(seconds=10)
    assert taken(broker, worker="worker-2") == []  # lapsed, but not recovered: it holds its key
    broker.recover()

    assert taken(broker, worker="worker-2") == ids[:1]
    assert taken(broker, worker="worker-3") == []


def test_under_wait_a_head_that_failed_keeps_its_key_back(broker, clock):
    """A49: strict first in, first out per key that blocks on failed."""
    broker.put(Rule(ORDER, queue="orders", policy="wait"))
    ids = in_order(broker, clock, 3)
    bob = in_order(broker, clock, 2, "bob")
    jobs = {job.key: job for job in claim(broker, 10)}
    settle(broker, jobs["ada"], failed("no"))
    settle(broker, jobs["bob"], succeeded())

    assert end(broker) == bob[1:]
    assert taken(broker) == []
    assert broker.why(ids[1]).cause == "stuck"
    assert broker.act("retry", ids[:1]) == ids[:1]
    assert end(broker) == ids[:1]
    assert end(broker) == ids[1:2]


def test_under_wait_a_head_that_failed_and_is_deleted_lets_its_key_go(broker, clock):
    broker.put(Rule(ORDER, queue="orders", policy="wait"))
    ids = in_order(broker, clock, 2)
    end(broker, failed("no"))
    assert taken(broker) == []

    broker.act("delete", ids[:1])

    assert taken(broker) == ids[1:]


def test_under_skip_a_head_that_failed_lets_its_key_go(broker, clock):
    """V45: a stuck head is ended by its timeout, which is such an end."""
    broker.put(Rule(ORDER, queue="orders", policy="skip"))
    ids = in_order(broker, clock, 3)

    assert end(broker, failed("took too long", "timeout")) == ids[:1]
    assert end(broker) == ids[1:2]


def test_under_skip_a_failed_one_that_is_retried_waits_for_the_one_that_runs(broker, clock):
    broker.put(Rule(ORDER, queue="orders", policy="skip"))
    ids = in_order(broker, clock, 3)
    end(broker, failed("no"))
    [second] = claim(broker, 10)
    broker.act("retry", ids[:1])

    assert taken(broker, worker="worker-2") == []
    assert broker.why(ids[0]).cause == "order"
    settle(broker, second, succeeded())
    assert end(broker) == ids[:1]
    assert end(broker) == ids[2:]


def test_a_head_that_is_cancelled_lets_its_key_go(broker, clock, policy):
    ids = in_order(broker, clock, 3)
    broker.act("cancel", ids[:1])

    [second] = claim(broker, 10)
    assert second.id == ids[1]
    broker.act("cancel", ids[1:2])
    assert taken(broker) == []  # told, and not ended yet
    settle(broker, second, put_back("cancelled"))
    assert broker.get(second.id).state is State.CANCELLED
    assert taken(broker) == ids[2:]


def test_one_that_is_stored_late_comes_after_the_one_that_runs(broker, clock, policy):
    """The order is that of the ids; whoever commits late cannot take back a start."""
    late = a_job(clock, queue="orders", key="ada")
    ids = in_order(broker, clock, 2)
    [running] = claim(broker, 10)
    broker.enqueue([late])

    assert taken(broker, worker="worker-2") == []
    settle(broker, running, succeeded())
    assert end(broker) == [late.id]
    assert end(broker) == ids[1:]


def test_a_pause_keeps_the_key_and_the_order(broker, clock, policy):
    """Of the queue, of the head's task alone, of the key."""
    ids = in_order(broker, clock, 1) + in_order(broker, clock, 1, task="mail:sweep")
    for target in ({"queue": "orders"}, {"task": "mail:send"}, {"key": "ada"}):
        broker.put(Rule(PAUSE, **target))
        assert taken(broker) == []
        broker.clear(Rule, rule_id(PAUSE, **target))

    assert end(broker) == ids[:1]
    assert end(broker) == ids[1:]


def test_a_rule_by_tag_over_the_head_keeps_its_key_back(broker, clock, policy):
    ids = in_order(broker, clock, 1, tags={"tenant": "a"}) + in_order(broker, clock, 1)
    broker.put(Rule(PAUSE, tag=("tenant", "a")))

    assert taken(broker) == []
    broker.clear(Rule, rule_id(PAUSE, tag=("tenant", "a")))
    assert taken(broker) == ids[:1]


def test_a_head_that_nobody_here_can_run_keeps_its_key_back(broker, clock, policy):
    ids = in_order(broker, clock, 1, version=2) + in_order(broker, clock, 1)

    assert taken(broker) == []
    assert ids_of(claim_for(broker, a_worker("new", tasks={"mail:send": 2}), limit=9)) == ids[:1]


def test_a_job_that_waits_for_its_needs_holds_no_key(broker, clock, policy):
    """It might need one that comes after it; freed, it takes the place of its id."""
    flow = a_flow(
        clock,
        fetch=part(task="mail:sweep"),
        report=part("fetch", queue="orders", key="ada"),
    )
    flow.send(broker)
    ids = in_order(broker, clock, 2)
    jobs = {job.task: job for job in claim(broker, 10)}
    assert jobs["mail:send"].id == ids[0]

    settle(broker, jobs["mail:sweep"], succeeded())
    assert taken(broker) == []
    settle(broker, jobs["mail:send"], succeeded())
    assert end(broker) == flow.ids("report")
    assert end(broker) == ids[1:]


def test_a_job_without_a_key_is_in_no_line(broker, clock, policy):
    keyless = [a_job(clock, queue="orders") for _ in range(3)]
    tagged = [a_job(clock, queue="orders", tags={"tenant": "a"}) for _ in range(2)]
    broker.enqueue([*keyless, *tagged])
    ids = in_order(broker, clock, 2)

    found = taken(broker)

    assert sorted(found) == sorted([*ids_of(keyless), *ids_of(tagged), ids[0]])


@pytest.mark.needs("limits across buckets")
def test_a_limit_on_the_queue_stands_beside_its_order(broker, clock, policy):
    broker.put(Rule(LIMIT, queue="orders", running=2))
    heads = [in_order(broker, clock, 2, key)[0] for key in ("ada", "bob", "cy")]

    found = taken(broker)

    assert len(found) == 2
    assert set(found) < set(heads)


def test_one_key_with_many_jobs_gives_every_key_its_turn(broker, clock, policy):
    many = in_order(broker, clock, 50, "ada")
    one = in_order(broker, clock, 1, "bob")

    assert sorted(taken(broker, limit=2)) == sorted([many[0], *one])


def test_every_job_runs_in_its_order_in_the_end(broker, clock, policy):
    expected = {key: in_order(broker, clock, 7, key) for key in ("ada", "bob", "cy", "di")}
    found = {key: [] for key in expected}
    while jobs := claim(broker, 3):
        for job in jobs:
            found[job.key].append(job.id)
            settle(broker, job, succeeded())

    assert found == expected


def test_why_says_behind_which_job(broker, clock, policy):
    """V44: and what that one waits for."""
    ids = in_order(broker, clock, 2)
    claim(broker, 0)
    first = broker.why(ids[1])
    [head] = claim(broker, 10)
    second = broker.why(ids[1])
    settle(broker, head, try_again("no", clock.now() + 60))
    third = broker.why(ids[1])

    assert {why.cause for why in (first, second, third)} <= {"order", "no_worker"}
    assert second.cause == third.cause == "order"
    assert all(ids[0] in why.sentence for why in (second, third))
    assert "runs since" in second.sentence
    assert "tried again at" in third.sentence


def test_another_order_of_the_same_queue_is_refused(broker):
    """The first stands until it is taken back; the same again is nothing."""
    broker.put(Rule(ORDER, queue="orders", policy="wait"))
    broker.put(Rule(ORDER, queue="orders", policy="wait"))

    with pytest.raises(Refused, match='ordered="wait" in the store, and ordered="skip" here'):
        broker.put(Rule(ORDER, queue="orders", policy="skip"))

    assert [rule.policy for rule in broker.records(Rule)] == ["wait"]
    assert broker.clear(Rule, rule_id(ORDER, queue="orders"))
    broker.put(Rule(ORDER, queue="orders", policy="skip"))
    assert [rule.policy for rule in broker.records(Rule)] == ["skip"]


def test_once_the_order_is_taken_back_all_may_run(broker, clock, policy):
    ids = in_order(broker, clock, 3)
    assert len(taken(broker)) == 1

    broker.clear(Rule, rule_id(ORDER, queue="orders"))

    assert taken(broker) == ids[1:]


def test_many_that_claim_at_once_keep_the_order(broker, clock, policy):
    """V44: eight threads, two tasks, late heads: never two of a key, never out of order."""
    keys = ("ada", "bob", "cy")
    expected = {key: [] for key in keys}
    for number in range(10):
        for key in keys:
            task = "mail:send" if number % 2 else "mail:sweep"
            expected[key] += in_order(broker, clock, 1, key, task=task)
    ran = {key: [] for key in keys}
    running, wrong = set(), []
    counting = threading.Lock()

    def work(name):
        worker = a_worker(name)
        while not wrong:
            with counting:
                if sum(map(len, ran.values())) == 30:
                    return
            for job in claim_for(broker, worker, limit=2):
                with counting:
                    if job.key in running:
                        wrong.append(job.id)
                    running.add(job.key)
                    ran[job.key].append(job.id)
                with counting:
                    running.discard(job.key)
                broker.settle([(job, succeeded())])

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert wrong == []
    assert ran == expected


def test_heads_that_are_stored_late_never_run_beside_another(broker, clock, policy):
    """V44: each job comes before all that are stored already, while four claim at once."""
    jobs = [a_job(clock, queue="orders", key="ada") for _ in range(60)]
    running, wrong, ran = [], [], []
    counting, sending = threading.Lock(), threading.Event()

    def work(name):
        worker = a_worker(name)
        while not wrong and len(ran) < len(jobs):
            for job in claim_for(broker, worker, limit=3):
                with counting:
                    running.append(job.id)
                    if len(running) > 1:
                        wrong.append(list(running))
                sending.wait(0.001)
                with counting:
                    running.remove(job.id)
                    ran.append(job.id)
                broker.settle([(job, succeeded())])

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for job in reversed(jobs):
        broker.enqueue([job])
    for thread in threads:
        thread.join(60)

    assert wrong == []
    assert sorted(ran) == ids_of(jobs)


def test_however_many_keys_are_held_back_the_others_are_found(broker, clock):
    """A claim looks at a thousand of them at most, and the next one goes on there."""
    broker.put(Rule(ORDER, queue="orders", policy="wait"))
    stuck = [a_job(clock, queue="orders", key=f"key-{number:04}") for number in range(1_200)]
    clock.advance(seconds=1)
    behind = [a_job(clock, queue="orders", key=f"key-{number:04}") for number in range(1_200)]
    broker.enqueue([*stuck, *behind])
    left = len(stuck)
    while left:
        jobs = claim(broker, limit=400)
        broker.settle([(job, failed("no")) for job in jobs])
        left -= len(jobs)
    free = in_order(broker, clock, 1, "key-0600-free")

    found = [taken(broker) for _ in range(4)]

    assert free in found
    assert sum(map(len, found)) == 1
