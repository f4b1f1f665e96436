"""Whom a job is handed to and when; and what receivers that are gone or slow do to the others."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import grpc
import pytest

from penstock import App
from penstock.brokers import open_broker
from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.job import Job, State
from penstock.manager import dispatch
from penstock.manager.contract import receivers_pb2 as contract
from penstock.manager.server import Manager
from penstock.manager.store_service import STORE_THREADS
from penstock.rules.rule import Rule, RuleKind
from tests.manager.test_receivers import attempts, until

LARGE = b'{"args":{"text":"%s"}}' % (b"x" * 200_000)


@pytest.fixture
def store():
    broker = MemoryBroker()
    yield broker
    broker.close()


@pytest.fixture
def serving(store):
    with Manager(store, "127.0.0.1:0") as manager:
        yield manager


@pytest.fixture
def patient(monkeypatch):
    """The manager does not look by itself: it knows of a time, or hears of a change."""
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 3600.0)


def mail(**fields) -> Job:
    return Job(task="mail:send", **fields)


def claims_of(store) -> list[list[int]]:
    """From now on: how many jobs each claim asked for, per receiver."""
    asked: list[list[int]] = []
    claim = store.claim

    def counted(wanted, settlements=()):
        asked.append([each.limit for each in wanted])
        return claim(wanted, settlements)

    store.claim = counted
    return asked


def test_jobs_are_settled_on_the_stream_with_the_credits_for_the_next(serving, store, connect):
    store.enqueue([mail() for _ in range(3)])
    receiver = connect(serving, credits=2)
    first = receiver.jobs(2)

    assert receiver.end(first) == ["SETTLED", "SETTLED"]
    assert receiver.end(first) == ["STALE", "STALE"]
    receiver.grant(1)
    [last] = receiver.jobs()
    assert receiver.end([last], fail=contract.Fail(error="no")) == ["SETTLED"]

    assert [each.state for each in attempts(store)] == [State.SUCCEEDED] * 2 + [State.FAILED]


def test_the_least_busy_receiver_is_handed_the_next_job(serving, store, connect):
    busy, idle = connect(serving, "busy", credits=2), connect(serving, "idle")
    store.enqueue([mail(), mail()])
    busy.jobs(2)
    for receiver in (busy, idle):
        receiver.grant(2)
    until(lambda: all(free == 2 for _, free, _ in serving.dispatch.receivers()))

    store.enqueue([mail()])

    [job] = idle.jobs()
    assert store.get(job.id).worker.endswith("/idle")


def test_a_few_jobs_are_spread_and_not_all_handed_to_one(serving, store, connect):
    receivers = [connect(serving, f"r{n}", credits=100) for n in range(4)]

    store.enqueue([mail() for _ in range(8)])

    until(lambda: sum(held for _, _, held in serving.dispatch.receivers()) == 8)
    assert [held for _, _, held in serving.dispatch.receivers()] == [2, 2, 2, 2]
    assert {len(receiver.jobs(2)) for receiver in receivers} == {2}


def test_receivers_may_be_chosen_at_random_instead(store, connect):
    with Manager(store, "127.0.0.1:0", choice="random") as manager:
        receivers = [connect(manager, f"r{n}", credits=10) for n in range(2)]
        store.enqueue([mail() for _ in range(10)])

        until(lambda: sum(held for _, _, held in manager.dispatch.receivers()) == 10)
        assert len(receivers) == 2


def test_fifty_dead_receivers_do_not_delay_the_first_delivery_to_a_live_one(
    serving, store, connect
):
    """Those that are gone are out; those that are silent come after who was heard of last."""
    for number in range(25):
        connect(serving, f"gone-{number}", credits=10).close()
        connect(serving, f"silent-{number}", credits=10)
    live = connect(serving, "live", credits=1)
    until(lambda: len(serving.dispatch.receivers()) == 26)  # the others' ends have arrived

    store.enqueue([mail()])

    [job] = live.jobs()
    assert job.attempt == 1
    assert live.end([job]) == ["SETTLED"]


def test_jobs_that_are_due_soon_and_later_ones_are_handed_out_at_their_time(
    patient, serving, store, connect
):
    receiver = connect(serving, credits=10)
    later, soon = mail(run_at=time.time() + 1.0), mail(run_at=time.time() + 0.5)
    hours = mail(run_at=time.time() + 3600)
    store.enqueue([later, soon, hours])
    until(lambda: serving.dispatch.next_at == pytest.approx(soon.run_at))
    asked = claims_of(store)

    [first] = receiver.jobs()
    [second] = receiver.jobs()

    assert (first.id, second.id) == (soon.id, later.id)
    assert time.time() >= later.run_at
    assert store.get(hours.id).state is State.READY
    assert len(asked) <= 6  # nobody polled in the meantime


@pytest.mark.parametrize("change", ["an earlier job", "run now", "cancel", "delete"])
def test_a_change_of_what_is_due_soon_takes_effect_before_any_look(
    patient, serving, store, connect, change
):
    receiver = connect(serving, credits=10)
    soon, after = mail(run_at=time.time() + 0.5), mail(run_at=time.time() + 1.0)
    store.enqueue([soon, after])
    until(lambda: serving.dispatch.next_at == pytest.approx(soon.run_at))

    expected = [soon.id, after.id]
    if change == "an earlier job":
        earlier = mail(run_at=time.time() + 0.2)
        store.enqueue([earlier])
        expected.insert(0, earlier.id)
    elif change == "run now":
        store.act("retry", [after.id])
        expected.reverse()
    else:
        store.act(change, [soon.id])
        expected.remove(soon.id)

    assert [receiver.jobs()[0].id for _ in expected] == expected


def test_however_many_are_due_at_once_no_more_are_held_than_there_are_credits(
    serving, store, connect
):
    fall_due_at_once(serving, store, connect, 2_000)


@pytest.mark.soak
def test_fifty_thousand_that_are_due_at_once(serving, store, connect):
    fall_due_at_once(serving, store, connect, 50_000)


def fall_due_at_once(serving, store, connect, number: int) -> None:
    due_at = time.time() + 0.5
    jobs = [mail(run_at=due_at) for _ in range(number)]
    for start in range(0, number, 1000):
        store.enqueue(jobs[start : start + 1000])
    receiver = connect(serving, credits=500)
    sent: set[str] = set()
    while len(sent) < number:
        some = receiver.jobs()
        sent.update(job.id for job in some)
        [(_, _, held)] = serving.dispatch.receivers()
        assert held <= 500
        how = [contract.Settlement(id=job.id, attempt=1, succeed={}) for job in some]
        receiver.requests.put(contract.ReceiveRequest(settlements=how, credits=len(some)))

    assert sent == {job.id for job in jobs}


def test_idle_receivers_cost_a_claim_for_one_of_them(serving, store, connect, monkeypatch):
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 0.02)
    for number in range(20):
        connect(serving, f"r{number}", credits=5)
    asked = claims_of(store)

    until(lambda: len(asked) >= 10)

    assert max(map(len, asked)) == 1


def test_while_no_receiver_is_connected_nobody_asks_the_store(serving, store, connect, monkeypatch):
    monkeypatch.setattr(dispatch, "POLL_SECONDS", 0.02)
    receiver = connect(serving, credits=5)
    asked = claims_of(store)
    until(lambda: asked)
    receiver.close()
    until(lambda: serving.dispatch.resting)
    asked.clear()

    store.enqueue([mail()])  # a hint

    assert serving.dispatch.resting
    assert asked == []


def test_what_is_sent_fits_the_messages_that_clients_take(serving, store, connect):
    """4 MiB is what gRPC takes in any language unless it is told otherwise."""
    store.enqueue([mail(body=LARGE) for _ in range(50)])
    receiver = connect(serving, credits=50)

    assert len({job.id for job in receiver.jobs(50)}) == 50


def test_a_slow_reader_is_handed_no_more_than_it_reads_and_gives_back_the_rest(
    serving, store, connect
):
    store.enqueue([mail(body=LARGE) for _ in range(100)])
    slow = connect(serving, "slow", credits=80)  # and it never reads
    until(lambda: [held for _, _, held in serving.dispatch.receivers()] == [80])
    slow.grant(20)

    quick = connect(serving, "quick", credits=20)
    assert len(quick.jobs(20)) == 20
    quick.grant(80)
    slow.close()

    assert len(quick.jobs(10)) >= 10  # of those that slow was never sent
    assert not [each for each in attempts(store) if each.error]


def test_a_stream_that_is_opened_very_often_leaves_nothing(serving, store):
    open_often(serving, store, 200)


@pytest.mark.soak
def test_a_stream_that_is_opened_ten_thousand_times(serving, store):
    open_often(serving, store, 10_000)


def open_often(serving, store, number: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{serving.port}") as channel:
        receive = channel.stream_stream(
            "/penstock.v1.Receivers/Receive",
            request_serializer=contract.ReceiveRequest.SerializeToString,
            response_deserializer=contract.ReceiveAnswer.FromString,
        )
        for count in range(number):
            request = contract.ReceiveRequest(receiver=f"r{count % 7}", tasks=["t"], credits=1)
            stream = receive(iter([request]), timeout=60)
            next(stream)
            stream.cancel()

    until(lambda: serving.dispatch.resting)
    assert serving.dispatch.receivers() == []
    assert len([each for each in threading.enumerate() if "dispatch" in each.name]) == 0
    assert len(store.workers()) <= 8


def test_a_manager_that_stops_ends_the_streams_at_once(store, connect):
    with Manager(store, "127.0.0.1:0") as manager:
        receiver = connect(manager, credits=1)

    with pytest.raises(grpc.RpcError) as ended:
        receiver.jobs()
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_slow_store_is_asked_by_few_at_once_and_the_sending_waits_for_it(serving, store, connect):
    """So is a database with few connections to spare: eight at most are the manager's."""
    answers, now, most = threading.Event(), Counter(), Counter()

    def slowly(verb, work):
        def asked(*arguments, **named):
            now[verb] += 1
            most[verb] = max(most[verb], now[verb])
            answers.wait(60)
            now[verb] -= 1
            return work(*arguments, **named)

        return asked

    receivers = [connect(serving, f"r{n}", credits=1) for n in range(5)]
    until(lambda: len(serving.dispatch.receivers()) == 5)
    store.get, store.claim = slowly("get", store.get), slowly("claim", store.claim)
    client = open_broker(serving.url)
    callers = [threading.Thread(target=client.get, args=("some-job",)) for _ in range(20)]
    for caller in callers:
        caller.start()
    store.enqueue([mail() for _ in range(5)])

    until(lambda: now["get"] == STORE_THREADS and now["claim"])
    answers.set()

    assert {len(receiver.jobs()) for receiver in receivers} == {1}
    for caller in callers:
        caller.join()
    client.close()
    assert (most["get"], most["claim"]) == (STORE_THREADS, 1)


def test_a_receiver_sees_the_arguments_and_no_bookkeeping(serving, store, connect):
    app = App()

    @app.task(name="mail:send")
    def send(to: str) -> None: ...

    job = send.options(timeout=30, headers={"x": "1"}, key="ada", tags={"n": "1"}).job("ada")
    store.enqueue([job])

    [received] = connect(serving, credits=1).jobs()

    assert json.loads(received.arguments) == {"to": "ada"}
    told = {field.name for field, _ in received.ListFields()}
    names = {"id", "attempt", "task", "arguments", "queue", "enqueued_at", "tags", "version"}
    assert told == names | {"due_at"}


def test_a_store_that_fails_behind_a_claim_strands_no_job(patient, serving, store, connect):
    """A rule came meanwhile, so the job is not sent, and putting it back fails: it comes again."""
    claim, settle, away = store.claim, store.settle, [True]

    def claim_beside_a_new_rule(wanted, settlements=()):
        claimed = claim(wanted, settlements)
        if any(claimed.jobs) and away:
            store.put(Rule(RuleKind.PAUSE, "other"))
        return claimed

    def settle_later(pairs):
        if away:
            away.pop()
            raise StoreUnreachable("the store does not answer")
        return settle(pairs)

    store.claim, store.settle = claim_beside_a_new_rule, settle_later
    receiver = connect(serving, credits=1)

    store.enqueue([mail()])

    [job] = receiver.jobs()
    assert receiver.end([job]) == ["SETTLED"]
    assert away == []
