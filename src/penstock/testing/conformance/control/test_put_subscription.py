"""Put and clear a subscription: kept as it is, under its name; the same again is nothing."""

from __future__ import annotations

import json
import threading

import pytest

from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.job import Job


def a_subscription(name: str = "receipts", pattern: str = "order.*") -> Subscription:
    job = Job(task="mail:send", id="", tags={"a": "b"}, body=b'{"args":{},"timeout":5}')
    where = ("arg.order.country:FR", "-tag.test:yes")
    return Subscription(name=name, pattern=pattern, job=job, parameter="order", where=where)


def test_everything_about_it_is_kept_by_its_name(broker, clock):
    """V70, B53."""
    kept = [broker.put(a_subscription(name)) for name in ("b", "C", "a b", "\u00e9")]

    assert broker.records(Subscription) == sorted(kept, key=lambda each: each.name)
    assert {each.created_at for each in kept} == {clock.now()}
    assert broker.count() == []


def test_put_again_it_stays_and_another_pattern_replaces_it(broker, clock):
    kept = broker.put(a_subscription())
    clock.advance(hours=1)
    assert broker.put(a_subscription()) == kept

    changed = broker.put(a_subscription(pattern="order.#"), "ada", "all of it")

    assert (changed.pattern, changed.created_at) == ("order.#", kept.created_at)
    assert broker.records(Subscription) == [changed]
    rows = [json.loads(row.data) for row in broker.history() if row.kind == "subscription"]
    assert rows == [
        {"subscription": "receipts", "says": "put"},
        {"subscription": "receipts", "says": "put", "author": "ada", "reason": "all of it"},
    ]


def test_cleared_it_is_gone_once(broker, clock):
    broker.put(a_subscription())

    assert broker.clear(Subscription, "receipts", "ada", "ended")
    assert not broker.clear(Subscription, "receipts")

    assert broker.records(Subscription) == []
    assert len([row for row in broker.history() if row.kind == "subscription"]) == 2


def test_what_is_no_pattern_is_refused(broker, clock):
    with pytest.raises(Refused, match=r"pattern 'order\*'"):
        broker.put(a_subscription(pattern="order*"))

    assert broker.records(Subscription) == []


def test_two_that_put_one_at_once_put_it_once(broker, clock):
    together = threading.Barrier(2)

    def put() -> None:
        together.wait()
        broker.put(a_subscription())

    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(broker.records(Subscription)) == 1
    assert len([row for row in broker.history() if row.kind == "subscription"]) == 1
