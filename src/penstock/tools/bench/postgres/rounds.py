"""One round: each measurement once, with the raw limits of the same server."""

from __future__ import annotations

import asyncio
import time

import psycopg

from penstock.errors import PenstockError
from penstock.tools.bench import measure
from penstock.tools.bench.measure import TEXT, Say
from penstock.tools.bench.postgres import meter, raw
from penstock.tools.bench.postgres.databases import BenchServer
from penstock.tools.bench.postgres.statements import sql
from penstock.tools.bench.tasks import app, nothing

CALLERS = 128
Figures = dict[str, float]


def round_of(server: BenchServer, jobs: int, singles: int, say: Say) -> Figures:
    """The figures of one round; `singles` are enqueued one by one, `jobs` in bulk."""
    figures: Figures = {}
    with server.database() as url:
        say(f"raw COPY of {jobs:,} rows, {raw.ROWS_PER_COMMIT:,} per commit")
        figures["raw_copy"] = raw.copy(url, jobs)
    with server.database() as url:
        say(f"bulk enqueue of {jobs:,} jobs, one worker process")
        figures |= _backlog(url, jobs, 1)
    with server.database() as url:
        say(f"bulk enqueue of {jobs:,} jobs, two worker processes")
        figures |= _backlog(url, jobs, 2)
    with server.database() as url:
        say(f"{singles:,} raw commits of one row")
        figures["raw_single"] = raw.single(url, singles)
    with server.database() as url:
        say(f"{singles:,} single enqueues, one worker process")
        figures |= _one_by_one(url, singles)
    with server.database() as url:
        say(f"{CALLERS} concurrent callers of enqueue_async")
        figures["concurrent_enqueue"] = _concurrent(url, 4 * singles)
    return figures


def _backlog(url: str, jobs: int, processes: int) -> Figures:
    figures: Figures = {}
    with measure.store(url):
        _ = app.broker
        before = meter.read(url)
        enqueued = measure.bulk(jobs)
    between = meter.read(url)
    figures |= _processed(url, jobs, processes, f"processing_{processes}")
    if processes == 1:
        figures["bulk_enqueue"] = enqueued
        figures |= meter.cost("bulk_enqueue", before, between, jobs)
    return figures


def _one_by_one(url: str, jobs: int) -> Figures:
    with measure.store(url):
        _ = app.broker
    before = meter.read(url)
    figures: Figures = {"single_enqueue": measure.single(url, jobs)}
    figures |= meter.cost("single_enqueue", before, meter.read(url), jobs)
    figures |= _processed(url, jobs, 1, "processing_singles")
    return figures


def _processed(url: str, jobs: int, processes: int, name: str) -> Figures:
    before = meter.read(url)
    wall = measure.drain(url, processes=processes)
    figures = meter.cost(name, before, meter.read(url), jobs)
    first, last = _span(url, jobs)
    figures[name] = jobs / (last - first)
    figures[f"{name}_wall_seconds"] = wall
    return figures


def _span(url: str, jobs: int) -> tuple[float, float]:
    with psycopg.connect(url) as connection:
        row = connection.execute(sql.span).fetchone()
    first, last, ended = row or (0.0, 0.0, 0)
    if ended != jobs:
        raise PenstockError(f"{jobs:,} jobs were enqueued and {ended:,} ended")
    return first, last


def _concurrent(url: str, jobs: int) -> float:
    per_caller = max(1, jobs // CALLERS)

    async def caller(number: int) -> None:
        for call in range(per_caller):
            await nothing.enqueue_async(number * per_caller + call, TEXT)

    async def all_callers() -> float:
        await nothing.enqueue_async(0, TEXT)
        began = time.perf_counter()
        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
        return time.perf_counter() - began

    with measure.store(url):
        seconds = asyncio.run(all_callers())
    return per_caller * CALLERS / seconds
