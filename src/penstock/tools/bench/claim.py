"""What a claim costs in a store with three million other jobs."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.errors import PenstockError
from penstock.job import succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.tools.bench.measure import TEXT, Say, store
from penstock.tools.bench.tasks import app, held, other, wanted

_RUNS = 5
_CLAIM = 100
_DAY = 86400.0


def claim(folder: Path, around: int, say: Say) -> dict[str, float]:
    """Median milliseconds to claim 100 jobs in an empty and in a full store; pause and resume."""
    alone, crowded = folder / "alone.db", folder / "crowded.db"
    rows = [(number, TEXT) for number in range(around)]
    with store(f"sqlite:///{crowded}"):
        say(f"{around:,} pending jobs in another queue")
        other.enqueue_many(rows)
        say(f"{around:,} jobs of a paused task")
        held.enqueue_many(rows)
        app.broker.put(Rule(RuleKind.PAUSE, task=held.name))
        say(f"{around:,} delayed jobs; these take longest")
        wanted.options(delay=_DAY).enqueue_many(rows)
    del rows
    times: dict[Path, list[float]] = {alone: [], crowded: []}
    for number in range(_RUNS + 1):
        for path in (alone, crowded) if number % 2 else (crowded, alone):
            say(f"claiming {_CLAIM}: run {number}")
            with store(f"sqlite:///{path}"):
                taken = _claim()
                if number:  # the first run only warms up
                    times[path].append(taken)
    with store(f"sqlite:///{crowded}"):
        rules = [_pause_and_resume() for _ in range(_RUNS)]
    return {
        "around": around,
        "claim_alone_ms": 1000 * median(times[alone]),
        "claim_crowded_ms": 1000 * median(times[crowded]),
        "claim_ratio": median(times[crowded]) / median(times[alone]),
        "pause_ms": 1000 * median(pause for pause, _ in rules),
        "resume_ms": 1000 * median(resume for _, resume in rules),
    }


def _claim() -> float:
    """Seconds to claim 100 jobs that were just enqueued."""
    broker = app.broker
    worker = WorkerRow(id="bench", tasks=app.known_tasks())
    seconds = 0.0
    # Twice: the first claim of a process also writes the worker's row. The enqueue before it makes
    # the broker look at all lanes again, which other jobs could make slow.
    for _ in range(2):
        wanted.enqueue_many([(number, TEXT) for number in range(_CLAIM)])
        began = time.perf_counter()
        jobs = broker.claim([Wanted(worker, limit=_CLAIM, queues=("wanted",))]).jobs[0]
        seconds = time.perf_counter() - began
        if len(jobs) != _CLAIM:
            raise PenstockError(f"the benchmark claimed {len(jobs)} jobs instead of {_CLAIM}")
        broker.settle([(job, succeeded()) for job in jobs])
    return seconds


def _pause_and_resume() -> tuple[float, float]:
    broker = app.broker
    began = time.perf_counter()
    broker.put(Rule(RuleKind.PAUSE, queue="other"))
    paused = time.perf_counter()
    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="other"))
    return paused - began, time.perf_counter() - paused
