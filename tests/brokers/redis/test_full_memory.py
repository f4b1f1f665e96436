"""Full memory refuses what adds jobs, whole; what ends jobs goes on."""

from __future__ import annotations

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.brokers import open_broker
from penstock.errors import StoreFull
from penstock.job import Job, try_again
from penstock.job import succeeded as done

WORKER = WorkerRow(id="w", tasks={"t": 1})


@pytest.fixture
def broker(own_redis):
    broker = open_broker(own_redis.url())
    yield broker
    broker.close()


def fill(server):
    used = dict(
        line.split(":", 1)
        for line in server.command("INFO", "memory").decode().splitlines()
        if ":" in line
    )["used_memory"]
    server.command("CONFIG", "SET", "maxmemory", int(used) // 2)


def test_an_enqueue_is_refused_whole_and_work_goes_on(broker, own_redis):
    broker.enqueue([Job(task="t") for _ in range(20)])
    broker.renew([WORKER])
    fill(own_redis)

    for extra in ({}, {"tags": {"a": "b"}, "key": "k"}):
        with pytest.raises(StoreFull, match="nothing of this call was written"):
            broker.enqueue([Job(task="t", **extra) for _ in range(3)])
    assert sum(count.ready for count in broker.count()) == 20

    jobs = []
    while found := broker.claim([Wanted(WORKER, 5)]).jobs[0]:
        assert broker.note(found[0], Note("progress", value=b"1"))
        jobs += found
    assert len(jobs) == 20
    broker.renew([WORKER])
    outcomes = [(job, done()) for job in jobs[:19]] + [(jobs[19], try_again("no", 0.0))]
    assert broker.settle(outcomes) == [True] * 20
    assert len(broker.claim([Wanted(WORKER, 5)]).jobs[0]) == 1
    broker.recover(dead="w")

    own_redis.command("CONFIG", "SET", "maxmemory", 0)
    broker.enqueue([Job(task="t")])
