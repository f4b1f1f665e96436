"""Curves, not points: what a job costs as something else grows; `make bench ARGS=--curves`.

Microseconds a job, on SQLite and PostgreSQL, against jobs that wait elsewhere, queues, worker
processes that are idle or at work, the width of a flow, the rows of the history and the payload.
One process enqueues, claims, runs and settles, but where workers are what is measured. A curve ends
before a point that its share of time does not hold. Raw limits of the store are lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from report import curves_table
from roster import STORES

from penstock import App
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.run.attempt import run
from penstock.tools.bench import fan_in, measure
from penstock.tools.bench import raw as raw_sqlite
from penstock.tools.bench.postgres import raw as raw_postgres
from penstock.tools.bench.postgres.databases import bench_server

TASK = "curves:nothing"
SMALL = 60
CHUNK = 512
KINDS = {kind: STORES[kind] for kind in ("sqlite", "postgres")}
NewStore = Callable[[], Any]  # a context manager: the URL of an empty store
Point = tuple[int, float]


class Driver:
    """One process that does all of a worker's work on a store, without a worker."""

    def __init__(self, url: str) -> None:
        self.app = App(url, name="curves")

        @self.app.task(name=TASK)
        def nothing(number: int, text: str) -> None:
            del number, text

        self.task = nothing
        self.worker = WorkerRow(id="curves", tasks={TASK: 1}, app="curves")

    def enqueue(self, jobs: int, size: int = SMALL, queue: str = "curves", **options: Any) -> None:
        text = "x" * size
        self.task.options(queue=queue, **options).enqueue_many((n, text) for n in range(jobs))

    def process(self, jobs: int, queues: tuple[str, ...] | None = None) -> None:
        """Claim, run and settle so many jobs."""
        broker, task = self.app.broker, self.app.tasks[TASK]
        while jobs > 0:
            wanted = Wanted(self.worker, limit=min(CHUNK, jobs), queues=queues)
            taken = broker.claim([wanted]).jobs[0]
            assert taken, f"{jobs:,} jobs were not found"
            pairs = [(job, run(self.app, task, job)) for job in taken]
            broker.settle([(job, outcome) for job, outcome in pairs if outcome is not None])
            jobs -= len(taken)

    def cost(self, jobs: int, size: int = SMALL) -> float:
        """Microseconds a job, from its enqueue to its history row."""
        began = time.perf_counter()
        self.enqueue(jobs, size)
        self.process(jobs, ("curves",))
        return 1e6 * (time.perf_counter() - began) / jobs


@contextmanager
def driver(url: str) -> Generator[Driver]:
    """A driver on a store that has run a few jobs."""
    made = Driver(url)
    try:
        made.cost(CHUNK)
        yield made
    finally:
        made.app.close()


def pending(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """Beside so many jobs that wait in another queue."""
    with new() as url, driver(url) as drive:
        there = 0
        for size in sizes:
            drive.enqueue(size - there, queue="elsewhere")
            there = size
            yield size, drive.cost(jobs)


def queues(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """Spread over so many queues, by a worker of all of them."""
    for size in sizes:
        with new() as url, driver(url) as drive:
            each = max(jobs // size, 1)
            began = time.perf_counter()
            for number in range(size):
                drive.enqueue(each, queue=f"queue-{number}")
            drive.process(each * size)
            yield size, 1e6 * (time.perf_counter() - began) / (each * size)


def idle_workers(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """Beside so many processes of workers that have nothing to do."""
    for size in sizes:
        with new() as url, driver(url) as drive, measure.worker(url, processes=size):
            until = time.monotonic() + 60 + 2 * size
            while sum(bool(row.claimed_at) for row in drive.app.broker.workers()) < size:
                assert time.monotonic() < until, f"{size} workers did not start"
                time.sleep(0.05)
            yield size, drive.cost(jobs)


def busy_workers(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """By so many processes of one worker, from the first start to the last end."""
    for size in sizes:
        with new() as url, measure.store(url):
            measure.bulk(jobs)
            measure.drain(url, processes=size)
            first, last, ended = measure.span()
            assert ended == jobs, f"{ended:,} of {jobs:,} jobs ended"
            yield size, 1e6 * (last - first) / jobs


def flow_width(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """As one of so many children of a job that takes all their outputs."""
    del jobs
    for size in sizes:
        figures = fan_in.pair(new, size, lambda _: None)
        yield size, 1e6 / figures["fan_in"]


def history(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """With so many rows in the history."""
    with new() as url, driver(url) as drive:
        there = CHUNK
        for size in sizes:
            while there < size:
                part = min(size - there, 100_000)
                drive.cost(part)
                there += part
            yield size, drive.cost(jobs)
            there += jobs


def payload(new: NewStore, sizes: list[int], jobs: int) -> Iterator[Point]:
    """With a text of so many bytes among the arguments."""
    for size in sizes:
        with new() as url, driver(url) as drive:
            yield size, drive.cost(max(min(jobs, 50_000_000 // size), 10), size)


@dataclass(frozen=True)
class Curve:
    """What grows, to which sizes, and how a point is measured."""

    title: str
    sizes: list[int]
    quick: list[int]
    points: Callable[[NewStore, list[int], int], Iterator[Point]]


CURVES = {
    "pending": Curve(
        "jobs that wait in another queue",
        [1_000, 10_000, 100_000, 1_000_000, 5_000_000],
        [1_000, 2_000],
        pending,
    ),
    "queues": Curve("queues", [1, 10, 100, 1_000], [1, 10], queues),
    "idle_workers": Curve("idle worker processes", [1, 4, 16, 64], [1], idle_workers),
    "busy_workers": Curve("worker processes at work", [1, 2, 4, 16, 64], [1], busy_workers),
    "flow_width": Curve(
        "children of one flow", [10, 100, 1_000, 10_000, 100_000], [10], flow_width
    ),
    "history": Curve(
        "rows in the history",
        [1_000, 100_000, 1_000_000, 10_000_000, 50_000_000],
        [1_000, 2_000],
        history,
    ),
    "payload": Curve(
        "bytes of payload", [100, 1_000, 10_000, 100_000, 200_000], [100, 1_000], payload
    ),
}
FULL_JOBS, QUICK_JOBS = 50_000, 600


@contextmanager
def stores(kind: str, folder: Path | None) -> Generator[tuple[NewStore, float]]:
    """Where new stores come from, and the raw limit: microseconds to write one row of 100 bytes."""
    rows = 100_000
    if kind == "sqlite":
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as made:
            yield _files(Path(made)), 1e6 / raw_sqlite.bulk(Path(made), rows)
        return
    with bench_server(None, folder) as server:
        with server.database() as url:
            raw = 1e6 / raw_postgres.copy(url, rows)
        yield server.database, raw


def _files(folder: Path) -> NewStore:
    numbers = count()

    @contextmanager
    def store() -> Generator[str]:
        path = folder / f"store-{next(numbers)}.db"
        yield f"sqlite:///{path}"
        for part in folder.glob(f"{path.name}*"):
            part.unlink()

    return store


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """All curves: points of each store, and its raw limit."""
    titles = {name: CURVES[name].title for name in options.curves}
    found: dict[str, Any] = {"quick": options.quick, "titles": titles, "raw": {}, "curves": {}}
    jobs = QUICK_JOBS if options.quick else FULL_JOBS
    for kind in options.stores:
        with stores(kind, options.folder) as (new, raw):
            found["raw"][kind] = raw
            for name in options.curves:
                curve = CURVES[name]
                until = time.monotonic() + 60 * options.minutes
                points: list[Point] = []
                for point in curve.points(new, curve.quick if options.quick else curve.sizes, jobs):
                    points.append(point)
                    said = f"{kind}, {point[0]:,} {curve.title}: {point[1]:.1f} us a job"
                    print(f"... {said}", file=sys.stderr, flush=True)
                    if time.monotonic() > until:
                        break
                found["curves"].setdefault(name, {})[kind] = points
    return found


def _names(known: dict[str, Any]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if unknown := sorted(set(names) - set(known)):
            raise argparse.ArgumentTypeError(f"no {unknown[0]!r}; there are {', '.join(known)}")
        return names

    return parse


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes: a look, not a measurement")
    add("--curves", type=_names(CURVES), default=list(CURVES), metavar="NAME,...")
    add("--stores", type=_names(KINDS), default=list(KINDS), metavar="NAME,...")
    add("--minutes", type=float, default=15, help="of a curve on a store (default: 15)")
    add("--folder", type=Path, help="on this disk")
    add("--json", action="store_true", help="figures as JSON")
    add("--out", type=Path, metavar="FILE", help="also write the figures there, as JSON")
    options = parser.parse_args()
    found = measured(options)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found) if options.json else curves_table(found))


if __name__ == "__main__":
    main()
