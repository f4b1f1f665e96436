"""Limits: never more running, and never more starts in any window, whoever claims."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from penstock.errors import Refused
from penstock.job import put_back, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    claim_for,
    ids_of,
    settle,
    settle_and_claim_for,
    some_jobs,
)

pytestmark = pytest.mark.needs("limits across buckets")
LIMIT, PAUSE = RuleKind.LIMIT, RuleKind.PAUSE


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


def test_no_more_run_than_the_limit_says(broker, clock, fields):
    """V26: limit 5, never 6 in flight, over two workers."""
    broker.enqueue(some_jobs(clock, 12, **fields))
    broker.put(Rule(LIMIT, queue="default", running=5))

    first = claim(broker, limit=3)
    second = claim(broker, limit=9, worker="worker-2")

    assert (len(first), len(second)) == (3, 2)
    assert claim(broker, limit=9) == []
    assert settle(broker, first[0], succeeded())
    assert len(claim(broker, limit=9, worker="worker-2")) == 1
    assert claim(broker, limit=9) == []


def test_every_job_under_a_limit_runs_in_the_end(broker, clock, fields):
    jobs = some_jobs(clock, 23, **fields)
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, queue="default", running=4))

    ran = []
    while taken := claim(broker, limit=10):
        assert len(taken) <= 4
        ran += ids_of(taken)
        assert broker.settle([(job, succeeded()) for job in taken]) == [True] * len(taken)

    assert sorted(ran) == sorted(ids_of(jobs))


def test_settling_makes_room_for_the_claim_that_rides_with_it(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 4, **fields))
    broker.put(Rule(LIMIT, queue="default", running=2))
    taken = claim(broker, limit=9)

    accepted, more = settle_and_claim_for(broker, [(taken[0], succeeded())], a_worker(), limit=9)

    assert accepted == [True]
    assert len(more) == 1


def test_many_that_claim_at_once_stay_below_it_together(broker, clock, fields):
    """Eight threads, four queues under one limit of the task: no lock is forgotten, none waits."""
    jobs = [job for queue in "abcd" for job in some_jobs(clock, 40, queue=queue, **fields)]
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, task="mail:send", running=5))
    broker.put(Rule(LIMIT, queue="a", running=3))
    held, ran, wrong = Counter[str](), [], []
    counting, at_once = threading.Lock(), threading.Barrier(8)

    def work(name: str) -> None:
        worker = a_worker(name)
        while len(ran) < len(jobs):
            at_once.wait(20)
            taken = claim_for(broker, worker, limit=3)
            with counting:
                held.update(job.queue for job in taken)
            at_once.wait(20)
            if held.total() > 5 or held["a"] > 3:
                wrong.append(dict(held))
            at_once.wait(20)
            with counting:
                held.subtract(job.queue for job in taken)
                ran.extend(ids_of(taken))
            if not all(broker.settle([(job, succeeded()) for job in taken])):
                wrong.append("stale")
            at_once.wait(20)

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert wrong == []
    assert sorted(ran) == sorted(ids_of(jobs))


def test_lanes_without_a_limit_are_handed_out_as_before(broker, clock):
    broker.put(Rule(LIMIT, queue="mail", running=1))
    broker.enqueue(some_jobs(clock, 5, queue="mail"))
    broker.enqueue(some_jobs(clock, 5, queue="media"))

    taken = claim(broker, limit=10)

    assert sorted(job.queue for job in taken) == ["mail"] + ["media"] * 5


def test_a_limit_counts_all_lanes_that_it_covers(broker, clock):
    """Of a task, over its queues, priorities and versions."""
    broker.put(Rule(LIMIT, task="mail:send", running=3))
    broker.enqueue([a_job(clock, queue=queue, priority=p) for queue in "abc" for p in (0, 5)])
    broker.enqueue([a_job(clock, "mail:sweep", queue="a")])

    taken = claim(broker, limit=10)

    assert sorted(job.task for job in taken) == ["mail:send"] * 3 + ["mail:sweep"]


@pytest.mark.needs("order across buckets")  # which of the two tasks gets the last place
def test_the_narrowest_of_several_limits_counts(broker, clock):
    broker.put(Rule(LIMIT, queue="default", running=4))
    broker.put(Rule(LIMIT, task="mail:send", running=2))
    broker.put(Rule(LIMIT, queue="default", task="mail:sweep", running=9))
    broker.enqueue(some_jobs(clock, 5) + some_jobs(clock, 5, "mail:sweep"))

    taken = claim(broker, limit=20)

    assert sorted(job.task for job in taken) == ["mail:send"] * 2 + ["mail:sweep"] * 2


def test_what_was_running_before_counts_too(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 6, **fields))
    assert len(claim(broker, limit=3)) == 3

    broker.put(Rule(LIMIT, queue="default", running=4))

    assert len(claim(broker, limit=9)) == 1


def test_lowering_a_limit_stops_new_starts_only(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 10, **fields))
    broker.put(Rule(LIMIT, queue="default", running=4))
    taken = claim(broker, limit=9)

    broker.put(Rule(LIMIT, queue="default", running=2))

    for job in taken[:2]:
        assert settle(broker, job, succeeded())
        assert claim(broker, limit=9) == []
    assert settle(broker, taken[2], succeeded())
    assert len(claim(broker, limit=9)) == 1


def test_raising_or_clearing_a_limit_lets_more_start(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 10, **fields))
    broker.put(Rule(LIMIT, queue="default", running=1))
    assert len(claim(broker, limit=9)) == 1
    broker.put(Rule(LIMIT, queue="default", running=3))
    assert len(claim(broker, limit=9)) == 2

    assert broker.clear(Rule, rule_id(LIMIT, queue="default")) is True

    assert len(claim(broker, limit=9)) == 7
    assert broker.clear(Rule, rule_id(LIMIT, queue="default")) is False


def test_a_limit_ends_by_itself_at_its_time(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 3, **fields))
    broker.put(Rule(LIMIT, queue="default", running=1, until=clock.now() + 60))
    assert len(claim(broker, limit=9)) == 1

    clock.advance(seconds=60)

    assert len(claim(broker, limit=9)) == 2


def test_what_a_dead_worker_held_is_free_once_it_is_recovered(broker, clock, fields):
    """Within one lease after a crash; until then it still counts."""
    broker.enqueue(some_jobs(clock, 6, **fields))
    broker.put(Rule(LIMIT, queue="default", running=2))
    assert len(claim(broker, limit=9, worker="worker-2")) == 2
    clock.advance(seconds=16)
    assert claim(broker, limit=9) == []

    assert broker.recover() == 2

    assert len(claim(broker, limit=9)) == 2


def test_a_job_that_is_put_back_makes_room(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 2, **fields))
    broker.put(Rule(LIMIT, queue="default", running=1))
    [job] = claim(broker, limit=9)

    assert settle(broker, job, put_back("paused"))

    assert len(claim(broker, limit=9)) == 1


def test_a_pause_beside_a_limit_holds_back_everything(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 3, **fields))
    broker.put(Rule(LIMIT, queue="default", running=2))
    broker.put(Rule(PAUSE, queue="default"))
    assert claim(broker, limit=9) == []

    broker.clear(Rule, rule_id(PAUSE, queue="default"))

    assert len(claim(broker, limit=9)) == 2


def test_no_more_start_in_any_window_than_the_rate_says(broker, clock, fields):
    """G31, G40, V25: by steps of a tenth, whatever the window's edge."""
    broker.enqueue(some_jobs(clock, 100, **fields))
    broker.put(Rule(LIMIT, queue="default", rate=(10, 1.0)))
    starts: list[tuple[int, int]] = []  # the first and last moment each may begin, in milliseconds
    for tick in range(120):
        for job in claim(broker, limit=7, worker=f"worker-{len(starts) % 3}"):
            within = round(1000 * (job.start_within or 0.0))
            starts.append((100 * tick, 100 * tick + within))
            assert settle(broker, job, succeeded())
        clock.advance(seconds=0.1)

    assert len(starts) == 100
    assert starts[-1][0] - starts[0][0] >= 9850  # and not twice at an edge
    # Also where each begins as late as it may, and others at once.
    for begin in (at for pair in starts for at in pair):
        assert sum(any(begin <= at < begin + 1000 for at in pair) for pair in starts) <= 10


def test_a_job_under_a_rate_knows_how_long_it_may_take_to_begin(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 2, **fields))
    [free] = claim(broker)
    broker.put(Rule(LIMIT, task="mail:send", rate=(100, 60.0)))

    [held] = claim(broker)

    assert free.start_within is None
    assert held.start_within == 1.0
    assert settle(broker, held, succeeded())


def test_a_rate_holds_over_workers_and_over_put_backs(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 9, **fields))
    broker.put(Rule(LIMIT, queue="default", rate=(3, 60.0)))
    [job] = claim(broker, limit=1)
    assert settle(broker, job, put_back("shutdown"))
    assert len(claim(broker, limit=9, worker="worker-2")) == 2

    assert claim(broker, limit=9) == []
    clock.advance(seconds=60.9)
    assert claim(broker, limit=9) == []
    clock.advance(seconds=0.2)
    assert len(claim(broker, limit=9)) == 3


def test_a_rate_that_is_lowered_counts_what_has_started(broker, clock):
    broker.enqueue(some_jobs(clock, 30))
    broker.put(Rule(LIMIT, queue="default", rate=(10, 60.0)))
    assert len(claim(broker, limit=6)) == 6

    broker.put(Rule(LIMIT, queue="default", rate=(4, 60.0)))

    assert claim(broker, limit=9) == []
    broker.put(Rule(LIMIT, queue="default", rate=(8, 60.0)))
    assert len(claim(broker, limit=9)) == 2


def test_a_wall_clock_that_jumps_opens_no_window(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 9, **fields))
    broker.put(Rule(LIMIT, queue="default", rate=(3, 10.0)))
    assert len(claim(broker, limit=9)) == 3

    clock.jump(seconds=3600)
    assert claim(broker, limit=9) == []
    clock.jump(seconds=-3595)
    assert claim(broker, limit=9) == []
    clock.advance(seconds=11.1)

    assert len(claim(broker, limit=9)) == 3


def test_running_and_rate_together(broker, clock):
    broker.enqueue(some_jobs(clock, 20))
    broker.put(Rule(LIMIT, queue="default", running=2, rate=(3, 60.0)))
    first = claim(broker, limit=9)
    assert len(first) == 2
    assert broker.settle([(job, succeeded()) for job in first]) == [True, True]

    assert len(claim(broker, limit=9)) == 1
    assert claim(broker, limit=9) == []


def test_counted_apart_from_what_may_be_claimed(broker, clock, fields):
    broker.enqueue(some_jobs(clock, 10, **fields))
    broker.put(Rule(LIMIT, queue="default", running=4))
    assert len(claim(broker, limit=3)) == 3

    [count] = broker.count()

    assert (count.running, count.ready, count.limited, count.total) == (3, 1, 6, 10)


def test_why_names_the_limit_who_holds_it_and_when_it_is_free(broker, clock, fields):
    jobs = some_jobs(clock, 4, **fields)
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, queue="default", running=3, author="ada", reason="small disk"))
    claim(broker, limit=2)
    claim(broker, limit=2, worker="worker-2")

    answer = broker.why(jobs[-1].id)

    assert answer.cause == "limit"
    assert answer.sentence.startswith("Queue default is limited to 3 running by ada since ")
    assert "3 run now (2 on worker-1, 1 on worker-2)" in answer.sentence
    assert "the next may start when one of them has ended" in answer.sentence


def test_why_says_when_a_rate_lets_the_next_start(broker, clock):
    jobs = some_jobs(clock, 4)
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, task="mail:send", rate=(3, 60.0)))
    claim(broker, limit=9)
    clock.advance(seconds=1)

    answer = broker.why(jobs[-1].id)

    assert answer.cause == "limit"
    assert "Task mail:send is limited to 3 starts in 60 s" in answer.sentence
    assert "the next may start in 60.0 s" in answer.sentence


def test_deleting_what_is_held_back_leaves_nothing_counted(broker, clock):
    """G40: no counter of delayed jobs that drifts."""
    jobs = some_jobs(clock, 10, tags={"tenant": "a"})
    broker.enqueue(jobs)
    broker.put(Rule(LIMIT, queue="default", rate=(3, 60.0)))
    taken = claim(broker, limit=9)
    left = [job.id for job in jobs if job.id not in ids_of(taken)]

    assert sorted(broker.act("delete", left)) == sorted(left)

    [count] = broker.count()
    assert (count.ready, count.limited) == (0, 0)


def test_rules_show_a_limit_as_it_was_set(broker, clock):
    rule = broker.put(
        Rule(LIMIT, queue="mail", task="mail:send", running=5, rate=(100, 60.0), author="ada")
    )
    each = broker.put(Rule(LIMIT, queue="mail", task="mail:send", running=1, per_key=True))

    assert sorted(broker.records(Rule), key=lambda rule: rule.per_key) == [rule, each]
    assert (rule.running, rule.rate, rule.created_at) == (5, (100, 60.0), clock.now())


def test_the_history_tells_who_set_which_limit(broker):
    broker.put(Rule(LIMIT, queue="mail", rate=(10, 1.0), author="ada", reason="provider"))
    broker.clear(Rule, rule_id(LIMIT, queue="mail"), author="bob")

    was_set, cleared = [json.loads(event.data) for event in broker.history()]

    assert was_set == {
        "id": rule_id(LIMIT, queue="mail"),
        "kind": "limit",
        "queue": "mail",
        "task": None,
        "author": "ada",
        "reason": "provider",
        "rate": [10, 1.0],
        "set": True,
    }
    assert (cleared["author"], cleared["set"]) == ("bob", False)


@pytest.mark.parametrize(
    "numbers",
    [
        {},
        {"running": 0},
        {"running": -1},
        {"rate": (0, 1.0)},
        {"rate": (5, 0.0)},
        {"rate": (5, 1e9)},
    ],
)
def test_a_limit_of_nothing_is_refused(broker, numbers):
    """That is a pause."""
    with pytest.raises(Refused):
        broker.put(Rule(LIMIT, queue="mail", **numbers))

    assert broker.records(Rule) == []
