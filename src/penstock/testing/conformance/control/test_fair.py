"""Fairness between keys: no key waits for all the jobs of another."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from penstock.errors import Refused
from penstock.job import put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    claim,
    claim_for,
    ids_of,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.scope(of="bucket")

LIMIT, ORDER, PAUSE = RuleKind.LIMIT, RuleKind.ORDER, RuleKind.PAUSE


@pytest.fixture(autouse=True)
def fair(broker):
    """The queue mail is handed out fairly."""
    broker.put(Rule(ORDER, queue="mail", policy="fair"))


def sent(broker, clock, count, key=None, **fields):
    """Jobs of one key, stored, each later than those before."""
    jobs = []
    for _ in range(count):
        clock.advance(seconds=0.01)
        jobs.append(a_job(clock, **{"queue": "mail", "key": key, **fields}))
    broker.enqueue(jobs)
    return ids_of(jobs)


def keys_of(jobs):
    return Counter(job.key for job in jobs)


def test_one_keys_many_jobs_do_not_delay_anothers_single_one(broker, clock):
    """D64, G54: whatever the backlog, a key has its turn after one job of each other key."""
    backlog = sent(broker, clock, 200, "ada")
    [single] = sent(broker, clock, 1, "bob")

    found = ids_of(claim(broker)) + ids_of(claim(broker))

    assert sorted(found) == sorted([backlog[0], single])


def test_a_batch_takes_the_same_of_each_key(broker, clock):
    for key in ("ada", "bob", "cy"):
        sent(broker, clock, 30, key)
    sent(broker, clock, 2, "di")

    found = keys_of(claim(broker, limit=32))

    assert found.pop("di") == 2
    assert sum(found.values()) == 30
    assert max(found.values()) - min(found.values()) <= 2


def test_a_batch_begins_with_one_of_each_key(broker, clock):
    for key in ("ada", "bob", "cy"):
        sent(broker, clock, 10, key)

    jobs = claim(broker, limit=12)

    assert {job.key for job in jobs[:3]} == {"ada", "bob", "cy"}


def test_claims_one_by_one_go_round_the_keys(broker, clock):
    for key in ("ada", "bob", "cy", "di"):
        sent(broker, clock, 10, key)

    found = keys_of(claim(broker)[0] for _ in range(12))

    assert found == {"ada": 3, "bob": 3, "cy": 3, "di": 3}


def test_within_a_key_the_first_in_is_the_first_out(broker, clock):
    expected = {key: sent(broker, clock, 12, key) for key in ("ada", "bob")}
    found = {"ada": [], "bob": []}
    while jobs := claim(broker, limit=5):
        for job in jobs:
            found[job.key].append(job.id)

    assert found == expected


@pytest.mark.parametrize("fields", [{}, {"tags": {"a": "b"}}], ids=["plain", "tagged"])
def test_jobs_without_a_key_are_one_key(broker, clock, fields):
    """Those in parcels and those with a row of their own, in one line."""
    plain = some_jobs(clock, 40, queue="mail", **fields)
    broker.enqueue(plain)
    ids = sent(broker, clock, 10, "ada")

    jobs = claim(broker, limit=8)
    found = keys_of(jobs)

    assert found == {None: 4, "ada": 4}
    assert [job.id for job in jobs if job.key is None] == ids_of(plain)[:4]
    assert [job.id for job in jobs if job.key] == ids[:4]


def test_jobs_without_a_key_are_first_in_first_out_whatever_they_travel_in(broker, clock):
    rows = sent(broker, clock, 2, tags={"a": "b"})
    clock.advance(seconds=1)
    packed = some_jobs(clock, 3, queue="mail")
    broker.enqueue(packed)
    clock.advance(seconds=1)
    later = sent(broker, clock, 2, tags={"a": "b"})
    sent(broker, clock, 1, "ada")

    found = [job.id for job in claim(broker, limit=6) if job.key is None]

    assert sorted(found) == sorted([*rows, *ids_of(packed)])
    assert [job.id for job in claim(broker, limit=6)] == later


def test_with_only_plain_jobs_nothing_is_different(broker, clock):
    jobs = some_jobs(clock, 20, queue="mail")
    broker.enqueue(jobs)

    assert ids_of(claim(broker, limit=7)) == ids_of(jobs)[:7]


def test_every_job_runs_in_the_end(broker, clock):
    ids = [id for n in range(7) for id in sent(broker, clock, n * 3, f"key-{n}")]
    broker.enqueue(plain := some_jobs(clock, 9, queue="mail"))
    found = []
    while jobs := claim(broker, limit=4):
        found += ids_of(jobs)

    assert sorted(found) == sorted([*ids, *ids_of(plain)])


def test_jobs_that_are_due_later_take_no_turn(broker, clock):
    sent(broker, clock, 5, "ada", run_at=clock.now() + 60)
    ids = sent(broker, clock, 3, "bob")

    assert ids_of(claim(broker, limit=10)) == ids
    clock.advance(seconds=61)
    assert len(claim(broker, limit=10)) == 5


def test_a_job_that_waits_for_its_retry_holds_nobody_up(broker, clock):
    ids = sent(broker, clock, 3, "ada")
    [first] = claim(broker)
    settle(broker, first, try_again("no", clock.now() + 60))

    assert ids_of(claim(broker, limit=10)) == ids[1:]


def test_a_higher_priority_goes_before_fairness(broker, clock):
    """G33: priority first, then the turns of the keys."""
    sent(broker, clock, 10, "ada", priority=5)
    sent(broker, clock, 10, "bob")

    assert keys_of(claim(broker, limit=10)) == {"ada": 10}


def test_tasks_of_a_queue_take_turns(broker, clock):
    """A key whose jobs are of another task waits no longer than one of the same."""
    sent(broker, clock, 300, "ada")
    sent(broker, clock, 100, "bob", task="mail:sweep")

    found = keys_of(claim(broker)[0] for _ in range(60))

    assert min(found["ada"], found["bob"]) > 5


@pytest.mark.needs("one place")  # whose keys are wherever their jobs are
def test_a_limit_per_key_leaves_the_turns_to_the_others(broker, clock):
    broker.put(Rule(LIMIT, queue="mail", running=2, per_key=True))
    for key in ("ada", "bob", "cy"):
        sent(broker, clock, 10, key)

    jobs = claim(broker, limit=20)

    assert keys_of(jobs) == {"ada": 2, "bob": 2, "cy": 2}
    settle(broker, next(job for job in jobs if job.key == "bob"), succeeded())
    assert keys_of(claim(broker, limit=20)) == {"bob": 1}


@pytest.mark.needs("limits across buckets")
def test_a_limit_of_the_queue_is_shared_fairly(broker, clock):
    broker.put(Rule(LIMIT, queue="mail", running=4))
    sent(broker, clock, 10, "ada")
    sent(broker, clock, 10, "bob")

    assert keys_of(claim(broker, limit=20)) == {"ada": 2, "bob": 2}


@pytest.mark.parametrize("target", [{"key": "ada"}, {"tag": ("tenant", "ada")}])
def test_what_a_rule_keeps_back_takes_no_turn(broker, clock, target):
    sent(broker, clock, 5, "ada", tags={"tenant": "ada"})
    sent(broker, clock, 5, "bob", tags={"tenant": "bob"})
    broker.put(Rule(PAUSE, **target))

    assert keys_of(claim(broker, limit=20)) == {"bob": 5}


def test_what_is_put_back_has_its_turn_again(broker, clock):
    ids = sent(broker, clock, 1, "ada")
    sent(broker, clock, 5, "bob")
    jobs = claim(broker, limit=2)
    [mine] = [job for job in jobs if job.key == "ada"]
    settle(broker, mine, put_back("shutdown"))

    assert ids[0] in ids_of(claim(broker, limit=2))


def test_why_says_that_it_is_next(broker, clock):
    ids = sent(broker, clock, 3, "ada")
    claim(broker)

    assert broker.why(ids[2]).cause == "next"


def test_fair_and_ordered_are_one_choice(broker):
    with pytest.raises(Refused, match='fair=True in the store, and ordered="wait" here'):
        broker.put(Rule(ORDER, queue="mail", policy="wait"))


def test_many_that_claim_at_once_share_one_key(broker, clock):
    """Each job once, none lost: claims of one key go on beside each other."""
    ids = sent(broker, clock, 120, "ada") + sent(broker, clock, 30, "bob")
    found, counting = [], threading.Lock()

    def work(name):
        worker = a_worker(name)
        while len(found) < 150:
            jobs = claim_for(broker, worker, limit=3)
            with counting:
                found.extend(ids_of(jobs))
            broker.settle([(job, succeeded()) for job in jobs])

    threads = [threading.Thread(target=work, args=(f"worker-{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert sorted(found) == sorted(ids)
