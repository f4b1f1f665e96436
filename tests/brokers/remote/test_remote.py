"""What a broker over the wire does by itself: hear of rules, go to another manager, refuse."""

from __future__ import annotations

import threading
import time

import pytest

from penstock.broker.values import Wanted
from penstock.broker.wire_verbs import VERBS
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused, StoreUnreachable
from penstock.job import Job
from penstock.manager.server import Manager
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, a_worker

PAUSE = Rule(RuleKind.PAUSE, queue="mail")


@pytest.fixture
def other(manager):
    """Another client of the same manager."""
    broker = open_broker(manager.url)
    yield broker
    broker.close()


def test_a_connection_of_the_callers_is_refused_before_anything_is_written(remote_broker, clock):
    with pytest.raises(Refused, match="leave out connection="):
        remote_broker.enqueue([a_job(clock)], connection=object())

    assert remote_broker.count() == []


def test_a_worker_hears_of_a_pause_before_it_is_in_force(remote_broker, other):
    """Nothing starts after `put` has returned, at whichever client."""
    before = other.traits.rules_version()  # from here on it listens

    remote_broker.put(PAUSE)

    assert other._watch.live
    assert other._watch.version != before


def test_a_worker_without_its_stream_asks_before_every_start(manager, remote_broker, other):
    other._watch.begin = lambda: None
    before = other.traits.rules_version()

    remote_broker.put(PAUSE)

    assert not other._watch.live
    assert other.traits.rules_version() != before


def test_while_nobody_can_be_asked_the_rules_count_as_changed():
    with Manager(MemoryBroker(), "127.0.0.1:0") as manager:
        broker = open_broker(manager.url)
        broker._watch.begin = lambda: None
        seen = [broker.traits.rules_version(), broker.traits.rules_version()]
    seen += [broker.traits.rules_version(), broker.traits.rules_version()]
    broker.close()

    assert seen[0] == seen[1]
    assert len(set(seen[1:])) == 3


def test_the_stream_of_a_client_that_does_not_answer_is_cut(remote_broker, other):
    """It then asks before every start."""
    other._watch._tell = lambda name, rules: None
    other.traits.rules_version()
    stream = other._watch._stream
    began = time.monotonic()

    remote_broker.put(PAUSE)

    assert time.monotonic() - began < 20
    assert stream.code().name == "OK"  # ended by the manager


def test_a_client_goes_on_with_the_next_manager(clock):
    store = MemoryBroker(clock)
    with Manager(store, "127.0.0.1:0") as first, Manager(store, "127.0.0.1:0") as second:
        broker = open_broker(f"penstock://127.0.0.1:{first.port},127.0.0.1:{second.port}", clock)
        job = a_job(clock)
        broker.enqueue([job])
        here = first if broker._connection.where.endswith(f":{first.port}") else second
        here.stop()
        here.stop = lambda: None

        stored = broker.get(job.id)
        assert stored is not None
        assert stored.id == job.id
        broker.close()


def test_a_manager_that_comes_back_is_found_again(clock):
    store = MemoryBroker(clock)
    with Manager(store, "127.0.0.1:0") as manager:
        broker = open_broker(manager.url, clock)
    with pytest.raises(StoreUnreachable):
        broker.count()

    with Manager(store, f"127.0.0.1:{manager.port}"):
        until = time.monotonic() + 30
        while True:
            try:
                assert broker.count() == []
                break
            except StoreUnreachable:
                assert time.monotonic() < until
    broker.close()


def test_a_verb_of_a_newer_penstock_is_refused_with_the_way_out(remote_broker, monkeypatch):
    monkeypatch.setitem(VERBS, "newer", VERBS["count"])
    request = remote_broker._connection.unary
    monkeypatch.setattr(
        remote_broker._connection,
        "unary",
        lambda method, message, *rest, **options: request(
            method, _renamed(message), *rest, **options
        ),
    )

    with pytest.raises(Refused, match="upgrade the manager first"):
        remote_broker._call("newer")


def _renamed(message):
    message.verb = "much newer"
    return message


def test_what_is_too_large_for_a_message_is_refused(remote_broker, clock, monkeypatch):
    monkeypatch.setattr("penstock.manager.store_service.MOST_BYTES", 4 * 1024 * 1024 + 100_000)
    jobs = [a_job(clock, body=b'{"args":{"n":"%s"}}' % (b"x" * 60_000)) for _ in range(3)]
    remote_broker.enqueue(jobs)

    with pytest.raises(Refused, match="ask for fewer at once"):
        remote_broker.get_many([job.id for job in jobs])


def test_a_wait_hears_what_another_client_enqueued(remote_broker, other, clock):
    while remote_broker.wait(None, 0.0):
        pass
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(remote_broker.wait(None, 20)))
    waiting.start()

    other.enqueue([a_job(clock)])

    waiting.join()
    assert heard == [True]


def test_a_closed_broker_does_not_connect_again(remote_broker):
    remote_broker.close()

    with pytest.raises(StoreUnreachable, match="is closed"):
        remote_broker.count()


def test_no_time_is_left(remote_broker):
    from penstock.broker.call_deadline import CallDeadline

    deadline = CallDeadline()
    deadline.at = time.monotonic() - 1

    with deadline.within(), pytest.raises(StoreUnreachable, match="is stopping"):
        remote_broker.count()


def test_two_managers_of_one_store_hand_out_each_job_once(clock):
    store = MemoryBroker(clock)
    jobs = [Job(task="mail:send", id=a_job(clock).id) for _ in range(40)]
    with Manager(store, "127.0.0.1:0") as first, Manager(store, "127.0.0.1:0") as second:
        brokers = [open_broker(each.url, clock) for each in (first, second)]
        brokers[0].enqueue(jobs)
        taken: list[str] = []
        for number in range(40):
            wanted = Wanted(a_worker(f"worker-{number % 4}", tasks={"mail:send": 1}), 1)
            [claimed] = brokers[number % 2].claim([wanted]).jobs
            taken += [job.id for job in claimed]
        for broker in brokers:
            broker.close()

    assert sorted(taken) == sorted(job.id for job in jobs)
