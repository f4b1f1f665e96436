"""Stores that many threads open, close, change and listen to at random: none of them hangs."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, a_worker, claim, some_jobs

WATCHDOG = 100.0


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'jobs.db'}"
    return request.getfixturevalue("postgres_url")


def add(broker: Broker, who: str) -> None:
    broker.enqueue(some_jobs(broker.clock, 3))
    broker.enqueue([a_job(broker.clock, tags={"who": who})])


def take(broker: Broker, who: str) -> None:
    broker.settle([(job, succeeded()) for job in claim(broker, 4, worker=who)])


def listen(broker: Broker, who: str) -> None:
    broker.wait(None, 0.01)


def alter(broker: Broker, who: str) -> None:
    broker.put(Rule(RuleKind.PAUSE, queue=f"queue of {who}"))
    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue=f"queue of {who}"))


def look_after(broker: Broker, who: str) -> None:
    broker.renew([a_worker(who)])
    broker.recover(by=who)
    broker.count()


def leave(broker: Broker, who: str) -> None:
    broker.recover(dead=who)


VERBS = (add, take, listen, alter, look_after, leave)


def cycles(url: str, who: str, count: int, done: list[str]) -> None:
    """Open, do something, close; each time another store object, as another program would."""
    choose = random.Random(who)
    for _ in range(count):
        broker = open_broker(url)
        for verb in choose.sample(VERBS, 2):
            verb(broker, who)
        broker.close()
        done.append(who)


def run_cycles(url: str, threads: int, count: int) -> None:
    open_broker(url).close()
    done: list[str] = []
    names = [f"worker-{number}" for number in range(threads)]
    running = [
        threading.Thread(target=cycles, args=(url, who, count, done), daemon=True) for who in names
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(WATCHDOG)

    assert not any(thread.is_alive() for thread in running), "somebody waits for ever"
    assert len(done) == threads * count
    broker = open_broker(url)
    for who in names:
        broker.recover(dead=who)
    left = sum(count.ready for count in broker.count())
    assert len(claim(broker, left + 100, worker="the last")) == left
    broker.close()


def test_cycles_of_open_change_listen_and_close_end(url: str) -> None:
    """V64: in short."""
    run_cycles(url, threads=5, count=8)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_thousand_cycles_of_open_change_listen_and_close_end(url: str) -> None:
    """V64."""
    run_cycles(url, threads=10, count=100)
