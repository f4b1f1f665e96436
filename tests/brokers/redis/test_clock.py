"""What time it is, is what the server says: the clock of the caller's machine may be wrong."""

from __future__ import annotations

import time

from penstock.brokers import open_broker
from penstock.job import Job, succeeded
from penstock.testing.conformance.factories import claim, settle


def test_a_caller_whose_clock_is_wrong_goes_by_the_server_s(own_redis, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 86400.0)  # in 1970
    broker = open_broker(own_redis.url())

    broker.enqueue([Job(task="mail:send", run_at=broker.clock.now() - 1)])
    [job] = claim(broker)
    settle(broker, job, succeeded())

    [event] = broker.history()
    seconds = int(own_redis.command("TIME")[0])
    assert seconds - 3600 < event.at < seconds + 3600
    broker.close()
