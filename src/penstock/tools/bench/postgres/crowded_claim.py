"""What a claim costs in a store with many other jobs, compared with an empty store.

The other jobs are in a thousand queues, a tenth of them delayed and a tenth of them paused. Claims
alternate between the two stores. With few other jobs, as in a test, queues and rounds are fewer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from statistics import median

from penstock.broker.protocol import Broker
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.tools.bench import measure
from penstock.tools.bench.measure import TEXT, Say
from penstock.tools.bench.postgres.databases import BenchServer
from penstock.tools.bench.tasks import app, held, other, wanted

QUEUES = 1000
_PER_QUEUE = 100  # at least
_ROUNDS = 6
_MANY = 100_000  # of fewer no figure is worth more than two rounds
_CLAIMS = 20  # in each round
_CLAIM = 100
_DAY = 86400.0


def crowd(server: BenchServer, pending: int, say: Say) -> dict[str, float]:
    """Milliseconds: claims of 100 in the empty and the full store, count, pause and resume."""
    queues = min(QUEUES, pending // _PER_QUEUE)
    rounds = _ROUNDS if pending >= _MANY else 2
    with server.database() as alone, server.database() as crowded:
        _fill(crowded, pending, queues, say)
        say(f"claims of {_CLAIM} jobs, in an empty store and in one with {pending:,} others")
        looked = [_first_claim(crowded) for _ in range(5)]
        small, large = open_broker(alone), open_broker(crowded)
        try:
            for broker in (small, large):
                _claims(broker, ("wanted",))  # the first ones only warm up
            times: dict[Broker, list[float]] = {small: [], large: []}
            for number in range(rounds):
                for broker in (small, large) if number % 2 else (large, small):
                    times[broker] += _claims(broker, ("wanted",))
            anywhere = _claims(large, None)
            counted = [_timed(large.count) for _ in range(5)]
            rules = [_pause_and_resume(large, f"crowd-{number}") for number in range(5)]
        finally:
            small.close()
            large.close()
    return {
        "pending": pending,
        "queues": queues,
        "claim_alone_ms": 1000 * median(times[small]),
        "claim_crowded_ms": 1000 * median(times[large]),
        "claim_any_ms": 1000 * median(anywhere),
        "look_ms": 1000 * median(looked),
        "count_ms": 1000 * median(counted),
        "pause_ms": 1000 * median(pause for pause, _ in rules),
        "resume_ms": 1000 * median(resume for _, resume in rules),
    }


def _fill(url: str, pending: int, queues: int, say: Say) -> None:
    per_queue = pending // queues
    tenth = [(number, TEXT) for number in range(per_queue // 10)]
    most = [(number, TEXT) for number in range(per_queue - 2 * len(tenth))]
    with measure.store(url):
        for number in range(queues):
            if number % 100 == 0:
                say(f"{number * per_queue:,} of {pending:,} pending jobs")
            queue = f"crowd-{number}"
            other.options(queue=queue).enqueue_many(most)
            held.options(queue=queue).enqueue_many(tenth)
            other.options(queue=queue, delay=_DAY).enqueue_many(tenth)
        app.broker.put(Rule(RuleKind.PAUSE, task=held.name))


def _first_claim(url: str) -> float:
    """Seconds of a new worker's first claim, which looks at all lanes from the bottom."""
    broker = open_broker(url)
    try:
        broker.enqueue([wanted.job(0, TEXT)])
        worker = WorkerRow(id="bench-first", tasks=app.known_tasks())
        began = time.perf_counter()
        jobs = broker.claim([Wanted(worker, limit=_CLAIM, queues=("wanted",))]).jobs[0]
        seconds = time.perf_counter() - began
        broker.settle([(job, succeeded()) for job in jobs])
        return seconds
    finally:
        broker.close()


def _claims(broker: Broker, queues: Collection[str] | None) -> list[float]:
    """Seconds of each claim of 100."""
    worker = WorkerRow(id="bench", tasks=app.known_tasks())
    if queues is not None:
        broker.enqueue([wanted.job(number, TEXT) for number in range(_CLAIMS * _CLAIM)])
    times: list[float] = []
    for _ in range(_CLAIMS):
        began = time.perf_counter()
        jobs = broker.claim([Wanted(worker, limit=_CLAIM, queues=queues)]).jobs[0]
        times.append(time.perf_counter() - began)
        if len(jobs) != _CLAIM:
            raise PenstockError(f"the benchmark claimed {len(jobs)} jobs instead of {_CLAIM}")
        broker.settle([(job, succeeded()) for job in jobs])
    return times


def _pause_and_resume(broker: Broker, queue: str) -> tuple[float, float]:
    rule = Rule(RuleKind.PAUSE, queue=queue)
    return (
        _timed(lambda: broker.put(rule)),
        _timed(lambda: broker.clear(Rule, rule_id(RuleKind.PAUSE, queue=queue))),
    )


def _timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
