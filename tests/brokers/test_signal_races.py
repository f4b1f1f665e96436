"""A signal and something else at the same moment, in two processes: one of the two stands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.testing.conformance.control.test_signal_races import (
    ROUNDS,
    an_approval,
    check_one_end,
)
from penstock.testing.conformance.factories import a_worker, claim_for
from tests.brokers.another import Another

PROGRAM = """
import sys
from penstock.brokers import open_broker

broker = open_broker(sys.argv[1])
print("open", flush=True)
for line in sys.stdin:
    word, _, job = line.strip().partition(" ")
    if word == "signal":
        print(len(broker.signal("approve-62", b"1")), flush=True)
    else:
        print(len(broker.act("cancel", [job])), flush=True)
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


@pytest.mark.parametrize("other", ["signal", "cancel"])
def test_two_processes(store, url, other):
    with ExitStack() as stack:
        pair = [stack.enter_context(Another(PROGRAM, url)) for _ in range(2)]
        for _ in range(ROUNDS):
            flow = an_approval(SYSTEM_CLOCK)
            flow.send(store)

            pair[0].tell("signal")
            pair[1].tell(f"{other} {flow.ids('wait')[0]}")

            told = [another.answer() for another in pair]
            assert sorted(told) == ["0", "1"]
            check_one_end(store, flow, signalled=other == "signal" or told[0] == "1")
    assert claim_for(store, a_worker(), limit=10) == []
