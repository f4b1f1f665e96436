"""The limits of the stores themselves: rows of a job's size through the driver, nothing around.

Each function gives rows a second. Those of PostgreSQL and SQLite are those of `penstock bench`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.tools.bench import raw as sqlite
from penstock.tools.bench.postgres import raw as postgres

ROWS_PER_PIPELINE = 1000
_BODY = b'{"args":{"number":1234567,"text":"' + b"x" * 60 + b'"}}'


@dataclass(frozen=True)
class Place:
    """Where the stores are, each empty."""

    folder: Path
    postgres: str
    redis: str


def redis_push(place: Place, count: int) -> float:
    """RPUSH, one by one."""
    import redis

    with redis.Redis.from_url(place.redis) as client:
        began = time.perf_counter()
        for _ in range(count):
            client.rpush("raw", _BODY)
        return count / (time.perf_counter() - began)


def redis_pipeline(place: Place, count: int) -> float:
    """RPUSH, a thousand to a pipeline."""
    import redis

    with redis.Redis.from_url(place.redis) as client:
        began = time.perf_counter()
        for first in range(0, count, ROWS_PER_PIPELINE):
            with client.pipeline(transaction=False) as pipeline:
                for _ in range(min(ROWS_PER_PIPELINE, count - first)):
                    pipeline.rpush("raw", _BODY)
                pipeline.execute()
        return count / (time.perf_counter() - began)


LIMITS: dict[str, Callable[[Place, int], float]] = {
    "postgres_copy": lambda place, count: postgres.copy(place.postgres, count),
    "postgres_commit": lambda place, count: postgres.single(place.postgres, count),
    "redis_push": redis_push,
    "redis_pipeline": redis_pipeline,
    "sqlite_bulk": lambda place, count: sqlite.bulk(place.folder, count),
    "sqlite_commit": lambda place, count: sqlite.single(place.folder, count),
}
