"""What a manager says of itself over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from penstock.brokers.memory import MemoryBroker
from penstock.errors import StoreUnreachable
from penstock.job import Job
from penstock.manager import health
from penstock.manager.contract import receivers_pb2 as contract
from penstock.manager.counters import MOST_QUEUES, OTHER, Counters
from penstock.manager.health import ManagerHealth
from penstock.manager.server import Manager
from penstock.operate.worker_health import worker_health
from penstock.worker.health_server import serve
from tests.manager.test_receivers import until


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
def page(store, serving):
    answers = ManagerHealth(store, serving.dispatch, lambda: 3)
    with serve(0, answers.live, answers.ready, {"/metrics": answers.metrics}) as port:

        def get(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as got:
                    return got.status, got.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        yield get


def samples(text: str) -> dict[str, int]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {name: int(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_what_became_of_jobs_is_counted_by_queue_and_receiver(serving, store, connect, page):
    store.enqueue([Job(task="mail:send", queue="mail") for _ in range(3)])
    receiver = connect(serving, "node-1", credits=5, queues=["mail"])
    good, bad, _ = receiver.jobs(3)
    receiver.end([good])
    receiver.end([good])
    receiver.end([bad], fail=contract.Fail(error="no"))

    status, text = page("/metrics")
    found = samples(text)

    name = 'penstock_manager_receiver_{}{{receiver="everybody on this machine/node-1"}}'
    assert status == 200
    assert found['penstock_manager_receivers{queue="mail"}'] == 1
    assert found[name.format("credits")] == 2
    assert found[name.format("jobs")] == 1
    assert found['penstock_manager_jobs_sent_total{queue="mail"}'] == 3
    for outcome in ("succeeded", "failed", "stale"):
        key = f'penstock_manager_settled_total{{queue="mail",outcome="{outcome}"}}'
        assert found.get(key, 0) == (0 if outcome == "stale" else 1)
    assert found["penstock_manager_claims_total"] == serving.dispatch.rounds
    assert found["penstock_manager_wrong_tokens_total"] == 3


def test_what_was_claimed_for_a_receiver_that_is_slow_and_then_gone_is_counted(
    serving, store, connect, page
):
    body = b'{"args":{"text":"%s"}}' % (b"x" * 200_000)
    store.enqueue([Job(task="mail:send", body=body) for _ in range(60)])
    slow = connect(serving, credits=60)
    until(lambda: [held for _, _, held in serving.dispatch.receivers()] == [60])

    slow.close()

    key = 'penstock_manager_jobs_not_sent_total{queue="default"}'
    until(lambda: samples(page("/metrics")[1]).get(key, 0) > 0)


def test_it_is_red_while_the_store_does_not_answer(store, page):
    assert page("/live")[0] == page("/ready")[0] == 200

    def away(_):
        raise StoreUnreachable("the store is away")

    store.get = away
    status, text = page("/ready")

    assert (status, json.loads(text)["error"]) == (503, "the store is away")
    assert page("/live")[0] == 200
    assert "/metrics" in page("/nothing")[1]


def test_labels_are_bounded_and_cannot_break_the_format():
    counters = Counters()
    counters.sent(Job(task="t", queue=f"q{n}") for n in range(MOST_QUEUES + 5))

    assert counters.copy()[0][OTHER] == 5
    assert health._labels([("queue", 'a"b\\c\nd')]) == '{queue="a\\"b\\\\c\\nd"}'


def test_a_receiver_that_takes_nothing_is_not_shown_as_one_that_hears_nothing(
    serving, store, connect
):
    connect(serving)  # without credits: it is not asked for

    row = until(
        lambda: next((row for row in store.workers() if row.receiver and row.claimed_at), None)
    )

    assert worker_health(row, store.clock.now() + 59)[0] == "succeeded"
    assert all(each.host and each.pid for each in store.workers())
