"""The rights that docs/how-to/redis.md gives a user are enough for everything, and no more."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from penstock.broker.filter import Filter
from penstock.brokers import open_broker, store_condition
from penstock.errors import MissingRight
from penstock.job import failed, succeeded
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_flow, a_worker, claim, part, some_jobs
from penstock.testing.redis import RedisServer
from penstock.testing.redis.programs import has_program

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "redis.md"
KINDS = [kind for kind in ("valkey", "redis") if has_program(kind)]


@pytest.fixture(params=KINDS)
def url(request):
    [line] = re.findall(r"redis-cli (ACL SETUSER .*)", PAGE.read_text(encoding="utf-8"))
    with RedisServer(kind=request.param) as server:
        server.command(*shlex.split(line))
        yield f"redis+unix://shop:password@{server.socket}"


def test_they_are_enough_for_every_verb(url, clock):
    broker = open_broker(url, clock)
    flow = a_flow(clock, work=part(jobs=2), last=part("work"))
    flow.send(broker)
    broker.enqueue(some_jobs(clock, 3, tags={"tenant": "a"}))
    broker.put(Rule(RuleKind.PAUSE, "other"), "ada")
    jobs = claim(broker, 4)
    broker.renew([a_worker()], [job.id for job in jobs])
    assert all(broker.settle([(job, succeeded()) for job in jobs[:3]]))
    assert broker.settle([(jobs[3], failed("x"))]) == [True]
    assert broker.act("retry", [jobs[3].id]) == [jobs[3].id]
    assert broker.signal("nobody", b"1") == []
    assert len(broker.find(Filter()).jobs) == 6
    assert broker.count()
    assert broker.gauge() == 1
    assert broker.history()
    assert broker.wait(None, 0.01) in {True, False}
    broker.stage("w", "p", some_jobs(clock, 2))
    assert broker.commit_write("w", {"p": 2}).jobs == 2
    clock.advance(days=3)
    assert broker.recover() == 0
    assert broker.prune(clock.now() - 86400) > 0
    broker.close()
    seen = store_condition(url, thorough=True)
    assert (seen.exists, seen.unseen, seen.trouble) == (True, None, ())


def test_they_reach_no_other_key(url, clock):
    with pytest.raises(MissingRight, match="this user may not do that"):
        open_broker(f"{url}?prefix={{other}}:", clock)
