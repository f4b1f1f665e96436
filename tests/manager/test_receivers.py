"""Receivers: jobs for programs in any language, with credits and settlements."""

from __future__ import annotations

import json
import time

import grpc
import pytest

from penstock.broker.values import Wanted
from penstock.brokers.memory import MemoryBroker
from penstock.job import Job, State
from penstock.manager.access import parse_manager_tokens
from penstock.manager.contract import receivers_pb2 as contract
from penstock.manager.server import Manager
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_worker
from tests.manager.conftest import SECOND

MAIL = "7f3a91c0e5d2486bb1f09e7c3a5d8264"
NEW = contract.NewJob(task="mail:send", arguments=b'{"to":"ada"}')


@pytest.fixture
def store():
    broker = MemoryBroker()
    yield broker
    broker.close()


@pytest.fixture
def serving(store):
    with Manager(store, "127.0.0.1:0") as manager:
        yield manager


def until(look, seconds: float = 30.0):
    """What this returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end
    return seen


def attempts(store):
    return [event for event in store.history() if event.kind == "attempt"]


def test_a_job_from_enqueue_to_its_result(serving, store, connect, enqueue):
    receiver = connect(serving, credits=1)
    [job_id] = enqueue(serving, NEW)

    [job] = receiver.jobs()
    assert (job.id, job.attempt, job.task) == (job_id, 1, "mail:send")
    assert json.loads(job.arguments) == {"to": "ada"}
    assert receiver.settle(job, succeed=contract.Succeed(result=b'"sent"')) == "SETTLED"
    assert receiver.settle(job, succeed=contract.Succeed()) == "STALE"

    [attempt] = attempts(store)
    assert (attempt.state, attempt.result) == (State.SUCCEEDED, b'"sent"')
    assert attempt.worker == "receiver/everybody on this machine/one"
    assert attempt.started_at is not None


def test_no_more_jobs_than_credits(serving, store, connect):
    store.enqueue([Job(task="mail:send") for _ in range(5)])
    receiver = connect(serving, credits=2)

    first = receiver.jobs()
    assert len(first) == 2
    assert sum(count.ready for count in store.count()) == 3
    receiver.grant(3)
    assert len(receiver.jobs()) == 3


def test_how_a_job_can_end(serving, store, connect):
    store.enqueue([Job(task="mail:send") for _ in range(4)])
    receiver = connect(serving, credits=4)
    good, bad, later, back = receiver.jobs()

    receiver.settle(good, succeed=contract.Succeed())
    receiver.settle(bad, fail=contract.Fail(error="no such address"))
    receiver.settle(later, retry_later=contract.RetryLater(error="busy", after=3600 * SECOND))
    receiver.settle(back, put_back=contract.PutBack(after=3600 * SECOND))

    states = {job.id: store.get(job.id) for job in (good, bad, later, back)}
    assert states[good.id].state is State.SUCCEEDED
    assert (states[bad.id].state, states[bad.id].error) == (State.FAILED, "no such address")
    assert (states[later.id].state, states[later.id].failures) == (State.READY, 1)
    assert (states[back.id].state, states[back.id].failures) == (State.READY, 0)
    assert states[later.id].run_at > time.time() + 3000


def test_a_job_with_a_time_is_handed_out_then(serving, store, connect, enqueue):
    receiver = connect(serving, credits=1)
    due_at = time.time() + 0.5

    enqueue(serving, contract.NewJob(task="mail:send", due_at=int(due_at * SECOND)))

    [job] = receiver.jobs()
    assert time.time() >= due_at
    assert job.due_at == pytest.approx(due_at * SECOND, abs=1000)


def test_what_is_sent_again_is_stored_once(serving, store, enqueue):
    once = contract.NewJob(task="mail:send", once="order 62")
    unique = contract.NewJob(task="mail:send", unique_key="sweep")

    assert enqueue(serving, once) == enqueue(serving, once)
    assert enqueue(serving, unique) == enqueue(serving, unique)
    assert sum(count.ready for count in store.count()) == 2


@pytest.mark.parametrize(
    ("job", "sentence"),
    [
        (contract.NewJob(task="mail:send", arguments=b"[1]"), "are a JSON object"),
        (contract.NewJob(task="mail:send", arguments=b"{"), "no JSON"),
        (contract.NewJob(task=""), "task ''"),
        (contract.NewJob(task="t", arguments=b'{"a":"%s"}' % (b"x" * 300_000)), "the limit is"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_of_the_call_is_stored(
    serving, store, enqueue, job, sentence
):
    with pytest.raises(grpc.RpcError) as refused:
        enqueue(serving, NEW, job)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in refused.value.details()
    assert store.count() == []


def test_many_receivers_are_served_by_one_claim(serving, store, connect):
    receivers = [connect(serving, f"r{n}") for n in range(10)]
    store.enqueue([Job(task="mail:send") for _ in range(10)])
    before = serving.dispatch.rounds
    for receiver in receivers:
        receiver.grant(1)

    jobs = [job for receiver in receivers for job in receiver.jobs()]

    assert len({job.id for job in jobs}) == 10
    assert serving.dispatch.rounds - before <= 20


def test_without_receivers_no_statement(serving, store):
    asked = []
    store.claim = lambda *_: asked.append("claim")
    store.renew = lambda *_: asked.append("renew")

    serving.dispatch.settle([], asked.append)

    assert asked == []


def test_a_pause_is_obeyed(serving, store, connect):
    receiver = connect(serving, credits=1)
    store.put(Rule(RuleKind.PAUSE, queue="default"))
    store.enqueue([Job(task="mail:send")])
    store.put(Rule(RuleKind.PAUSE, queue="other"))  # a hint that brings nothing

    [count] = store.count()
    assert (count.paused, count.running) == (1, 0)
    store.clear(Rule, Rule(RuleKind.PAUSE, queue="default").id)
    assert len(receiver.jobs()) == 1


def test_a_receiver_that_comes_back_keeps_what_it_holds_and_gives_back_the_rest(
    serving, store, connect
):
    store.enqueue([Job(task="mail:send") for _ in range(2)])
    before = connect(serving, credits=2)
    kept, lost = before.jobs()
    before.close()

    again = connect(serving, holding=[kept.id])
    again.grant(1)

    [job] = again.jobs()
    assert (job.id, store.get(lost.id).lapses) == (lost.id, 0)
    assert again.settle(kept, succeed=contract.Succeed()) == "SETTLED"
    assert again.settle(lost, succeed=contract.Succeed()) == "STALE"


def test_a_receiver_goes_on_at_another_manager_with_what_it_holds(store, connect):
    store.enqueue([Job(task="mail:send")])
    with Manager(store, "127.0.0.1:0") as first, Manager(store, "127.0.0.1:0") as second:
        [job] = connect(first, credits=1).jobs()
        first.stop()
        first.stop = lambda: None

        again = connect(second, holding=[job.id])

        assert again.settle(job, succeed=contract.Succeed()) == "SETTLED"
        assert [event.attempt for event in attempts(store)] == [1]


def test_an_end_can_be_told_to_any_manager(store, connect):
    store.enqueue([Job(task="mail:send")])
    with Manager(store, "127.0.0.1:0") as first, Manager(store, "127.0.0.1:0") as second:
        [job] = connect(first, credits=1).jobs()
        elsewhere = connect(second, "two")
        assert elsewhere.settle(job, succeed=contract.Succeed()) == "STALE"  # of another receiver

        elsewhere.name = "one"
        assert elsewhere.settle(job, succeed=contract.Succeed()) == "SETTLED"


def test_a_job_that_is_neither_settled_nor_extended_is_taken_away(serving, store, connect):
    store.enqueue([Job(task="mail:send")])
    receiver = connect(serving, credits=1, job_timeout=int(0.3 * SECOND))
    [job] = receiver.jobs()
    assert receiver.settle(job, extend=contract.Extend()) == "SETTLED"

    until(lambda: store.get(job.id).lapses)

    assert receiver.settle(job, succeed=contract.Succeed()) == "STALE"
    assert "did not settle it within 0.3 s" in attempts(store)[0].error


def test_a_receiver_says_how_long_its_claim_holds_a_job(serving, store, connect):
    """B36: shorter or longer than its `job_timeout`, and where it has none."""
    store.enqueue([Job(task="mail:send") for _ in range(3)])
    hour = contract.Extend(hold=3600 * SECOND)
    receiver = connect(serving, credits=2, job_timeout=int(0.3 * SECOND))
    longer, usual = receiver.jobs(2)
    receiver.end([longer], extend=hour)

    until(lambda: store.get(usual.id).lapses)
    assert receiver.settle(longer, succeed=contract.Succeed()) == "SETTLED"

    patient = connect(serving, "patient", credits=1)
    [shorter] = patient.jobs()
    patient.end([shorter], extend=hour)
    patient.end([shorter], extend=contract.Extend(hold=int(0.2 * SECOND)))
    until(lambda: store.get(shorter.id).lapses)
    assert "did not settle it within 0.2 s" in attempts(store)[-1].error


def test_a_silent_receiver_is_recovered_after_its_lease(clock, connect):
    store = MemoryBroker(clock)
    store.enqueue([Job(task="mail:send", id=_id_at(clock))])
    with Manager(store, "127.0.0.1:0") as manager:
        gone = connect(manager, credits=1)
        [job] = gone.jobs()
        gone.close()
        until(lambda: not manager.dispatch._receivers)

        clock.advance(seconds=16)
        store.recover()

    after = store.get(job.id)
    assert (after.state, after.lapses) == (State.READY, 1)
    store.close()


def _id_at(clock):
    from penstock.enqueue.ids import Ids

    return Ids(clock).first()


def test_a_token_of_one_queue(store, connect, enqueue):
    tokens = parse_manager_tokens(f"mail:work:mail:{MAIL}", "tokens")
    store.enqueue([Job(task="mail:send", queue="bills"), Job(task="mail:send", queue="mail")])
    with Manager(store, "127.0.0.1:0", tokens=tokens) as manager:
        with pytest.raises(grpc.RpcError) as nobody:
            connect(manager)
        assert nobody.value.code() is grpc.StatusCode.UNAUTHENTICATED
        receiver = connect(manager, token=MAIL, credits=9)
        assert [job.queue for job in receiver.jobs()] == ["mail"]
        for wrong in (
            lambda: connect(manager, token=MAIL, queues=["bills"]),
            lambda: enqueue(manager, contract.NewJob(task="t", queue="bills"), token=MAIL),
        ):
            with pytest.raises(grpc.RpcError, match="not of the queue"):
                wrong()


def test_a_job_of_somebody_else_cannot_be_settled(serving, store, connect):
    store.enqueue([Job(task="mail:send")])
    [[held]] = store.claim([Wanted(a_worker())]).jobs
    receiver = connect(serving)

    job = contract.ReceivedJob(id=held.id, attempt=held.attempt)
    assert receiver.settle(job, succeed=contract.Succeed()) == "STALE"
    assert store.get(held.id).state is State.RUNNING


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        ({"tasks": []}, "names the tasks"),
        ({"credits": 1001}, "1,000 are open at a time"),
        ({"name": ""}, "receiver ''"),
    ],
)
def test_a_stream_that_begins_wrong_is_refused(serving, connect, first, sentence):
    def begin():
        next(connect(serving, **{"name": "one", **first}).stream)

    with pytest.raises(grpc.RpcError) as refused:
        begin()

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence in refused.value.details()


def test_a_settlement_without_an_outcome_is_refused(serving, store, connect):
    store.enqueue([Job(task="mail:send")])
    receiver = connect(serving, credits=1)
    [job] = receiver.jobs()

    with pytest.raises(grpc.RpcError, match="has no outcome"):
        receiver.settle(job)
