"""The bound of processing: claim, run, settle and nothing else, `python benchmarks/bare_loop.py`.

One process, one connection, the same durability as Penstock, and a history row for each job; no
leases, rules, retries, limits, flows or notifications, no look at who else works. Two layouts: a
row for each job, as most queues have it, and parcels (many jobs in a row, many ends in a row of the
history), as Penstock packs them. A claim is committed before its jobs run, and the end of a chunk
is committed together with the claim of the next. Beside them Penstock itself, and the raw limit of
the store, in turn in every round.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import psycopg

from penstock.enqueue.ids import Ids, to_bytes
from penstock.tools.bench import measure
from penstock.tools.bench import raw as raw_sqlite
from penstock.tools.bench.postgres import raw as raw_postgres
from penstock.tools.bench.postgres.databases import BenchServer, bench_server

CHUNK = 2048  # jobs a claim
_TEXT = "x" * 60
_SQLITE = """
    create table job (id blob primary key, state integer not null, body blob not null)
        without rowid;
    create index waiting on job (id) where state = 0;
    create table history (seq integer primary key, id blob not null, at real not null,
        kind text not null, info blob not null);
"""
_POSTGRES = """
    create table job (id bytea primary key, state int not null, body bytea not null);
    create index waiting on job (id) where state = 0;
    create table history (seq bigserial primary key, id bytea not null, at float8 not null,
        kind text not null, info bytea not null);
"""
_TAKE_SQLITE = """
    update job set state = 1
     where id in (select id from job where state = 0 order by id limit ?)
    returning id, body
"""
_STEP_POSTGRES = """
    with gone as (delete from job where id = any(%b)),
         ended as (insert into history (id, at, kind, info)
                   select * from unnest(%b::bytea[], %b::float8[], %b::text[], %b::bytea[]))
    update job set state = 1
     where id = any(array(select id from job where state = 0 order by id limit %b
                             for update skip locked))
    returning id, body
"""


def nothing(number: int, text: str) -> None:
    """What every job does."""
    del number, text


def bodies(jobs: int, packed: int) -> list[tuple[bytes, bytes]]:
    """Ids and bodies of the rows: one job each, or `packed` of them."""
    ids, numbers = Ids(), iter(range(jobs))
    rows: list[tuple[bytes, bytes]] = []
    while part := [(number, _TEXT) for number in islice(numbers, packed)]:
        rows.append((to_bytes(ids.next()), msgspec.json.encode(part)))
    return rows


def work(rows: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, float, str, bytes]]:
    """Run the jobs of these rows: a row of the history for each, with when every job began."""
    ends: list[tuple[bytes, float, str, bytes]] = []
    for row_id, body in rows:
        began: list[float] = []
        for number, text in msgspec.json.decode(body):
            began.append(time.time())
            nothing(number, text)
        ends.append((row_id, time.time(), "attempt", msgspec.json.encode(began)))
    return ends


def loop(
    jobs: int, claim: Callable[[list[tuple[bytes, float, str, bytes]]], list[tuple[bytes, bytes]]]
) -> float:
    """Jobs a second; `claim` settles what has ended and takes the next rows, in one commit."""
    began = time.perf_counter()
    rows = claim([])
    while rows:
        rows = claim(work(rows))
    return jobs / (time.perf_counter() - began)


def on_sqlite(folder: Path, jobs: int, packed: int) -> float:
    """The loop on a file, synced at every commit."""
    connection = sqlite3.connect(folder / f"bare-{packed}.db", isolation_level=None)
    for name, value in (("journal_mode", "wal"), ("synchronous", "full"), ("cache_size", -65536)):
        connection.execute(f"pragma {name} = {value}")
    connection.executescript(_SQLITE)
    connection.execute("begin")
    connection.executemany("insert into job values (?, 0, ?)", bodies(jobs, packed))
    connection.execute("commit")
    limit = max(CHUNK // packed, 1)

    def claim(ended: list[tuple[bytes, float, str, bytes]]) -> list[tuple[bytes, bytes]]:
        connection.execute("begin immediate")
        if ended:
            connection.executemany("delete from job where id = ?", [row[:1] for row in ended])
            into = "insert into history (id, at, kind, info) values (?, ?, ?, ?)"
            connection.executemany(into, ended)
        rows = connection.execute(_TAKE_SQLITE, (limit,)).fetchall()
        connection.execute("commit")
        return rows

    rate = loop(jobs, claim)
    assert connection.execute("select count(*) from job").fetchone() == (0,)
    connection.close()
    return rate


def on_postgres(url: str, jobs: int, packed: int) -> float:
    """The loop on a server; arrays of bytes go there and back in binary."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_POSTGRES)
        with connection.cursor() as cursor:
            with cursor.copy("copy job (id, state, body) from stdin (format binary)") as rows:
                rows.set_types(("bytea", "int4", "bytea"))
                for row_id, body in bodies(jobs, packed):
                    rows.write_row((row_id, 0, body))
            cursor.execute("analyze job")
        limit = max(CHUNK // packed, 1)

        def claim(ended: list[tuple[bytes, float, str, bytes]]) -> list[tuple[bytes, bytes]]:
            ids, at, kinds, infos = map(list, zip(*ended, strict=True)) if ended else ([],) * 4
            with connection.cursor(binary=True) as cursor:
                values = (ids, ids, at, kinds, infos, limit)
                return cursor.execute(_STEP_POSTGRES, values, prepare=True).fetchall()

        rate = loop(jobs, claim)
        assert connection.execute("select count(*) from job").fetchone() == (0,)
    return rate


def _quiet(text: str) -> None:
    del text


def sqlite_round(folder: Path, jobs: int, packed: int) -> dict[str, float]:
    """Every figure on SQLite once."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        path = Path(made)
        return {
            "raw": raw_sqlite.bulk(path, jobs),
            "rows": on_sqlite(path, jobs, 1),
            "parcels": on_sqlite(path, jobs, packed),
            "penstock": measure.backlog(f"sqlite:///{path / 'own.db'}", jobs, _quiet)["processing"],
        }


def postgres_round(server: BenchServer, jobs: int, packed: int) -> dict[str, float]:
    """Every figure on PostgreSQL once."""
    figures: dict[str, float] = {}
    loops: dict[str, Callable[[str], float]] = {
        "raw": lambda url: raw_postgres.copy(url, jobs),
        "rows": lambda url: on_postgres(url, jobs, 1),
        "parcels": lambda url: on_postgres(url, jobs, packed),
        "penstock": lambda url: measure.backlog(url, jobs, _quiet)["processing"],
    }
    for name, one in loops.items():
        with server.database() as url:
            figures[name] = one(url)
    return figures


WORDS = {
    "raw": "raw limit: rows written (executemany, COPY)",
    "rows": "bare loop, a row for each job",
    "parcels": "bare loop, jobs and ends in parcels",
    "penstock": "Penstock, one process",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--parcel", type=int, default=512, help="jobs in a parcel (default: 512)")
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--folder", type=Path, help="on this disk")
    parser.add_argument("--postgres", metavar="URL", help="this server, in databases of its own")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    if options.only != "postgres":
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=options.folder) as folder:
            found["sqlite"] = _medians(
                options.runs, lambda: sqlite_round(Path(folder), options.jobs, options.parcel)
            )
    if options.only != "sqlite":
        with bench_server(options.postgres, options.folder) as server:
            found["postgres"] = _medians(
                options.runs, lambda: postgres_round(server, options.jobs, options.parcel)
            )
    if options.json:
        print(json.dumps(found))
        return
    for store, figures in found.items():
        print(f"{store}, jobs a second, medians of {options.runs}")
        for name, rate in figures.items():
            share = (
                "" if name == "penstock" else f"   Penstock: {figures['penstock'] / rate:.2f} of it"
            )
            print(f"  {WORDS[name]:<46}{rate:>12,.0f}{share}")


def _medians(runs: int, once: Callable[[], dict[str, float]]) -> dict[str, float]:
    rounds = [once() for _ in range(runs)]
    return {name: median(figures[name] for figures in rounds) for name in rounds[0]}


if __name__ == "__main__":
    main()
