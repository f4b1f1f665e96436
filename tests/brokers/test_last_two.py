"""The last two jobs of a map end at once, in two processes: what follows is freed exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.job import succeeded
from penstock.testing.conformance.factories import a_flow, a_worker, claim_for, ids_of, part
from tests.brokers.another import Another

ROUNDS = 50
PROGRAM = """
import sys
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.job import failed, succeeded

broker = open_broker(sys.argv[1])
worker = WorkerRow(id=sys.argv[2], tasks={"mail:send": 1})
jobs = []
print("open", flush=True)
for word in sys.stdin:
    if word == "claim\\n":
        jobs = broker.claim([Wanted(worker)]).jobs[0]
        print(len(jobs), flush=True)
    else:
        outcome = failed("no") if word == "fail\\n" else succeeded(b"1")
        print(broker.settle([(job, outcome) for job in jobs])[0], flush=True)
broker.close()
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_store_url")


@pytest.fixture
def store(url: str) -> Iterator[Broker]:
    broker = open_broker(url)
    yield broker
    broker.close()


def race(store: Broker, url: str, rounds: int, words: tuple[str, str]) -> list[int]:
    """How many jobs were ready in each round, once both had settled."""
    freed = []
    with ExitStack() as stack:
        pair = [
            stack.enter_context(Another(PROGRAM, url, f"worker-{number}")) for number in range(2)
        ]
        for _ in range(rounds):
            flow = a_flow(
                SYSTEM_CLOCK,
                left=part(jobs=2),
                last=part("left", on_failure="continue"),
                also=part("left"),
            )
            flow.send(store)
            for another in pair:  # in turn: one would not wait for a parcel that the other cuts
                another.tell("claim")
                assert another.answer() == "1"

            for another, word in zip(pair, words, strict=True):
                another.tell(word)

            assert [another.answer() for another in pair] == ["True", "True"]
            jobs = claim_for(store, a_worker("worker-3"), limit=10)
            expected = flow.ids("last") + (flow.ids("also") if "fail" not in words else [])
            assert sorted(ids_of(jobs)) == sorted(expected)
            assert claim_for(store, a_worker("worker-3"), limit=10) == []
            assert store.settle([(job, succeeded()) for job in jobs]) == [True] * len(jobs)
            row = store.flow(flow.flow.id)
            assert row is not None
            assert row.ended_at is not None
            assert [node.jobs_left for node in row.nodes] == [0, 0, 0]
            freed.append(len(jobs))
    return freed


@pytest.mark.parametrize("words", [("end", "end"), ("end", "fail")], ids=["well", "badly"])
def test_what_follows_starts_once(store, url, words):
    """G26, V46: whichever process was the last."""
    freed = race(store, url, ROUNDS // 2, words)

    assert freed == [2 if "fail" not in words else 1] * (ROUNDS // 2)
    assert all(not count.total for count in store.count())


@pytest.mark.soak
def test_what_follows_starts_once_a_thousand_times(store, url):
    """G26, V46: the full number."""
    assert race(store, url, 1000, ("end", "end")) == [2] * 1000
