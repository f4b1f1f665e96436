"""Lists and sorted sets of another system, read from their oldest end, part by part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from penstock.brokers.other_queues import OtherJob
from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.errors import Refused

AT_ONCE = 500
Kind = Literal["oldest right", "oldest left", "by score"]


class Place(msgspec.Struct, frozen=True):
    """A key with waiting jobs in it."""

    key: bytes
    kind: Kind
    queue: str


class OtherRedis:
    """The server of another system; a subclass knows its keys."""

    def __init__(self, url: str, queues: Sequence[str]) -> None:
        self.server = ServerCalls(parse_address(url))
        self.wanted = list(queues)
        self._removed = 0
        self._kinds: dict[bytes, Kind] = {}

    def places(self) -> list[Place]:
        """Where jobs wait."""
        raise NotImplementedError

    def read(self, place: Place, members: Sequence[tuple[bytes, float]]) -> list[OtherJob]:
        """The jobs that stand for these members; the number is their score, or 0."""
        raise NotImplementedError

    def drop(self, job: OtherJob) -> list[tuple[Any, ...]]:
        """What else is deleted of a job that was taken out of its place."""
        del job
        return []

    def notes(self) -> list[str]:
        return []

    def parts(self) -> Iterator[list[OtherJob]]:
        for place in self.places():
            self._kinds[place.key] = place.kind
            stay = 0
            while members := self._members(place, stay):
                self._removed = 0
                yield self.read(place, members)
                stay += len(members) - self._removed

    def remove(self, jobs: Sequence[OtherJob]) -> list[OtherJob]:
        gone: list[OtherJob] = []
        for job in jobs:
            key, member = job.place
            kind = self._kinds[key]
            if kind == "by score":
                words: tuple[Any, ...] = ("ZREM", key, member)
            else:  # from the end where it was found
                words = ("LREM", key, -1 if kind == "oldest right" else 1, member)
            [removed, *_] = self.server.many([words, *self.drop(job)], writes=True)
            self._removed += removed
            if not removed:
                gone.append(job)
        return gone

    def close(self) -> None:
        self.server.close()

    def found(self, pattern: str) -> list[str]:
        """The keys of a pattern, sorted."""
        names: set[str] = set()
        cursor: Any = b"0"
        while True:
            cursor, keys = self.server.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            names.update(key.decode() for key in keys)
            if cursor in {b"0", 0}:
                return sorted(names)

    def _members(self, place: Place, stay: int) -> list[tuple[bytes, float]]:
        if place.kind == "by score":
            reply = self.server.call("ZRANGE", place.key, stay, stay + AT_ONCE - 1, "WITHSCORES")
            return [
                (member, float(score))
                for member, score in zip(reply[::2], reply[1::2], strict=True)
            ]
        if place.kind == "oldest left":
            return [(each, 0.0) for each in self._range(place.key, stay, stay + AT_ONCE - 1)]
        found = self._range(place.key, -stay - AT_ONCE, -stay - 1)
        return [(each, 0.0) for each in reversed(found)]

    def _range(self, key: bytes, start: int, end: int) -> list[bytes]:
        return self.server.call("LRANGE", key, start, end)


def json_of(text: bytes, what: str) -> Any:
    """A value that must be JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refused(f"{what} is no JSON") from None
