"""BullMQ's queues: lists and sorted sets of ids, and a hash for each job, whose data is JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.brokers.other_queues import OtherJob
from penstock.brokers.redis.other_queues.places import Kind, OtherRedis, Place, json_of
from penstock.errors import Refused

_PREFIX = "bull:"
_SHIFT = 0x1000  # a score is milliseconds times this, and a counter
_PARTS: tuple[tuple[str, Kind], ...] = (
    ("prioritized", "by score"),
    ("wait", "oldest right"),
    ("paused", "oldest right"),
    ("delayed", "by score"),
)
_FIELDS = ("name", "data", "parentKey", "rjk", "repeatJobKey")


class BullmqQueues(OtherRedis):
    """The queues of BullMQ under its usual prefix."""

    def places(self) -> list[Place]:
        names = self.wanted or [
            key.removeprefix(_PREFIX).removesuffix(":meta")
            for key in self.found(f"{_PREFIX}*:meta")
        ]
        return [
            Place(f"{_PREFIX}{name}:{part}".encode(), kind, name)
            for name in names
            for part, kind in _PARTS
        ]

    def notes(self) -> list[str]:
        notes: list[str] = []
        looks = (
            ("active", "LLEN", "are running"),
            ("waiting-children", "ZCARD", "wait for their children"),
        )
        for part, command, what in looks:
            keys = self.found(f"{_PREFIX}*:{part}")
            number = sum(self.server.many([(command, key) for key in keys])) if keys else 0
            if number:
                notes.append(f"{number:,} jobs of BullMQ {what}, and are not read")
        return notes

    def read(self, place: Place, members: Sequence[tuple[bytes, float]]) -> list[OtherJob]:
        # Older releases have markers among the ids: they wake workers for delayed jobs.
        members = [member for member in members if not member[0].startswith(b"0:")]
        keys = [f"{_PREFIX}{place.queue}:".encode() + member for member, _ in members]
        rows = self.server.many([("HMGET", key, *_FIELDS) for key in keys])
        delayed = place.key.endswith(b":delayed")
        return [
            _job(
                place,
                member,
                score // _SHIFT / 1000 if delayed else None,
                dict(zip(_FIELDS, row, strict=True)),
            )
            for (member, score), row in zip(members, rows, strict=True)
        ]

    def drop(self, job: OtherJob) -> list[tuple[Any, ...]]:
        key = f"{_PREFIX}{job.queue}:{job.place[1].decode()}"
        return [("DEL", key, f"{key}:logs", f"{key}:lock")]


def _job(
    place: Place, member: bytes, run_at: float | None, row: Mapping[str, bytes | None]
) -> OtherJob:
    there = (place.key, member)
    # Ids count from 1 in each queue.
    job_id = f"{place.queue}:{member.decode(errors='replace')}"
    name = (row["name"] or b"a job without a name").decode(errors="replace")
    try:
        if row["data"] is None:
            raise Refused("its data is gone")
        if row["parentKey"]:
            raise Refused("it is a child of a flow: enqueue that again, as a flow")
        if row["rjk"] or row["repeatJobKey"]:
            raise Refused("a repeatable job made it: write a schedule")
        data: Any = json_of(row["data"], "its data")
        named = isinstance(data, dict)
        return OtherJob(
            id=job_id,
            name=name,
            queue=place.queue,
            args=() if named else (data,),
            kwargs=cast("dict[str, Any]", data) if named else {},
            run_at=run_at,
            place=there,
        )
    except Refused as error:
        return OtherJob(id=job_id, name=name, queue=place.queue, refused=str(error), place=there)
