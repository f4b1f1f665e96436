r"""The keys of a store, legibly: ids, lanes and times are binary in Redis. Changes nothing.

A name is written as it is shown: `sent:6a1f03c2` for `sent:` and four bytes, `\n` for a line feed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from penstock.brokers.key_views import KeyContent, KeyFamily
from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.index import job_at
from penstock.brokers.redis.rows import STATES, event_of, id_of, job_of, lane_from
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.job import Lane

MOST_KEYS = 100_000
_GLOB = re.compile(r"([*?\[\]\\])")
_ID_BYTES = 16


class _Family(NamedTuple):
    holds: str
    member: str  # how a member, or a field of a hash, is read
    value: str = ""  # and how the value of a hash is, or the score of a sorted set


# By the key, or by what is before its colon.
_FAMILIES: Mapping[str, _Family] = {
    "j": _Family("a row for each job", "id", "job"),
    "q": _Family("ready jobs of a lane, by when they were enqueued", "id", "time"),
    "z": _Family("ready jobs of a lane with a time, by that time", "id", "time"),
    "lanes": _Family("every lane: app, queue, task, version, priority, tags", "hex", "lane"),
    "t": _Family("how many jobs of a lane are in a state", "tally", "text"),
    "held": _Family("what a worker holds", "id", "none"),
    "holders": _Family("workers that hold something", "text"),
    "asked": _Family("running jobs that are to be cancelled", "id"),
    "new": _Family("every job, by when it was made", "place", "none"),
    "derived": _Family("jobs with derived ids, by when they were stored", "place", "none"),
    "st": _Family("jobs of a state, by when they were made", "place", "none"),
    "x": _Family("jobs with a tag or a searched argument", "place", "none"),
    "k": _Family("jobs of a key that did not succeed", "id"),
    "waits": _Family("jobs that wait for a signal", "id"),
    "ex": _Family("jobs by when they expire", "id", "time"),
    "ended": _Family("jobs by when they ended", "id", "time"),
    "keep": _Family("ended jobs by when they are to go", "id", "time"),
    "secrets": _Family("ended jobs by when they lose their secrets", "id", "time"),
    "sent": _Family("ids that were stored, by 65 seconds", "id", "packed time"),
    "sents": _Family("which of those there are", "hex"),
    "u": _Family("unique keys and the jobs that hold them", "text", "packed"),
    "batches": _Family("bulk enqueues: rows so far, and when", "text", "packed"),
    "flows": _Family("flows", "text", "packed"),
    "nodes": _Family("nodes of flows", "text", "packed"),
    "fl": _Family("every flow", "id", "none"),
    "fe": _Family("flows by when they ended", "id", "time"),
    "fs": _Family("flows by when their state ends by itself", "id", "time"),
    "fn": _Family("flows of a name", "id", "none"),
    "fx": _Family("flows of a name with a property", "id", "none"),
    "noted": _Family("jobs that have notes", "text"),
    "notes": _Family("notes of a job", "packed", "packed"),
    "workers": _Family("workers and their leases", "text", "packed"),
    "given_up": _Family("workers that were given up, and when", "text", "packed time"),
    "rules": _Family("rules", "text", "packed"),
    "rv": _Family("version of the rules", "text"),
    "schedules": _Family("schedules", "text", "packed"),
    "marks": _Family("marks of lakes", "text", "packed"),
    "record": _Family("records of one other kind", "text", "packed"),
    "starts": _Family("starts under rates", "text", "packed"),
    "sealed": _Family("apps that encrypt, and when they were last seen", "text", "packed time"),
    "meta": _Family("the store itself", "text", "text"),
    "staged": _Family("parts of a write of Spark's sink", "text"),
    "part": _Family("jobs of a part", "id", "job"),
    "staged_at": _Family("writes, and when something was added", "text", "packed time"),
    "published": _Family("writes that were committed", "text", "packed"),
    "h": _Family("the history", "event"),
    "pos": _Family("the last position of the history", "text"),
    "hj": _Family("rows of the history by job", "text", "none"),
    "hk": _Family("rows of the history of a rare kind", "text", "none"),
    "hg": _Family("rows whose bodies and results are hidden", "text"),
    "lock": _Family("a change that others were quicker than three times", "text"),
}
_UNKNOWN = _Family("nothing of this release", "text", "text")
_SIZES = {"hash": "HLEN", "zset": "ZCARD", "set": "SCARD", "list": "LLEN", "stream": "XLEN"}


def store_keys(url: str) -> list[KeyFamily]:
    """The keys of a store by what they are for, the largest first."""
    server = ServerCalls(parse_address(url))
    try:
        found: dict[str, list[int]] = {}
        types: dict[str, str] = {}
        for keys in _pages(server):
            for name, kind, members, size in _measured(server, keys):
                family = _family_of(name)
                types[family] = kind
                sums = found.setdefault(family, [0, 0, 0])
                for place, number in enumerate((1, members, size)):
                    sums[place] += number
    finally:
        server.close()
    families = [
        KeyFamily(
            name=_shown_family(name),
            type=types[name],
            keys=sums[0],
            members=sums[1],
            bytes=sums[2],
            holds=_FAMILIES.get(name, _UNKNOWN).holds,
        )
        for name, sums in found.items()
    ]
    return sorted(families, key=lambda family: -family.bytes)


def store_key(url: str, name: str, limit: int) -> KeyContent:
    """One key of a store and its first members; refused if there is none of this name."""
    server = ServerCalls(parse_address(url))
    try:
        key = _key_named(server, name)
        [(_, kind, members, size)] = _measured(server, [key])
        if kind == "none":
            raise Refused(
                f"there is no key {name!r} in {server.where}: penstock inspect URL lists what there"
                " is"
            )
        family = _FAMILIES.get(_family_of(key), _UNKNOWN)
        shown = _content(server, key, kind, limit)
        read = _Reading(server)
        return KeyContent(
            name=name,
            type=kind,
            members=members,
            bytes=size,
            holds=family.holds,
            shown=[read.row(family, member, value) for member, value in shown],
        )
    finally:
        server.close()


def _pages(server: ServerCalls) -> Any:
    pattern = _GLOB.sub(r"\\\1", server.prefix) + "*"
    cursor: Any = b"0"
    seen = 0
    while True:
        cursor, keys = server.call("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        start = len(server.prefix.encode())
        if keys:
            yield [key[start:] for key in keys]
        seen += len(keys)
        if cursor in {b"0", 0} or seen >= MOST_KEYS:
            return


def _measured(server: ServerCalls, keys: Sequence[bytes]) -> list[tuple[bytes, str, int, int]]:
    types = server.many([("TYPE", server.key(key)) for key in keys])
    kinds = [each if isinstance(each, str) else each.decode() for each in types]
    sizes = server.many([("MEMORY", "USAGE", server.key(key)) for key in keys])
    lengths = server.many(
        [
            (_SIZES.get(kind, "EXISTS"), server.key(key))
            for key, kind in zip(keys, kinds, strict=True)
        ]
    )
    return [
        (key, kind, int(length), int(size or 0))
        for key, kind, length, size in zip(keys, kinds, lengths, sizes, strict=True)
    ]


def _family_of(key: bytes) -> str:
    return key.partition(b":")[0].decode("utf-8", "backslashreplace")


def _shown_family(name: str) -> str:
    many = {
        "q",
        "z",
        "held",
        "st",
        "x",
        "k",
        "sent",
        "fn",
        "fx",
        "notes",
        "record",
        "staged",
        "part",
        "hk",
    }
    return f"{name}:" if name in many else name


def _key_named(server: ServerCalls, name: str) -> bytes:
    text = name.removeprefix(server.prefix)
    family, colon, rest = text.partition(":")
    if colon and family == "sent" and re.fullmatch(r"[0-9a-f]{8}", rest):
        return b"sent:" + bytes.fromhex(rest)
    return text.replace("\\n", "\n").encode()


def _content(
    server: ServerCalls, key: bytes, kind: str, limit: int
) -> list[tuple[bytes, bytes | None]]:
    """The first members with their values or scores; of a stream the last ones."""
    name = server.key(key)
    if kind == "hash":
        return _pairs(_scanned(server, "HSCAN", name, limit * 2), limit)
    if kind == "zset":
        return _pairs(server.call("ZRANGE", name, 0, limit - 1, "WITHSCORES"), limit)
    if kind == "set":
        members = _scanned(server, "SSCAN", name, limit)
        return [(member, None) for member in members[:limit]]
    if kind == "stream":
        rows = server.call("XREVRANGE", name, "+", "-", "COUNT", limit)
        return [(row[0], row[1][1]) for row in reversed(rows)]
    return [(server.call("GET", name), None)]


def _scanned(server: ServerCalls, command: str, name: Any, most: int) -> list[bytes]:
    found: list[bytes] = []
    cursor: Any = b"0"
    while True:
        cursor, part = server.call(command, name, cursor, "COUNT", 100)
        found += part
        if cursor in {b"0", 0} or len(found) >= most:
            return found


def _pairs(words: Sequence[bytes], limit: int) -> list[tuple[bytes, bytes | None]]:
    found: list[tuple[bytes, bytes | None]] = []
    found.extend(zip(words[::2], words[1::2], strict=True))
    return found[:limit]


class _Reading:
    """Members and values as people read them."""

    def __init__(self, server: ServerCalls) -> None:
        self._server = server
        self._lanes: dict[bytes, Lane] | None = None
        self._readers: Mapping[str, Callable[[bytes], object]] = {
            "id": _id,
            "hex": bytes.hex,
            "place": job_at,
            "tally": self._tally,
            "lane": lambda row: msgspec.to_builtins(lane_from(row)),
            "time": lambda score: iso_time(float(score)),
            "packed time": lambda row: iso_time(msgspec.msgpack.decode(row, type=float)),
            "packed": _packed,
            "text": _text,
        }

    def row(self, family: _Family, member: bytes, value: bytes | None) -> object:
        if family.member == "event":
            position = int(member.partition(b"-")[0])
            event = event_of(position, value or b"")
            fields = msgspec.to_builtins(event, builtin_types=(bytes,))
            return {name: _shown(field) for name, field in fields.items() if field}
        first = self._readers[family.member](member)
        if family.value == "job":
            return self._job(member, value or b"")
        if value is None or family.value == "none":
            return first
        return {"member": first, "value": self._readers[family.value or "text"](value)}

    def _tally(self, field: bytes) -> object:
        lane = self._lane(field[:8])
        state = STATES.get(field[8:])
        return {"queue": lane and lane.queue, "task": lane and lane.task, "state": state}

    def _lane(self, name: bytes) -> Lane | None:
        if self._lanes is None:
            rows = self._server.call("HGETALL", self._server.key("lanes"))
            self._lanes = {
                field: lane_from(row) for field, row in zip(rows[::2], rows[1::2], strict=True)
            }
        return self._lanes.get(name)

    def _job(self, member: bytes, row: bytes) -> object:
        job = job_of(_id(member), row)
        fields = msgspec.structs.asdict(msgspec.structs.replace(job, body=redact(job.body)))
        unset = msgspec.structs.asdict(job.__class__(task="", id=job.id, body=b""))
        kept = {name: value for name, value in fields.items() if value != unset[name]}
        plain = msgspec.to_builtins(kept, builtin_types=(bytes,))
        return {"id": job.id, **{name: _shown(value) for name, value in plain.items()}}


def _id(raw: bytes) -> str:
    return id_of(raw) if len(raw) == _ID_BYTES else _text(raw)


def iso_time(at: float) -> str:
    """A moment; 0 is none."""
    return datetime.fromtimestamp(at, UTC).isoformat() if at else "-"


def _packed(row: bytes) -> object:
    try:
        return _shown(msgspec.msgpack.decode(row))
    except msgspec.DecodeError:
        return _text(row)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _shown(value: Any) -> object:
    """What was packed, with text in place of bytes."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, Mapping):
        pairs: Any = value.items()  # pyright: ignore[reportUnknownVariableType]
        return {str(_shown(name)): _shown(each) for name, each in pairs}
    if isinstance(value, list | tuple):
        parts: list[Any] = [*value]
        return [_shown(each) for each in parts]
    return value
