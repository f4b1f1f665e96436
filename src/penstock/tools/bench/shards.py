"""`penstock bench --shards`: what a job costs over 1, 2, 4 and 8 shards, in CPU seconds.

The same jobs, in batches that spread over the shards, and one worker with one child process. CPU
time is that of the program that enqueues, and of the worker with its child; a server's own is not
in it. What a job costs should stay the same, however many shards there are: then twice the shards
on twice the machines do twice the work.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from penstock.broker.filter import Filter
from penstock.cli import output
from penstock.errors import PenstockError
from penstock.tools.bench import measure
from penstock.tools.bench.tasks import app, nothing

BATCH = 250  # jobs of one enqueue_many, which share a bucket
_LOOKS = 20


COUNTS = (1, 2, 4, 8)


def bench(
    *,
    jobs: int,
    broker: str = "sqlite",
    url: str | None = None,
    folder: Path | None = None,
    runs: int = 1,
    json: bool = False,
    counts: Sequence[int] = COUNTS,
) -> list[dict[str, Any]]:
    """Measure, print and return a row for each number of shards; medians of the runs."""
    progress_line = output.ProgressLine(quiet=json)
    rows: list[dict[str, Any]] = []
    measured: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    for number in range(runs):  # in turn, so that a busy moment of the machine meets all
        for count in counts:
            progress_line.clear()
            if not json:
                output.print_note(f"... run {number + 1} of {runs}: {jobs:,} jobs, {count} shards")
            with _shards(broker, count, url, folder) as made:
                measured[count].append(_run(made, jobs))
    progress_line.clear()
    for count, figures in measured.items():
        row: dict[str, Any] = {"shards": count, "broker": broker, "jobs": jobs, "runs": runs}
        rows.append(row | {name: median(each[name] for each in figures) for name in figures[0]})
    for row in rows:
        row["beside_one"] = row["cpu_per_job"] / rows[0]["cpu_per_job"]
    if json:
        for row in rows:
            output.print_json(row)
    else:
        _put(rows)
    return rows


def _run(url: str, jobs: int) -> dict[str, float]:
    with measure.store(url):
        _ = app.broker  # opening the stores is not part of it
        cpu, began = _cpu(resource.RUSAGE_SELF), time.perf_counter()
        for first in range(0, jobs, BATCH):
            rows = [(number, measure.TEXT) for number in range(first, min(first + BATCH, jobs))]
            nothing.enqueue_many(rows)
        enqueue_cpu = _cpu(resource.RUSAGE_SELF) - cpu
        enqueue_seconds = time.perf_counter() - began
        looks = {
            name: _milliseconds(look)
            for name, look in (
                ("count", app.broker.count),
                ("find", lambda: app.broker.find(Filter())),
            )
        }
        children = _cpu(resource.RUSAGE_CHILDREN)
        measure.drain(url)
        worker_cpu = _cpu(resource.RUSAGE_CHILDREN) - children
        first_start, last_end, ended = measure.span()
    if ended != jobs:
        raise PenstockError(f"{jobs:,} jobs were enqueued and {ended:,} ended")
    return {
        "enqueue_cpu_per_job": 1e6 * enqueue_cpu / jobs,
        "worker_cpu_per_job": 1e6 * worker_cpu / jobs,
        "cpu_per_job": 1e6 * (enqueue_cpu + worker_cpu) / jobs,
        "enqueue": jobs / enqueue_seconds,
        "processing": jobs / (last_end - first_start),
        **{f"{name}_ms": value for name, value in looks.items()},
    }


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _milliseconds(look: Any) -> float:
    times: list[float] = []
    for _ in range(_LOOKS):
        began = time.perf_counter()
        look()
        times.append(1000 * (time.perf_counter() - began))
    return median(times)


@contextmanager
def _shards(broker: str, count: int, url: str | None, folder: Path | None) -> Generator[str]:
    """A file of so many shards with empty stores, gone afterwards."""
    with ExitStack() as stack:
        made = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder))
        )
        names = [f"s{number}" for number in range(count)]
        if broker == "postgres":
            from penstock.tools.bench.postgres.databases import bench_server

            server = stack.enter_context(bench_server(url, folder))
            urls = {name: stack.enter_context(server.database()) for name in names}
        else:
            urls = {name: f"sqlite:///{name}.db" for name in names}
        file = made / "shards.toml"
        file.touch(mode=0o600)  # there may be passwords in it
        lines = [f'{name} = "{each}"' for name, each in urls.items()]
        file.write_text("\n".join(["[shards]", *lines, ""]), encoding="utf-8")
        yield f"shards:///{file}"


def _put(rows: Sequence[dict[str, Any]]) -> None:
    columns = (
        "shards",
        "CPU us a job",
        "beside one",
        "enqueue",
        "worker",
        "jobs/s",
        "count",
        "find",
    )
    made = output.table(*columns, right=columns)
    for row in rows:
        made.add_row(
            f"{row['shards']}",
            f"{row['cpu_per_job']:,.0f}",
            f"{row['beside_one']:.2f}",
            f"{row['enqueue_cpu_per_job']:,.0f}",
            f"{row['worker_cpu_per_job']:,.0f}",
            f"{row['processing']:,.0f}",
            f"{row['count_ms']:.2f} ms",
            f"{row['find_ms']:.2f} ms",
        )
    output.console().print(made)
    output.print_text(
        f"{rows[0]['broker']}: {rows[0]['jobs']:,} jobs in batches of {BATCH}, one worker with one "
        "child process; CPU time of both, in microseconds",
        "dim",
    )
