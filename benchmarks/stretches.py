"""Where a job's microseconds go: `python benchmarks/stretches.py [--jobs N] [--json]`.

One process drives a store by the verbs that a worker calls, on SQLite and on PostgreSQL, and takes
the time of each stretch: enqueue, claim, run, settle; in parcels of many jobs, and one by one. Of
each it prints the share that is spent in the driver and the server. The history has no stretch of
its own, as it is written by settle: its rows are written once more, by themselves, into a table of
the same shape, with as many commits. `--profile` lists the functions that take longest.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from penstock import App
from penstock.broker.values import Wanted
from penstock.broker.views import WorkerRow
from penstock.run.attempt import run
from penstock.tools.bench.postgres.databases import bench_server

TEXT = "x" * 60
PARCEL = 512  # jobs a claim, as many as a worker takes of quick ones
STRETCHES = ("enqueue", "claim", "run", "settle")
_DRIVERS = ("sqlite3.", "psycopg", "_psycopg", "psycopg_binary", "select.poll")
_MOST_LINES = 12

Stretch = dict[str, float]


class Watch:
    """Adds up the seconds of each stretch, and profiles it if asked."""

    def __init__(self, *, profiled: bool) -> None:
        self.seconds: Stretch = dict.fromkeys(STRETCHES, 0.0)
        self.profiles = {name: cProfile.Profile() for name in STRETCHES} if profiled else {}

    @contextmanager
    def stretch(self, name: str) -> Generator[None]:
        """The time of the block belongs to this one."""
        profile = self.profiles.get(name)
        began = time.perf_counter()
        if profile is not None:
            profile.enable()
        try:
            yield
        finally:
            if profile is not None:
                profile.disable()
            self.seconds[name] += time.perf_counter() - began


def drive(url: str, jobs: int, parcel: int, watch: Watch) -> None:
    """`jobs` jobs through a store, `parcel` of them a call."""
    app = App(url, name="stretches")

    @app.task(name="stretches:nothing")
    def nothing(number: int, text: str) -> None:
        del number, text

    worker = WorkerRow(id="stretches", tasks={"stretches:nothing": 1}, app="stretches")
    task = app.tasks["stretches:nothing"]
    _ = app.broker
    for _ in range(max(jobs // parcel, 1)):
        with watch.stretch("enqueue"):
            if parcel == 1:
                nothing.enqueue(1, TEXT)
            else:
                nothing.enqueue_many([(number, TEXT) for number in range(parcel)])
        left = parcel
        while left:
            with watch.stretch("claim"):
                taken = app.broker.claim([Wanted(worker, limit=left)]).jobs[0]
            with watch.stretch("run"):
                pairs = [(job, run(app, task, job)) for job in taken]
            ended = [(job, outcome) for job, outcome in pairs if outcome is not None]
            with watch.stretch("settle"):
                accepted = app.broker.settle(ended)
            assert all(accepted), "a settlement was refused"
            left -= len(taken)
    app.close()


def measured(url: str, jobs: int, parcel: int) -> dict[str, Any]:
    """Microseconds a job of each stretch, and the share of the driver in a second, profiled run."""
    drive(url, parcel, parcel, Watch(profiled=False))  # what is loaded once is no part of it
    watch = Watch(profiled=False)
    drive(url, jobs, parcel, watch)
    profiled = Watch(profiled=True)
    drive(url, max(jobs // 4, parcel), parcel, profiled)
    count = max(jobs // parcel, 1) * parcel
    return {
        "jobs": count,
        "us": {name: 1e6 * seconds / count for name, seconds in watch.seconds.items()},
        "driver": {name: driver_share(made) for name, made in profiled.profiles.items()},
        "longest": {name: longest(made) for name, made in profiled.profiles.items()},
    }


def _own_seconds(profile: cProfile.Profile) -> dict[str, float]:
    stats: Any = pstats.Stats(profile)
    return {
        (f"{Path(path).name}:{name}" if path != "~" else name) + f" {path}": row[2]
        for (path, _, name), row in stats.stats.items()
    }


def driver_share(profile: cProfile.Profile) -> float:
    """Of the time of a stretch, what passes in the driver: that of the server as well."""
    seconds = _own_seconds(profile)
    within = sum(value for name, value in seconds.items() if any(d in name for d in _DRIVERS))
    return within / max(sum(seconds.values()), 1e-9)


def longest(profile: cProfile.Profile) -> list[str]:
    """The functions with the most time of their own."""
    seconds = _own_seconds(profile)
    whole = max(sum(seconds.values()), 1e-9)
    most = sorted(seconds.items(), key=lambda item: -item[1])[:_MOST_LINES]
    return [f"{value / whole:4.0%}  {name.partition(' /')[0]}" for name, value in most]


def history_on_sqlite(path: Path, commits: int) -> float:
    """Seconds to write the rows of the history once more, in so many commits."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma synchronous = full")
    made = "select sql from sqlite_master where tbl_name = 'penstock_history' and sql is not null"
    for (statement,) in connection.execute(made).fetchall():
        connection.execute(statement.replace("penstock_", "again_"))
    rows = connection.execute("select * from penstock_history").fetchall()
    marks = ", ".join("?" * len(rows[0]))
    each = max(len(rows) // commits, 1)
    began = time.perf_counter()
    for first in range(0, len(rows), each):
        connection.execute("begin immediate")
        into = f"insert into again_history values ({marks})"  # noqa: S608  signs alone
        connection.executemany(into, rows[first : first + each])
        connection.execute("commit")
    seconds = time.perf_counter() - began
    connection.close()
    return seconds


def history_on_postgres(url: str, commits: int) -> float:
    """Seconds to write the rows of the history once more, in so many commits."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table penstock.again (like penstock.history including all)")
        numbered = "select row_number() over () as n, h from penstock.history as h"
        connection.execute(f"create temp table numbered as {numbered}")
        row = connection.execute("select count(*) from numbered").fetchone()
        count = row[0] if row else 0
        connection.execute("create index on numbered (n)")
        each = max(count // commits, 1)
        again = "insert into penstock.again select (h).* from numbered where n > %s and n <= %s"
        began = time.perf_counter()
        for first in range(0, count, each):
            connection.execute(again, (first, first + each))
        return time.perf_counter() - began


def on_sqlite(jobs: int, parcel: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        made = measured(f"sqlite:///{folder}/stretches.db", jobs, parcel)
        path = Path(folder) / "history.db"
        drive(f"sqlite:///{path}", jobs, parcel, Watch(profiled=False))
        seconds = history_on_sqlite(path, max(jobs // parcel, 1))
    made["us"]["history"] = 1e6 * seconds / made["jobs"]
    return made


def on_postgres(jobs: int, parcel: int, url: str | None) -> dict[str, Any]:
    with bench_server(url, None) as server:
        with server.database() as database:
            made = measured(database, jobs, parcel)
        with server.database() as database:
            drive(database, jobs, parcel, Watch(profiled=False))
            seconds = history_on_postgres(database, max(jobs // parcel, 1))
    made["us"]["history"] = 1e6 * seconds / made["jobs"]
    return made


def table(store: str, parcel: int, made: dict[str, Any]) -> str:
    """The stretches of one store, aligned."""
    many = "one by one" if parcel == 1 else f"{parcel} a call"
    lines = [f"{store}, {many} ({made['jobs']:,} jobs)", f"{'':12}{'us a job':>10}{'driver':>9}"]
    for name in (*STRETCHES, "history"):
        share = f"{made['driver'][name]:.0%}" if name in made["driver"] else ""
        remark = "   of settle: its rows written once more" if name == "history" else ""
        lines.append(f"{name:<12}{made['us'][name]:>10.2f}{share:>9}{remark}")
    total = sum(made["us"][name] for name in STRETCHES)
    return "\n".join([*lines, f"{'all':<12}{total:>10.2f}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--singles", type=int, default=1000, help="one by one (default: 1000)")
    parser.add_argument("--postgres", metavar="URL", help="this server, in databases of its own")
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--profile", action="store_true", help="list the longest functions")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    stores: dict[str, Callable[[int, int], dict[str, Any]]] = {
        "sqlite": on_sqlite,
        "postgres": lambda jobs, parcel: on_postgres(jobs, parcel, options.postgres),
    }
    found = {
        store: {parcel: one(jobs, parcel) for parcel, jobs in _parcels(options)}
        for store, one in stores.items()
        if options.only in {None, store}
    }
    if options.json:
        print(json.dumps(found))
        return
    for store, parcels in found.items():
        for parcel, made in parcels.items():
            print(table(store, parcel, made), end="\n\n")
            if options.profile:
                for name, lines in made["longest"].items():
                    print(f"{name}, by time of their own", *lines, sep="\n  ", end="\n\n")


def _parcels(options: argparse.Namespace) -> list[tuple[int, int]]:
    return [(PARCEL, options.jobs), (1, options.singles)]


if __name__ == "__main__":
    main()
