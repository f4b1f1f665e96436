"""Races: many threads on one store. No job lost, none twice, none settled twice."""

from __future__ import annotations

import threading
from collections import Counter

from penstock.broker.filter import Filter
from penstock.job import Job, State, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_worker,
    claim_for,
    settle_and_claim_for,
    some_jobs,
)

THREADS = 50
JOBS = 10_000


def at_once(count, act):
    """Run `act(number)` in so many threads that begin together; their errors are the test's."""
    barrier = threading.Barrier(count)
    errors = []

    def run(number):
        try:
            barrier.wait()
            act(number)
        except BaseException as error:  # the test must see it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_fifty_threads_take_and_settle_each_job_once(broker, clock):
    """D16, G1, B13: 50 workers, each job leased once and settled once."""
    jobs = [*some_jobs(clock, JOBS - 100), *some_jobs(clock, 100, tags={"tenant": "a"})]
    broker.enqueue(jobs)
    taken, settled = [], []

    def work(number):
        worker = a_worker(f"worker-{number}")
        pairs = []
        while True:
            accepted, claimed = settle_and_claim_for(broker, pairs, worker, limit=1 + number % 7)
            settled.extend(job.id for (job, _), good in zip(pairs, accepted, strict=True) if good)
            taken.extend(job.id for job in claimed)
            if not claimed:
                return
            pairs = [(job, succeeded()) for job in claimed]

    at_once(THREADS, work)

    ids = {job.id for job in jobs}
    assert Counter(taken) == dict.fromkeys(ids, 1)
    assert Counter(settled) == dict.fromkeys(ids, 1)
    assert broker.count() == []
    assert len(broker.history(limit=10 * JOBS)) == JOBS


def test_everybody_settles_the_same_jobs_and_each_is_settled_once(broker, clock):
    """C3, D35, G37: late finishers and duplicates; one completion each."""
    broker.enqueue(some_jobs(clock, 40))
    claimed = claim_for(broker, a_worker(), limit=40)
    wins = []

    def settle(number):
        order = claimed[number % 40 :] + claimed[: number % 40]
        answer = broker.settle([(job, succeeded(b"%d" % number)) for job in order])
        wins.extend(job.id for job, good in zip(order, answer, strict=True) if good)

    at_once(THREADS // 2, settle)

    assert Counter(wins) == {job.id: 1 for job in claimed}
    assert len(broker.history()) == 40


def test_the_same_jobs_sent_by_everybody_are_stored_once(broker, clock):
    """D21: sending again is safe, also at the same moment."""
    jobs = some_jobs(clock, 30)
    known = []

    def send(number):
        known.extend(broker.enqueue(jobs[number % 10 :]).known)

    at_once(20, send)

    assert sorted(job.id for job in claim_for(broker, a_worker(), limit=100)) == [
        job.id for job in jobs
    ]
    sent = Counter(job.id for number in range(20) for job in jobs[number % 10 :])
    assert Counter(known) == Counter({job_id: times - 1 for job_id, times in sent.items()})


def test_workers_that_die_and_are_recovered_lose_nothing(broker, clock):
    """D22, V2, G11: conservation under kills; no stale settlement is accepted."""
    jobs = some_jobs(clock, 300)
    broker.enqueue(jobs)
    settled = []

    def work(number):
        name = f"worker-{number}"
        life = 0
        while claimed := claim_for(broker, a_worker(f"{name}-{life}"), limit=5):
            if life < 2:  # dies with its jobs; the supervisor says so; its last words come late
                begun = [claimed[0].id] if claimed[0].lapses < 1 else []
                broker.recover(dead=f"{name}-{life}", started=begun)
                answer = broker.settle([(job, succeeded()) for job in claimed])
                assert answer == [False] * len(claimed)
                life += 1
                continue
            answer = broker.settle([(job, succeeded()) for job in claimed])
            settled.extend(job.id for job, good in zip(claimed, answer, strict=True) if good)

    at_once(20, work)
    rest = claim_for(broker, a_worker("last"), limit=1000)
    answer = broker.settle([(job, succeeded()) for job in rest])
    settled.extend(job.id for job, good in zip(rest, answer, strict=True) if good)

    assert Counter(settled) == {job.id: 1 for job in jobs}
    assert broker.count() == []


def test_nothing_starts_after_pause_returned(broker, clock):
    """D31, D35: from the moment it returned, whatever others are doing."""
    broker.enqueue(some_jobs(clock, 2000))
    paused = threading.Event()
    late = []

    def work(number):
        if number == 0:
            broker.put(Rule(RuleKind.PAUSE, queue="default"))
            paused.set()
            return
        for _ in range(20):
            told = paused.is_set()
            claimed = claim_for(broker, a_worker(f"worker-{number}"), limit=1)
            if told:
                late.extend(claimed)

    at_once(12, work)

    assert late == []
    assert claim_for(broker, a_worker(), limit=1) == []


def test_cancels_race_with_claims_and_one_of_them_wins(broker, clock):
    """I15: a job is either cancelled unstarted, or runs and is told."""
    jobs = some_jobs(clock, 200)
    broker.enqueue(jobs)
    running: list[Job] = []

    def work(number):
        if number % 2:
            broker.act("cancel", [job.id for job in jobs[number::10]])
        else:
            running.extend(claim_for(broker, a_worker(f"worker-{number}"), limit=20))

    at_once(10, work)

    states = Counter(job.state for job in broker.find(Filter(), limit=1000).jobs)
    assert sum(states.values()) == len(jobs)
    assert states[State.RUNNING] == len(running)
    assert all(broker.get(job.id).state is State.RUNNING for job in running)
