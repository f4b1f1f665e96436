"""Throughput and claims while a snapshot is open, as of a dump, a report or a forgotten session.

The load is a real worker and a process that keeps up its backlog. Meanwhile claims are timed: from
that backlog, and of jobs that were just enqueued into an empty queue.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import psycopg

from penstock.broker.protocol import Broker
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.brokers import open_broker
from penstock.errors import PenstockError
from penstock.job import succeeded
from penstock.tools.bench import measure
from penstock.tools.bench.measure import TEXT, Say
from penstock.tools.bench.postgres.databases import BenchServer
from penstock.tools.bench.postgres.statements import sql
from penstock.tools.bench.tasks import app, wanted

_BACKLOG = 100_000
_BACKLOG_OF_A_SECOND = 20_000  # more than two cores process; a short look needs no more
# Linux starts to write dirty pages back after 30 s, which costs a machine with few cores a fifth of
# its throughput, with or without a snapshot.
_WARM_SECONDS = 40.0
_WINDOW_SECONDS = 10.0
_CLAIM = 100
_PAUSE_SECONDS = 0.05


class Claims(NamedTuple):
    """Seconds of each claim of 100."""

    backlog: list[float]  # from a queue that always has more
    news: list[float]  # from a queue that was empty until just before


def held_open(server: BenchServer, seconds: float, say: Say) -> dict[str, float]:
    """Jobs per second and the median claim, before a snapshot and at its end."""
    window = min(_WINDOW_SECONDS, seconds / 2)
    with server.database() as url:
        broker = open_broker(url)
        try:
            backlog = min(_BACKLOG, int(seconds * _BACKLOG_OF_A_SECOND))
            with _feeder(url, backlog), measure.worker(url, "--queues", "bench"):
                warm = min(_WARM_SECONDS, seconds)
                say(f"full load, for {warm:.0f} s")
                _wait_for_load(broker)
                _probe(broker, warm)
                began = time.time()
                before = _probe(broker, window)
                with _snapshot(url):
                    say(f"a snapshot is open for {seconds:.0f} s")
                    _probe(broker, seconds - window)
                    late = time.time()
                    during = _probe(broker, window)
        finally:
            broker.close()
        load_before, load_held = _ended(url, began, window), _ended(url, late, window)
    return {
        "snapshot_seconds": seconds,
        "load_before": load_before,
        "load_held": load_held,
        "claim_before_ms": 1000 * median(before.backlog),
        "claim_held_ms": 1000 * median(during.backlog),
        "claim_news_before_ms": 1000 * median(before.news),
        "claim_news_held_ms": 1000 * median(during.news),
    }


@contextmanager
def _feeder(url: str, backlog: int) -> Generator[None]:
    command = [
        sys.executable,
        "-m",
        "penstock.tools.bench.postgres.backlog_feeder",
        url,
        str(backlog),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _snapshot(url: str) -> Generator[None]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("begin isolation level repeatable read")
        connection.execute(sql.snapshot)
        yield
        connection.execute("rollback")


def _wait_for_load(broker: Broker) -> None:
    until = time.monotonic() + 60
    while not any(row.alive and row.running for row in broker.workers()):
        if time.monotonic() > until:
            raise PenstockError("the worker of the benchmark did not start within 60 s")
        time.sleep(0.05)


def _probe(broker: Broker, seconds: float) -> Claims:
    """Claims of 100, for so long."""
    times = Claims([], [])
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        times.backlog.append(_claim(broker, "bench"))
        broker.enqueue([wanted.job(number, TEXT) for number in range(_CLAIM)])
        times.news.append(_claim(broker, "wanted"))
        time.sleep(_PAUSE_SECONDS)
    return times


def _claim(broker: Broker, queue: str) -> float:
    # One worker per queue, as in production.
    worker = WorkerRow(id=f"bench-{queue}", tasks=app.known_tasks(), queues=(queue,))
    began = time.perf_counter()
    jobs = broker.claim([Wanted(worker, limit=_CLAIM, queues=(queue,))]).jobs[0]
    seconds = time.perf_counter() - began
    broker.settle([(job, succeeded()) for job in jobs])
    return seconds


def _ended(url: str, since: float, seconds: float) -> float:
    with psycopg.connect(url) as connection:
        row = connection.execute(sql.ended, (since, since + seconds)).fetchone()
    return (row or (0,))[0] / seconds
