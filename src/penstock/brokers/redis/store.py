"""RedisStore: what the memory broker keeps in dictionaries, kept in Redis; of one change.

Where the memory broker looks at everything, this looks at an index.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from typing import Any, Protocol

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.lake_mark import Mark
from penstock.broker.position import Position
from penstock.broker.records import PLAIN_KINDS
from penstock.broker.span_stats import Gauged
from penstock.broker.views import Event, Note
from penstock.brokers.memory.containers import (
    PublishedWrite,
    RegisteredWorker,
    UniqueHolder,
    lane_of,
)
from penstock.brokers.memory.store import MemoryStore
from penstock.brokers.positions import position_text
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.containers import Codec, Members, NestedRows, Rows, packed
from penstock.brokers.redis.flows import RedisFlows
from penstock.brokers.redis.history import PRUNED_AT_ONCE, RedisHistory
from penstock.brokers.redis.jobs import JobRows, RedisLines, key_name
from penstock.brokers.redis.rows import event_row, id_bytes, id_of
from penstock.enqueue.ids import is_lasting
from penstock.enqueue.secrets import secrets_until, without_kept_secrets
from penstock.flows.flow import Flow
from penstock.job import ENDED, Job, Lane, State
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

_NOTHING = Codec[None](lambda _: b"", lambda _: None)
_TIME = packed(float)
_GAUGED = packed(Gauged)
MOST_COUNTED = 100_000  # rows of the history, for the statistics of a minute
_gauged = msgspec.msgpack.Encoder().encode
MOST_AT_ONCE = 1000  # rows of one prune


def _note_field(key: tuple[str, str]) -> bytes:
    return msgspec.msgpack.encode(key)


def _note_key(field: bytes) -> tuple[str, str]:
    return msgspec.msgpack.decode(field, type=tuple[str, str])


# Notes of one moment are shown as they were made, and a hash has no order: each has a number.
_numbers = itertools.count(time.time_ns())
_numbered = packed(tuple[int, Note])
_NOTE = Codec[Note](
    lambda note: _numbered.encode((next(_numbers), note)), lambda row: _numbered.decode(row)[1]
)


class NoteRows(Rows[tuple[str, str], Note]):
    """The notes of one job, in the order in which they were made."""

    def load_all(self) -> None:
        super().load_all()
        rows = self._fetched.items()
        self._fetched = dict(
            sorted(rows, key=lambda row: _numbered.decode(row[1])[0] if row[1] else 0)
        )


class RedisStore(MemoryStore):
    """The containers of one change, and what is looked up in them."""

    def __init__(self, clock: AnyClock, change: RedisChange) -> None:
        super().__init__(clock)
        self.change = change
        self.job_rows = JobRows(change)
        self.jobs = self.job_rows  # the same, for the memory broker's text
        self.lines = RedisLines(change, self.job_rows, clock.now())
        self.held = NestedRows(
            change,
            "holders",
            lambda name: Rows(change, f"held:{name}", _NOTHING, id_bytes, id_of),
        )
        self.asked = Members(change, "asked", id_bytes, id_of)
        self.expiring = _Ignored()
        self.sent = self._sent_ids = Sent(change)
        self.keys.standing = self._standing = Rows[str, UniqueHolder](
            change, "u", packed(UniqueHolder)
        )
        self.flow_rows = RedisFlows(change, self._flow_says, clock.now)
        self.flows = self.flow_rows
        self.rules = Rows[str, Rule](change, "rules", packed(Rule))
        self.schedules = Rows[str, Schedule](change, "schedules", packed(Schedule))
        self.marks = Rows[str, Mark](change, "marks", packed(Mark))
        self.plain_records = {
            kind.name: Rows[str, Any](change, f"record:{kind.name}", packed(kind.type))
            for kind in PLAIN_KINDS
        }
        self.staged_at = Rows(change, "staged_at", _TIME)
        batches = Rows[str, tuple[int, float]](change, "batches", packed(tuple[int, float]))
        published = Rows[str, PublishedWrite](change, "published", packed(PublishedWrite))
        self.batches, self.published = batches, published
        self.workers = Rows(change, "workers", packed(RegisteredWorker))
        self.given_up = Rows(change, "given_up", _TIME)
        self.notes = self.note_rows = NestedRows(
            change,
            "noted",
            lambda name: NoteRows(change, f"notes:{name}", _NOTE, _note_field, _note_key),
        )
        self._counted: tuple[_Counted, ...] = (
            *(self.job_rows, self._sent_ids, batches, published),
            *(self.flow_rows, self.note_rows),
        )
        self.past = RedisHistory(change)
        self.history = self.past  # pyright: ignore[reportAttributeAccessIssue]  rows are added at the commit
        self.starts = Rows(change, "starts", packed(list[tuple[float, int]]), repr)
        self.sealed_apps = Rows(change, "sealed", _TIME)

    # Values of their own

    @property
    def hints(self) -> int:
        return int(self.change.hints)

    @hints.setter
    def hints(self, number: int) -> None:
        if hasattr(self, "change"):
            self.change.hints = number > 0

    @property
    def rules_version(self) -> int:
        return int(self.change.look("GET", "rv") or 0)

    @rules_version.setter
    def rules_version(self, number: int) -> None:  # noqa: ARG002  it counts on
        if hasattr(self, "change"):
            self.change.write("INCR", "rv")
            self.change.hints = True

    @property
    def pruned_before(self) -> float:
        return float(self.change.look("HGET", "meta", "pruned") or 0.0)

    @pruned_before.setter
    def pruned_before(self, before: float) -> None:
        if hasattr(self, "change"):
            self.change.write("HSET", "meta", "pruned", repr(before))

    @property
    def gauged(self) -> Gauged:
        row = self.change.read("HGET", "meta", "gauged")
        return Gauged() if row is None else _GAUGED.decode(row)

    @gauged.setter
    def gauged(self, gauged: Gauged) -> None:
        if hasattr(self, "change"):
            self.change.write("HSET", "meta", "gauged", _gauged(gauged))

    @property
    def newest(self) -> Position:
        return position_text(int(self.change.look("GET", "pos") or 0))

    @property
    def id(self) -> str:
        """The store's own id, made by whoever asks first."""
        stored = self.change.look("HGET", "meta", "id")
        if stored is None:
            self.change.look("HSETNX", "meta", "id", str(uuid.uuid4()))
            stored = self.change.look("HGET", "meta", "id")
        return stored.decode()

    def rows(self) -> int:
        return -self.past.deleted - sum(rows.deleted for rows in self._counted)

    # Jobs

    def named(self, ids: Sequence[str]) -> list[Job[Any]]:
        self.job_rows.load(ids)
        return super().named(ids)

    def take_in(
        self,
        jobs: Iterable[Job[Any]],
        flow: Flow | None,
        now: float,
        parent: Job[Any] | None = None,
        *,
        waits: bool = False,
    ) -> dict[str, str]:
        jobs = list(jobs)
        self._sent_ids.load([job.id for job in jobs])
        self._standing.load([job.unique.key for job in jobs if job.unique])
        return super().take_in(jobs, flow, now, parent, waits=waits)

    def due(self, lane: Lane) -> Iterator[Job[Any]]:
        # The line was read before the rows: some may have left it in between.
        return (job for job in self._due(lane) if job.state is State.READY)

    def _due(self, lane: Lane) -> Iterator[Job[Any]]:
        for _, job_id in self.lines[lane].due(self.clock.now()):
            if (job := self.jobs.get(job_id)) is not None:
                yield job

    def held_by(self, worker: str) -> list[Job[Any]]:
        jobs = self.named(list(self.held[worker]))
        return [job for job in jobs if job.state is State.RUNNING and job.worker == worker]

    def running(self, claimed: Job[Any]) -> Job[Any] | None:
        job = super().running(claimed)
        # A replica that was promoted may not know of a claim: the next one has the same attempt.
        if job is None or claimed.claimed_at not in {None, job.claimed_at}:
            return None
        return job

    def take_out(self, job: Job[Any]) -> None:
        if job.state is State.READY:
            self.lines[lane_of(job)].remove(job)

    def others_of_key(self, job: Job[Any]) -> Iterable[Job[Any]]:
        found = self.change.read("SMEMBERS", key_name(job.queue, job.key or ""))
        return self.named([*map(id_of, found), *self.job_rows.changed()])

    def awaiting(self, signal: str) -> Iterable[Job[Any]]:  # noqa: ARG002  few wait at a time
        return self.named([id_of(member) for member in self.change.look("SMEMBERS", "waits")])

    def holders(self, rule: Rule, key: str | None) -> dict[str, int]:
        for worker in self.change.read("SMEMBERS", "holders"):
            held = self.change.read("HKEYS", b"held:" + worker)
            self.job_rows.load([id_of(member) for member in held])
        return super().holders(rule, key)

    def expire(self) -> None:
        now = self.clock.now()
        ids = [id_of(member) for member in self.change.look("ZRANGEBYSCORE", "ex", "-inf", now)]
        expiring = sorted(self.named(ids), key=lambda job: job.id)
        over = [
            job
            for job in expiring
            if job.state in {State.READY, State.WAITING}
            and job.expires_at is not None
            and job.expires_at <= now
        ]
        self.cancel(over, "expired", {})

    # Upkeep

    def forget_ended(self, before: float, held: Callable[[Event, float], bool]) -> None:
        now = self.clock.now()
        over = self._ids_until("keep", now)
        gone = [job for job in self.named(over) if job.keep_until and job.keep_until <= now]
        over = {job.id for job in gone}
        marks = len(self.marks) > 0
        for job in self._ended_until(before):
            if len(gone) >= PRUNED_AT_ONCE:
                self.past.unfinished = True
                break
            if job.ended_at is None or job.ended_at >= before or job.keep_until is not None:
                continue
            if job.state is State.SUCCEEDED and marks and self._needed(job.id, before, held):
                continue
            gone.append(job)
        for job in gone:
            del self.jobs[job.id]
        not_done = [job for job in gone if job.state is not State.SUCCEEDED]
        self.give_up(not_done)
        self.forget_lasting(not_done)
        self.flows.forget_ended(before)
        self.forget_history(before, held, over)

    def _ids_until(self, key: str, at: float, start: int = 0) -> list[str]:
        words = ("ZRANGEBYSCORE", key, "-inf", at, "LIMIT", start, PRUNED_AT_ONCE)
        found = [id_of(member) for member in self.change.look(*words)]
        if key != "ended" and len(found) == PRUNED_AT_ONCE:
            self.past.unfinished = True
        return found

    def _ended_until(self, before: float) -> Iterator[Job[Any]]:
        start = 0
        while found := self._ids_until("ended", before, start):
            yield from self.named(found)
            start += len(found)

    def rows_before(self, before: float) -> Iterable[Event]:
        return self.past.before(before)

    def _needed(self, job: str, before: float, held: Callable[[Event, float], bool]) -> bool:
        rows = self.past.at(self.past.positions_of(job))
        return any(row.body is not None and held(row, before) for row in rows)

    def forget_kept_secrets(self) -> None:
        now = self.clock.now()
        for job in self.named(self._ids_until("secrets", now)):
            if job.state in ENDED and (secrets_until(job.body) or now + 1) <= now:
                body = without_kept_secrets(job.body)
                self.jobs[job.id] = msgspec.structs.replace(job, body=body)

    def forget_notes(self) -> None:
        names = list(self.notes)
        self.job_rows.load(names)
        for name in names:
            if name not in self.jobs and not self.past.positions_of(name):
                del self.notes[name]

    def forget_sent(self, before: float) -> None:
        self.past.unfinished |= self._sent_ids.forget(before, self.job_rows)

    # History

    def _write(self, kind: str, at: float, data: bytes | None, **fields: Any) -> None:
        event = Event(position="", kind=kind, at=at, data=data, **fields)
        self.change.tell(event_row(event), event.job, kind)

    def wipe(self, gone: Collection[str]) -> None:
        self.past.wipe(gone)

    def rows_after(self, position: int) -> list[Event]:
        """Up to a bound: the others are counted a minute later."""
        return self.past.some(position, MOST_COUNTED)

    def forget_history(
        self, before: float, held: Callable[[Event, float], bool], over: Collection[str]
    ) -> None:
        self.past.wipe(over)
        self.past.forget(before, lambda event: self.stays(event) or held(event, before))


def sent_key(member: bytes) -> bytes:
    """Which part of the ids that were stored an id is in."""
    return b"d" if member[0] == 0xFF else member[:4]


class _Counted(Protocol):
    @property
    def deleted(self) -> int: ...


class _Ignored(set[str]):
    """Which jobs may expire follows from their rows."""

    def add(self, element: str) -> None: ...

    def discard(self, element: object) -> None: ...


class Sent(MutableMapping[str, float]):
    """When each id was stored, for as long as ids are remembered; by the time that is in the id.

    A hash for each 65 seconds; derived ids have no time, and are in one of their own.
    """

    def __init__(self, change: RedisChange) -> None:
        self._change = change
        self._buckets: dict[bytes, Rows[str, float]] = {}
        self._new: set[bytes] = set()

    def _bucket(self, job_id: str) -> Rows[str, float]:
        return self._rows(sent_key(id_bytes(job_id)))

    def _rows(self, name: bytes) -> Rows[str, float]:
        if name not in self._buckets:
            key = b"sent:" + name
            self._buckets[name] = Rows(self._change, key, _TIME, id_bytes, id_of)
        return self._buckets[name]

    def load(self, ids: Iterable[str]) -> None:
        buckets: dict[int, tuple[Rows[str, float], list[str]]] = {}
        for job_id in ids:
            rows = self._bucket(job_id)
            buckets.setdefault(id(rows), (rows, []))[1].append(job_id)
        for rows, members in buckets.values():
            rows.load(members)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._bucket(str(job_id))

    def __getitem__(self, job_id: str) -> float:
        return self._bucket(job_id)[job_id]

    def __setitem__(self, job_id: str, at: float) -> None:
        self._bucket(job_id)[job_id] = at
        name = sent_key(id_bytes(job_id))
        if name not in self._new:
            self._new.add(name)
            self._change.write("SADD", "sents", name)

    def __delitem__(self, job_id: str) -> None:
        del self._bucket(job_id)[job_id]

    def __iter__(self) -> Iterator[str]:
        for name in self._change.look("SMEMBERS", "sents"):
            yield from self._rows(name)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def deleted(self) -> int:
        return sum(rows.deleted for rows in self._buckets.values())

    def forget(self, before: float, jobs: JobRows) -> bool:
        """Forget what is older and belongs to no job that is kept; True if there is more."""
        for name in self._change.look("SMEMBERS", "sents"):
            if name != b"d" and int.from_bytes(name, "big") * 65.536 >= before:
                continue
            rows = self._rows(name)
            rows.load_all()
            ids = list(rows)
            old = [job_id for job_id in ids if rows[job_id] < before and not is_lasting(job_id)]
            jobs.load(old)
            gone = 0
            for job_id in old:
                if self.deleted >= PRUNED_AT_ONCE:
                    return True
                if job_id not in jobs:
                    del rows[job_id]
                    gone += 1
            if gone == len(ids) and name != b"d":  # nobody may add ids of that time any more
                self._change.write("SREM", "sents", name)
        return False
