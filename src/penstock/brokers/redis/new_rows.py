"""New jobs that nothing but their lane and their time points at, as they are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.broker.checks import check_age, check_job, check_lane
from penstock.brokers.memory.store import as_new
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.containers import MOST_FIELDS, packed, write_in_parts
from penstock.brokers.redis.index import NEW
from penstock.brokers.redis.rows import (
    Rest,
    id_bytes,
    lane_bytes,
    lane_row,
    plain_row,
    row_of,
)
from penstock.brokers.redis.store import sent_key
from penstock.brokers.redis.wire import Word
from penstock.job import Job, Lane, Parcel

_TIME = packed(float)


class NewRows:
    """The rows of jobs of one call, and what points at them."""

    def __init__(self, now: float, oldest: float) -> None:
        self._now = now
        self._oldest = oldest  # ids from before are not remembered
        self._rows: list[Word] = []
        self._sent: dict[bytes, list[Word]] = {}
        self._lines: dict[str, list[Word]] = {}
        self._new: list[Word] = []
        self._lanes: dict[bytes, Lane] = {}

    def add(self, offered: Job[Any] | Parcel) -> None:
        lane = offered.lane
        check_lane(lane)
        name = lane_bytes(lane)
        self._lanes[name] = lane
        check_age(offered.id, self._now, self._oldest)
        if isinstance(offered, Job):
            check_job(offered)
            job = as_new(offered, self._now)
            self._add(name, job.id, row_of(job), job.enqueued_at, job.run_at)
            return
        at = as_new(Job(task=lane.task, id=offered.id), self._now).enqueued_at
        for job_id, body in zip(offered.ids(), offered.bodies, strict=True):
            check_job(Job(task=lane.task, id=job_id, body=body))
            rest = Rest(
                lane.task, body, lane.queue, lane.version, lane.priority, None, lane.app, at
            )
            rest.runs_on = lane.runs_on
            self._add(name, job_id, plain_row(name, rest), at, None)

    def _add(self, lane: bytes, job_id: str, row: bytes, at: float, run_at: float | None) -> None:
        member = id_bytes(job_id)
        self._rows += (member, row)
        self._sent.setdefault(sent_key(member), []).extend((member, _TIME.encode(at)))
        line = f"{'q' if run_at is None else 'z'}:{lane.hex()}"
        self._lines.setdefault(line, []).extend((at if run_at is None else run_at, member))
        self._new += (0, member)

    def write(self, change: RedisChange) -> bool:
        """Write them where none was stored before; False if an id comes twice."""
        if len(self._rows) != 2 * len(set(self._rows[::2])):
            return False
        for key, words in self._sent.items():
            for start in range(0, len(words), 2 * MOST_FIELDS):
                part: Sequence[Word] = words[start : start + 2 * MOST_FIELDS]
                absent = [None] * (len(part) // 2)
                change.expect(("HMGET", b"sent:" + key, *part[::2]), absent)
                change.write("HSET", b"sent:" + key, *part)
            change.write("SADD", "sents", key)
        write_in_parts(change, ("HSET", "j"), self._rows, 2 * MOST_FIELDS)
        for key, words in self._lines.items():
            write_in_parts(change, ("ZADD", key), words, 2 * MOST_FIELDS)
        write_in_parts(change, ("ZADD", NEW), self._new, 2 * MOST_FIELDS)
        for name, lane in self._lanes.items():
            change.write("HSET", "lanes", name, lane_row(lane))
        return True
