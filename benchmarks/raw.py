"""The limits of the stores themselves: rows of a job's size through the driver, nothing around.

Each function gives the seconds that `count` rows took.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg

from penstock.bench import raw as sqlite

ROWS_PER_COPY = 100_000
ROWS_PER_PIPELINE = 1000
_BODY = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'
_TABLE = (
    "drop table if exists raw;"
    "create table raw (id bytea primary key, lane bigint not null, body bytea not null)"
)
_COPY = "copy raw (id, lane, body) from stdin (format binary)"
_INSERT = "insert into raw (id, lane, body) values (%s, %s, %s)"


@dataclass(frozen=True)
class Place:
    """Where the stores are."""

    folder: Path
    postgres: str
    redis: int


def free_port() -> int:
    """A port of loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def postgres_copy(place: Place, count: int) -> float:
    """COPY by psycopg's write_row, 100,000 rows a commit."""
    # Ids follow on, as those of jobs do: random ones would be slower, and this is a limit.
    rows = [(number.to_bytes(16), 7, _BODY) for number in range(count)]
    with psycopg.connect(place.postgres) as connection:
        connection.execute(_TABLE)
        connection.commit()
        began = time.perf_counter()
        for first in range(0, count, ROWS_PER_COPY):
            with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
                copy.set_types(("bytea", "int8", "bytea"))
                for row in rows[first : first + ROWS_PER_COPY]:
                    copy.write_row(row)
            connection.commit()
        return time.perf_counter() - began


def postgres_commit(place: Place, count: int) -> float:
    """A prepared insert and its commit, one row each."""
    with psycopg.connect(place.postgres, autocommit=True) as connection:
        connection.execute(_TABLE)
        began = time.perf_counter()
        for _ in range(count):
            connection.execute(_INSERT, (os.urandom(16), 7, _BODY), prepare=True)
        return time.perf_counter() - began


def redis_push(place: Place, count: int) -> float:
    """RPUSH, one by one."""
    import redis

    with redis.Redis(port=place.redis, db=31) as client:
        began = time.perf_counter()
        for _ in range(count):
            client.rpush("raw", _BODY)
        seconds = time.perf_counter() - began
        client.flushdb()
    return seconds


def redis_pipeline(place: Place, count: int) -> float:
    """RPUSH, a thousand to a pipeline."""
    import redis

    with redis.Redis(port=place.redis, db=31) as client:
        began = time.perf_counter()
        for first in range(0, count, ROWS_PER_PIPELINE):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(min(ROWS_PER_PIPELINE, count - first)):
                    pipeline.rpush("raw", _BODY)
                pipeline.execute()
        seconds = time.perf_counter() - began
        client.flushdb()
    return seconds


def sqlite_bulk(place: Place, count: int) -> float:
    """`executemany`, 10,000 rows a commit."""
    _forget(place.folder)
    return count / sqlite.bulk(place.folder, count)


def sqlite_commit(place: Place, count: int) -> float:
    """One row each, in WAL mode with synchronous FULL."""
    _forget(place.folder)
    return count / sqlite.single(place.folder, count)


def _forget(folder: Path) -> None:
    for path in folder.glob("raw-*.db*"):
        path.unlink()


LIMITS: dict[str, Callable[[Place, int], float]] = {
    "postgres_copy": postgres_copy,
    "postgres_commit": postgres_commit,
    "redis_push": redis_push,
    "redis_pipeline": redis_pipeline,
    "sqlite_bulk": sqlite_bulk,
    "sqlite_commit": sqlite_commit,
}
