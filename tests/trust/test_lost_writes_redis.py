"""The memory of a Redis server is full, or its replica takes its place with writes lost."""

from __future__ import annotations

import time

import pytest

from penstock import StoreFull, UnknownOutcome
from penstock.brokers import open_broker
from penstock.job import failed, put_back, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    settle,
    some_jobs,
)
from penstock.testing.redis import RedisServer

ROOM = 4 * 2**20  # bytes that a full server has beside what it holds


@pytest.fixture
def full(clock):
    """A server whose memory is full of jobs, and how many those are."""
    with RedisServer({"maxmemory-policy": "noeviction"}) as server:
        broker = open_broker(server.url(), clock)
        used = int(server.command("INFO", "memory").split(b"used_memory:")[1].split()[0])
        server.command("CONFIG", "SET", "maxmemory", used + ROOM)
        stored = 0
        while fits(broker, jobs := [*some_jobs(clock, 100), a_job(clock, tags={"tenant": "a"})]):
            stored += len(jobs)
        yield server, broker, stored
        broker.close()


def fits(broker, jobs):
    try:
        broker.enqueue(jobs)
    except StoreFull:
        return False
    return True


def test_full_memory_lets_people_act_and_dead_workers_be_recovered(full, clock):
    _, broker, _ = full
    one, two, three = claim(broker, 3)

    broker.put(Rule(RuleKind.PAUSE, "default"), "ada", "full")
    assert claim(broker) == []
    broker.clear(Rule, Rule(RuleKind.PAUSE, "default").id)
    assert settle(broker, one, put_back("shutdown"))
    assert broker.act("cancel", [two.id]) == [two.id]
    clock.advance(seconds=60)
    assert broker.recover() == 2
    assert broker.act("cancel", [three.id]) == [three.id]
    assert broker.act("delete", [three.id]) == [three.id]
    clock.advance(days=30)
    assert broker.prune(clock.now() - 86400) > 0


def until(so):
    deadline = time.monotonic() + 60
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def pair():
    """A server and its replica."""
    with (
        RedisServer(port=True) as master,
        RedisServer({"replicaof": f"127.0.0.1 {master.port}"}, port=True) as replica,
    ):
        until(lambda: b"state=online" in master.command("INFO", "replication"))
        yield master, replica


def offset(server, name):
    return int(server.command("INFO", "replication").split(name + b":")[1].split()[0])


def test_a_replica_that_is_promoted_with_lost_writes_refuses_what_it_never_handed_out(pair):
    """The lost claim and the new one have the same attempt: only one of them may settle."""
    clock = Clock()
    master, replica = pair
    old = open_broker(master.url(), clock)
    jobs = some_jobs(clock, 6)
    old.enqueue(jobs)
    before = claim(old, 1, worker="first")
    # WAIT would be about the writes of its own connection, which has none.
    until(lambda: offset(replica, b"slave_repl_offset") >= offset(master, b"master_repl_offset"))
    replica.command("REPLICAOF", "NO", "ONE")
    lost_claims = claim(old, 3, worker="first")
    lost_jobs = some_jobs(clock, 2)
    old.enqueue(lost_jobs)
    newest = old.history()[-1:] or [None]
    assert settle(old, lost_claims[0], succeeded())
    master.kill()
    clock.advance(seconds=1)
    new = open_broker(replica.url(), clock)

    assert settle(new, before[0], succeeded())
    again = claim(new, 5, worker="second")
    assert {job.id for job in again} == {job.id for job in jobs} - {before[0].id}
    for job in lost_claims:
        assert settle(new, job, succeeded(b'"stale"')) is False
        assert settle(new, job, failed("stale")) is False
    for job in again:
        assert settle(new, job, succeeded(b'"second"'))
    assert {job.result for job in new.get_many([job.id for job in again]).values()} == {b'"second"'}
    new.enqueue(lost_jobs)
    assert len(claim(new, 5, worker="second")) == 2
    assert newest is not None
    new.close()
    old.close()


def test_jobs_that_no_replica_has_are_not_told_as_stored_the_second_time(pair, clock):
    """A job that is known is stored here: whether the replica has it is asked each time."""
    master, replica = pair
    broker = open_broker(master.url(replicas="1", retention="14d"), clock)
    broker.enqueue(some_jobs(clock, 2))
    replica.command("REPLICAOF", "NO", "ONE")
    jobs = some_jobs(clock, 2)

    with pytest.raises(UnknownOutcome, match="0 of 1 replicas"):
        broker.enqueue(jobs)
    with pytest.raises(UnknownOutcome, match="0 of 1 replicas"):
        broker.enqueue(jobs)

    replica.command("REPLICAOF", "127.0.0.1", master.port)
    until(lambda: b"state=online" in master.command("INFO", "replication"))
    assert broker.enqueue(jobs).known == {job.id for job in jobs}
    assert int(replica.command("HLEN", "{penstock}:j")) == 4
    broker.close()
