"""A Redis server is killed under load: with `always`, nothing that was acknowledged is lost."""

from __future__ import annotations

import threading

import pytest

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job, State, succeeded
from penstock.testing.checker import check_store
from penstock.testing.redis import RedisServer
from penstock.testing.redis.programs import has_program

WORKER = WorkerRow(id="w", tasks={"t": 1})
KINDS = [kind for kind in ("valkey", "redis") if has_program(kind)]


class Producer(threading.Thread):
    """Enqueues until it is told to stop, and remembers what was acknowledged."""

    def __init__(self, url):
        super().__init__()
        self.broker = open_broker(url)
        self.acknowledged = []
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.is_set():
            jobs = [Job(task="t") for _ in range(3)]
            try:
                self.broker.enqueue(jobs)
            except (UnknownOutcome, StoreUnreachable):
                self.stopped.wait(0.01)
            else:
                self.acknowledged += [job.id for job in jobs]
        self.broker.close()


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_acknowledged_survives_the_death_of_the_server(kind, kills):
    with RedisServer(kind=kind) as server:
        broker = open_broker(server.url())
        producers = [Producer(server.url()) for _ in range(3)]
        for each in producers:
            each.start()
        settled, claimed = set(), []
        for _ in range(kills):
            began = sum(len(each.acknowledged) for each in producers)
            while sum(len(each.acknowledged) for each in producers) < began + 60:
                for jobs in broker.claim([Wanted(WORKER, 10)]).jobs:
                    claimed += [job.id for job in jobs]
                    broker.settle([(job, succeeded(b"1")) for job in jobs])
                    settled.update(job.id for job in jobs)
            server.kill()
            server.start()
        for each in producers:
            each.stopped.set()
        for each in producers:
            each.join()
        acknowledged = {job for each in producers for job in each.acknowledged}
        found = broker.get_many(sorted(acknowledged))
        verdict = check_store(broker, acknowledged)
        broker.close()

    assert verdict.ok, verdict
    assert len(claimed) == len(set(claimed))
    assert acknowledged == found.keys()
    assert {job.state for job in found.values() if job.id in settled} == {State.SUCCEEDED}
    assert settled
