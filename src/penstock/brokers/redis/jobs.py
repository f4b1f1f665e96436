"""The rows of jobs, and what points at them: lines of lanes, counts, what is due for upkeep.

What points at a job follows from its row alone: at the commit, the row as it was and as it is say
what to take away and what to add. Keys:

    j           hash   id -> row
    q:<lane>    zset   id by enqueued_at: ready, without a time       z:<lane>   by run_at
    t           hash   lane and state -> number, of jobs that wait, run or failed
    ex, ended, keep, secrets   zset   id by when it expires, ended, is to go, loses its secrets
    waits       set    ids that wait for a signal
    k:<queue key>      set   ids that have this key and did not succeed
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, MutableMapping
from typing import Any

from penstock.brokers.memory.containers import Place, WaitingLine, lane_of
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.containers import Codec, Rows, write_in_parts
from penstock.brokers.redis.index import index_keys, place_of
from penstock.brokers.redis.rows import (
    LETTERS,
    id_bytes,
    id_of,
    job_of,
    lane_bytes,
    lane_from,
    lane_row,
    row_of,
)
from penstock.brokers.redis.wire import Word
from penstock.enqueue.secrets import secrets_until
from penstock.flows.flow import WAIT_TASK
from penstock.job import ENDED, Job, Lane, State

_COUNTED = frozenset({State.WAITING, State.RUNNING, State.FAILED})
_CHUNK = 64
Entry = tuple[str, Word, Word]  # key, member, score; "" for a set


def key_name(queue: str, key: str) -> str:
    """The name of the set of a key's jobs; no queue has a line feed in its name."""
    return f"k:{queue}\n{key}"


class JobRows(Rows[str, Job[Any]]):
    """Every job that has a row, by its id."""

    def __init__(self, change: RedisChange) -> None:
        super().__init__(change, "j", Codec(row_of, self._never), id_bytes, id_of)
        self._lanes: set[Lane] = set()

    @staticmethod
    def _never(row: bytes) -> Job[Any]:
        raise NotImplementedError(row)

    def _value(self, key: str) -> Any:
        if key not in self._values and key in self._fetched:
            row = self._fetched[key]
            if row is not None:
                self._used[key] = None
                self._values[key] = job_of(key, row)
                return self._values[key]
        elif key not in self._values:
            self.load([key])
            return self._value(key)
        return super()._value(key)

    def changed(self) -> list[str]:
        return list(self._changed)

    def flush(self) -> None:
        self.load(self._changed)
        counts: dict[bytes, int] = {}
        for job_id in self._changed:
            row = self._fetched[job_id]
            before = None if row is None else job_of(job_id, row)
            self._used[job_id] = None  # what points at it follows from what it was
            self._move(before, self.get(job_id), counts)
        for field, number in counts.items():
            if number:
                self.change.write("HINCRBY", "t", field, number)
        lanes: list[Word] = []
        for lane in self._lanes:
            lanes += (lane_bytes(lane), lane_row(lane))
        write_in_parts(self.change, ("HSET", "lanes"), lanes, 500)
        super().flush()

    def _move(
        self, before: Job[Any] | None, after: Job[Any] | None, counts: dict[bytes, int]
    ) -> None:
        old = set(_entries(before)) if before else set[Entry]()
        new = set(_entries(after)) if after else set[Entry]()
        kept = {entry[:2] for entry in new}
        for key, member, score in old - new:
            if (key, member) not in kept:
                self.change.write("SREM" if score == "" else "ZREM", key, member)
        for key, member, score in new - old:
            if score == "":
                self.change.write("SADD", key, member)
            else:
                self.change.write("ZADD", key, score, member)
        for job, number in ((before, -1), (after, 1)):
            if job is not None and job.state in _COUNTED:
                field = lane_bytes(lane_of(job)) + LETTERS[job.state]
                counts[field] = counts.get(field, 0) + number
        if after is not None and before is None:
            self._lanes.add(lane_of(after))


def _entries(job: Job[Any]) -> Iterator[Entry]:
    member = id_bytes(job.id)
    place = place_of(job)
    for key in index_keys(job):
        yield key, place, 0
    if job.state is State.READY:
        lane = lane_bytes(lane_of(job)).hex()
        if job.run_at is None:
            yield f"q:{lane}", member, job.enqueued_at
        else:
            yield f"z:{lane}", member, job.run_at
    if job.state in {State.READY, State.WAITING} and job.expires_at is not None:
        yield "ex", member, job.expires_at
    if job.state is State.WAITING and job.task == WAIT_TASK:
        yield "waits", member, ""
    if job.key is not None and job.state is not State.SUCCEEDED:
        yield key_name(job.queue, job.key), member, ""
    if job.state in ENDED:
        if job.keep_until is not None:
            yield "keep", member, job.keep_until
        else:
            yield "ended", member, job.ended_at or 0.0
        if until := secrets_until(job.body):
            yield "secrets", member, until


class RedisLine(WaitingLine):
    """The ready jobs of one lane; what this change does to them is seen at once."""

    def __init__(self, change: RedisChange, jobs: JobRows, lane: Lane) -> None:
        super().__init__()
        name = lane_bytes(lane).hex()
        self._change = change
        self._jobs = jobs
        self.at_once = f"q:{name}"
        self.timed = f"z:{name}"
        self._gone: set[str] = set()
        self.first: Place | None = None  # as it was found, without this change
        self.looked = False

    def __len__(self) -> int:
        return sum(self._change.look_many([("ZCARD", self.at_once), ("ZCARD", self.timed)]))

    def add(self, job: Job[Any]) -> None:
        self._gone.discard(job.id)
        super().add(job)

    def remove(self, job: Job[Any]) -> None:
        jobs, place = self._place(job)
        if place in jobs:
            jobs.remove(place)
        self._gone.add(job.id)

    def look(self, now: float) -> list[tuple[Word, ...]]:
        """The commands that find its first job."""
        return [
            ("ZRANGE", self.at_once, 0, 0, "WITHSCORES"),
            ("ZRANGEBYSCORE", self.timed, "-inf", now, "WITHSCORES", "LIMIT", 0, 1),
        ]

    def found(self, replies: list[Any]) -> None:
        self.looked = True
        places = [place for reply in replies for place in _places(reply)]
        self.first = min(places, default=None)

    def head(self, now: float) -> Place | None:
        if self.looked and not self._gone and not super().head(now):
            return self.first
        return next(self.due(now), None)

    def next_due(self, now: float) -> float | None:
        own = super().next_due(now)
        reply = self._change.look(
            "ZRANGEBYSCORE", self.timed, f"({now!r}", "+inf", "WITHSCORES", "LIMIT", 0, 1
        )
        times = [at for at, job in _places(reply) if job not in self._gone]
        return min([*times, *([] if own is None else [own])], default=None)

    def due(self, now: float) -> Iterator[Place]:
        own = iter(list(super().due(now)))
        gone = frozenset(self._gone)
        known = frozenset(place[1] for place in (*self._at_once, *self._timed))
        stored = _merged(self._stored(self.at_once, "+inf"), self._stored(self.timed, now))
        return (place for place in _merged_own(own, stored, gone | known))

    def _stored(self, key: str, until: float | str) -> Iterator[Place]:
        start, size = 0, _CHUNK
        while True:
            reply = self._change.look(
                "ZRANGEBYSCORE", key, "-inf", until, "WITHSCORES", "LIMIT", start, size
            )
            places = list(_places(reply))
            self._jobs.load([job_id for _, job_id in places])
            yield from places
            if len(places) < size:
                return
            start, size = start + size, min(size * 2, 1000)

    def ahead_of(self, job: Job[Any], now: float) -> int:
        """How many due jobs come before this one; for `why`, which changes nothing."""
        _, place = self._place(job)
        return sum(1 for other in self.due(now) if other < place)


def _places(reply: list[Any]) -> Iterator[Place]:
    for member, score in zip(reply[::2], reply[1::2], strict=True):
        yield float(score), id_of(member)


def _merged(first: Iterator[Place], second: Iterator[Place]) -> Iterator[Place]:
    return heapq.merge(first, second)


def _merged_own(
    own: Iterator[Place], stored: Iterator[Place], without: frozenset[str]
) -> Iterator[Place]:
    return _merged(own, (place for place in stored if place[1] not in without))


class RedisLines(MutableMapping[Lane, WaitingLine]):
    """The lines of every lane that ever had a job."""

    def __init__(self, change: RedisChange, jobs: JobRows, now: float) -> None:
        self._change = change
        self._jobs = jobs
        self._now = now
        self._open: dict[Lane, RedisLine] = {}

    def __getitem__(self, key: Lane) -> WaitingLine:
        line = self._open.get(key)
        if line is None:
            line = self._open[key] = RedisLine(self._change, self._jobs, key)
        return line

    def get(self, key: Lane, default: Any = None) -> WaitingLine:  # noqa: ARG002  pyright: ignore[reportIncompatibleMethodOverride]
        return self[key]

    def setdefault(self, key: Lane, default: Any = None) -> WaitingLine:  # noqa: ARG002  pyright: ignore[reportIncompatibleMethodOverride]
        return self[key]

    def __setitem__(self, key: Lane, value: WaitingLine) -> None:
        raise NotImplementedError

    def __delitem__(self, key: Lane) -> None:
        """An empty line stays; its key is gone by itself."""

    def __iter__(self) -> Iterator[Lane]:
        """Every lane, with a look at the first job of each."""
        lanes = [lane_from(row) for row in self._change.look("HVALS", "lanes")]
        names = dict.fromkeys([*lanes, *self._open])
        lines = [self[lane] for lane in names]
        unseen = [line for line in lines if isinstance(line, RedisLine) and not line.looked]
        replies = self._change.look_many(
            [words for line in unseen for words in line.look(self._now)]
        )
        for place, line in enumerate(unseen):
            line.found(replies[2 * place : 2 * place + 2])
        return iter(names)

    def __len__(self) -> int:
        return len(list(iter(self)))
