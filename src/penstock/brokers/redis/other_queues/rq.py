"""RQ's queues: a list of ids, and a hash for each job. Its default body is a pickle, refused here.

With RQ's JSONSerializer a body is a list: function, instance, arguments, keywords.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, cast

from penstock.brokers.other_queues import OtherJob
from penstock.brokers.redis.other_queues.places import OtherRedis, Place, json_of
from penstock.errors import Refused

_MOST_BYTES = 2**20  # of an unpacked body
_QUEUE, _SCHEDULED = "rq:queue:", "rq:scheduled:"


class RqQueues(OtherRedis):
    """The queues of RQ."""

    def places(self) -> list[Place]:
        names = self._names()
        return [
            *(Place(f"{_QUEUE}{name}".encode(), "oldest left", name) for name in names),
            *(Place(f"{_SCHEDULED}{name}".encode(), "by score", name) for name in names),
        ]

    def _names(self) -> list[str]:
        if self.wanted:
            return self.wanted
        found = {key.decode() for key in self.server.call("SMEMBERS", "rq:queues")}
        names = {key.removeprefix(_QUEUE) for key in found}
        names.update(key.removeprefix(_SCHEDULED) for key in self.found(f"{_SCHEDULED}*"))
        return sorted(names)

    def notes(self) -> list[str]:
        notes: list[str] = []
        for registry, what in (("wip", "are running"), ("deferred", "wait for other jobs")):
            keys = self.found(f"rq:{registry}:*")
            number = sum(self.server.many([("ZCARD", key) for key in keys])) if keys else 0
            if number:
                notes.append(f"{number:,} jobs of RQ {what}, and are not read")
        return notes

    def read(self, place: Place, members: Sequence[tuple[bytes, float]]) -> list[OtherJob]:
        keys = [b"rq:job:" + member for member, _ in members]
        rows = self.server.many(
            [("HMGET", key, "data", "description") for key in keys]
            + [("EXISTS", key + b":dependents") for key in keys]
        )
        return [
            _job(place, (member, score), row, needed=bool(needed))
            for (member, score), row, needed in zip(
                members, rows[: len(keys)], rows[len(keys) :], strict=True
            )
        ]

    def drop(self, job: OtherJob) -> list[tuple[Any, ...]]:
        return [("DEL", f"rq:job:{job.id}")]


def _job(
    place: Place,
    member_and_score: tuple[bytes, float],
    row: Sequence[bytes | None],
    *,
    needed: bool,
) -> OtherJob:
    member, score = member_and_score
    data, described = row
    job_id = member.decode(errors="replace")
    # shop.send('ada'): in clear text also where the data is none
    name = (described or b"a job without a name").decode(errors="replace").partition("(")[0]
    there = (place.key, member)
    try:
        if data is None:
            raise Refused("its data is gone")
        call = _call(data)
        name = str(call[0])
        if call[1] is not None:
            raise Refused("it calls a method of an object, which a task is not")
        if needed:
            raise Refused("other jobs wait for it: enqueue them again, as a flow")
        return OtherJob(
            id=job_id,
            name=name,
            queue=place.queue,
            args=tuple(call[2] or ()),
            kwargs=dict(call[3] or {}),
            run_at=score or None,
            place=there,
        )
    except (Refused, TypeError, ValueError) as error:
        return OtherJob(id=job_id, name=name, queue=place.queue, refused=str(error), place=there)


def _call(data: bytes) -> list[Any]:
    text = data
    if data[:1] == b"x":
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(data, _MOST_BYTES)
        except zlib.error:
            raise Refused("its data cannot be unpacked") from None
        if unpacking.unconsumed_tail:
            raise Refused(f"its data is larger than {_MOST_BYTES:,} bytes")
    if text[:1] == b"\x80":
        raise Refused(
            "its data is a pickle, and only JSON is read: a pickle may run anything. Enqueue it"
            " again, or with RQ's JSONSerializer"
        )
    call = json_of(text, "its data")
    if not isinstance(call, list) or len(cast("list[Any]", call)) != 4:
        raise Refused("its data is no call")
    return cast("list[Any]", call)
