"""Whether the tables of a store are back to their size after a storm.

Three kinds: tables of what is under way are empty when every job has ended; those with a row per
worker, lane or count stay small, however long it went on; what is kept of each job (history, ended
jobs) grows with the number of jobs, and by no more than their rows need.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

UNDER_WAY = ("lease", "parcel", "start", "unique_key")
MOST_FIXED = 8 << 20  # bytes, however long the storm; measured after four minutes: 1.5 to 2.6 MB
MOST_PER_JOB = 2048  # bytes; measured: 300 to 600
_SQLITE_NAMES = {"unique_key": "unique"}
# A row or more for each job or flow, kept until it is pruned.
_PER_JOB = ("history", "sent", "job", "tag", "note", "flow", "node", "need", "member")


def check_postgres_size(url: str, jobs: int) -> None:
    """After a vacuum, on a store on which so many jobs have ended."""
    with psycopg.connect(url, autocommit=True) as connection:
        rows = {
            name: len(connection.execute(f"select from penstock.{name}").fetchall())
            for name in UNDER_WAY
        }
        assert rows == dict.fromkeys(UNDER_WAY, 0)
        connection.execute("vacuum")
        listed = connection.execute(
            """
            select relname, pg_relation_size(oid), pg_total_relation_size(oid)
            from pg_class
            where relnamespace = 'penstock'::regnamespace and relkind = 'r'
            """
        ).fetchall()
    assert {name: heap for name, heap, _ in listed if name in UNDER_WAY} == rows
    per_job = sum(size for name, _, size in listed if name.startswith(_PER_JOB))
    others = {name: size for name, _, size in listed if not name.startswith(_PER_JOB)}
    print(f"{per_job:,} bytes for {jobs:,} jobs, {sum(others.values()):,} in other tables")
    assert sum(others.values()) < MOST_FIXED, others
    assert per_job < MOST_FIXED + jobs * MOST_PER_JOB, listed


def check_sqlite_size(path: Path, jobs: int) -> None:
    """Of the file, of its free pages, and of a copy that has only what is needed."""
    copy = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as connection:
        rows = {
            name: connection.execute(
                f"select count(*) from penstock_{_SQLITE_NAMES.get(name, name)}"
            ).fetchone()[0]
            for name in UNDER_WAY
        }
        assert rows == dict.fromkeys(UNDER_WAY, 0)
        connection.execute("pragma wal_checkpoint(truncate)")
        [page] = connection.execute("pragma page_size").fetchone()
        [free] = connection.execute("pragma freelist_count").fetchone()
        connection.execute("vacuum into ?", (str(copy),))
    size, needed, wal = (
        file.stat().st_size for file in (path, copy, path.with_name(f"{path.name}-wal"))
    )
    copy.unlink()
    print(f"{size:,} bytes for {jobs:,} jobs, {page * free:,} of them free; {needed:,} are needed")
    assert page * free < MOST_FIXED
    assert size - page * free < MOST_FIXED + 1.25 * needed
    assert size < MOST_FIXED + jobs * MOST_PER_JOB
    assert wal == 0, "somebody still reads an old state of the store"
