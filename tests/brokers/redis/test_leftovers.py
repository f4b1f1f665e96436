"""What is in Redis is in memory: once everything has ended and was pruned, nothing is left."""

from __future__ import annotations

import msgspec

from penstock.broker.values import Batch
from penstock.broker.views import Note
from penstock.enqueue.ids import derived_id
from penstock.job import Unique, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    part,
    settle,
    some_jobs,
)

# A number, a name or a row for each lane and worker: nothing that grows with the jobs.
STAYS = {"h", "holders", "lanes", "meta", "pos", "rv", "sents", "t", "workers"}


def test_nothing_that_grows_with_the_jobs_is_left_behind(redis_broker, redis_server, clock):
    broker = redis_broker
    flow = a_flow(clock, work=part(jobs=3), bad=part(), last=part("work", "bad"))
    flow = flow._replace(flow=msgspec.structs.replace(flow.flow, name="order", find={"n": 62}))
    flow.send(broker)
    broker.enqueue(some_jobs(clock, 5), batch=Batch("import"))
    broker.enqueue(some_jobs(clock, 5, tags={"tenant": "a"}, key="ada", search={"n": "1"}))
    broker.enqueue(
        [
            a_job(clock, unique=Unique("one")),
            a_job(clock, expires_at=clock.now() + 5),
            a_job(clock, run_at=clock.now() + 60),
            a_job(clock, id=derived_id("x")),
        ]
    )
    broker.stage("write", "part", some_jobs(clock, 3))
    broker.put(Rule(RuleKind.PAUSE, "other"), "ada")
    broker.clear(Rule, Rule(RuleKind.PAUSE, "other").id)
    broker.audit("export", "ada")
    for turn in range(30):
        clock.advance(seconds=10)
        jobs = claim(broker, 2)
        for job in jobs:
            broker.note(job, Note("log", "1"))
            outcome = [succeeded(b"1"), failed("x"), try_again("x", clock.now() + 1)][turn % 3]
            assert settle(broker, job, outcome)
        broker.recover()
        broker.gauge()
    while jobs := claim(broker, 100):
        broker.renew([a_worker()], [job.id for job in jobs])
        broker.settle([(job, succeeded()) for job in jobs])

    for _ in range(2):
        clock.advance(days=40)
        broker.prune(clock.now() - 86400)

    keys = {key.decode().removeprefix("{penstock}:") for key in redis_server.command("KEYS", "*")}
    assert keys <= STAYS
    assert redis_server.command("XLEN", "{penstock}:h") == 0
    assert redis_server.command("SMEMBERS", "{penstock}:sents") in ([], [b"d"])
    assert set(redis_server.command("HVALS", "{penstock}:t")) <= {b"0"}
