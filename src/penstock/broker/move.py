"""Move: the group of verbs that takes buckets out of a store, and brings them into another.

    take_out    at the source, one transaction: everything of these buckets leaves its place, and is
                kept as `Departure` records; the source's map says that they are the target's
    bring_in    at the target, one transaction: everything gets its place; its map says so, too
    clear       of the `Departure` records, an ordinary verb

Killed between two of them, whoever finds the records goes on; each may come twice. Between the
first and the second nobody can run, settle or change what is in these buckets: whoever tries waits.

What is written elsewhere meanwhile is fenced: a write says which epoch of a store's map it was
planned with (`planned`), and a store whose map is newer refuses it (`StaleMap`) in the same
transaction.

The history stays where it was written, and with it the results of jobs that succeeded.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeGuard

import msgspec

from penstock.broker.shard_map import Departure, ShardMap
from penstock.broker.views import Note, WorkerRow
from penstock.enqueue.ids import bucket_for, bucket_of
from penstock.errors import PenstockError, Refused
from penstock.job import Job
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule

PART_BYTES = 4 * 1024 * 1024
_ONE_AT_A_TIME = ("wait", "skip", "batch")


class StaleMap(PenstockError):
    """A write was planned with a map of shards that is older than the store's: plan it anew."""


class SentIds(msgspec.Struct, frozen=True, array_like=True):
    """Ids that were stored once, and are recognised when they are sent again."""

    first: str
    jobs: int = 1
    lane: int = 0
    at: float | None = None  # of ids that hold no time


class HeldKey(msgspec.Struct, frozen=True, array_like=True):
    """A unique key and the job that holds it."""

    key: str
    job: str
    until: str
    ends_at: float | None = None


class KeptNote(msgspec.Struct, frozen=True, array_like=True):
    """A note of a job."""

    job: str
    note: Note


class MovedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a flow, and how far it got."""

    id: str
    task: str
    members: tuple[tuple[str, int], ...]
    needs: tuple[tuple[str, bool], ...]  # and whether each was met
    on_failure: str
    jobs_left: int
    bad: int
    freed: bool


class MovedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, and how far it got."""

    id: str
    name: str
    find: Mapping[str, Any]
    state: bytes
    created_at: float
    ended_at: float | None
    jobs_left: int
    state_ttl: float | None = None
    state_until: float | None = None
    nodes: tuple[MovedNode, ...]


class Contents(msgspec.Struct, kw_only=True):
    """Everything of some buckets, as values that every store can keep."""

    jobs: list[Job[Any]] = []
    asked: list[str] = []  # running jobs that somebody asked to cancel
    workers: list[WorkerRow] = []  # who holds the running ones
    notes: list[KeptNote] = []
    sent: list[SentIds] = []
    keys: list[HeldKey] = []
    flows: list[MovedFlow] = []
    schedules: list[Schedule] = []
    batches: list[tuple[str, int, float]] = []  # bulk enqueues: id, rows, when


class TakenOut(msgspec.Struct, frozen=True):
    """What became of a `take_out`."""

    departures: Sequence[Departure] = ()
    # Nothing was taken out: these buckets have to come along, where jobs of the others hold keys.
    together: frozenset[int] = frozenset()


class Move(Protocol):
    """Verbs of a store that can be a shard whose buckets move: the capability "moves"."""

    def take_out(self, buckets: Collection[int], to: str) -> TakenOut:
        """Take these buckets out, as far as the store's map says that they are its own.

        Those that are not, since they left before, are passed over: with none left nothing is done.
        """
        ...

    def bring_in(self, departures: Sequence[Departure]) -> bool:
        """Give all parts of a departure their place; False if they were brought in before."""
        ...


def can_move(broker: Any) -> TypeGuard[Move]:
    """Whether buckets of this store move."""
    return "moves" in broker.traits.capabilities


# The epoch that writes of this thread were planned with; 0: with no map.
_planned: ContextVar[int] = ContextVar("planned_epoch", default=0)
planned_epoch = _planned.get


@contextmanager
def planned(epoch: int) -> Generator[None]:
    """Writes within this were planned with a map of this epoch."""
    token = _planned.set(epoch)
    try:
        yield
    finally:
        _planned.reset(token)


def check_epoch(kept: int | None) -> None:
    """Refuse a write that was planned with an older map; asked for in its transaction."""
    if kept is not None and kept > planned_epoch():
        raise StaleMap(
            f"the store's map has epoch {kept}, and the write was planned with {planned_epoch()}"
        )


def leaving(kept: ShardMap | None, buckets: Collection[int], to: str) -> frozenset[int]:
    """Those of these buckets that a store can let go: its own."""
    if kept is None or not kept.epoch:
        raise Refused("this store has no map of shards, so no buckets of it move")
    if to == kept.shard:
        return frozenset()
    return frozenset(bucket for bucket in buckets if kept.owner(bucket) == kept.shard)


def departures(
    move: str, kept: ShardMap, buckets: Collection[int], to: str, contents: Contents
) -> list[Departure]:
    """Contents in parts that every store can keep as a record."""
    encoded = msgspec.msgpack.encode(contents)
    pieces = [
        encoded[start : start + PART_BYTES] for start in range(0, len(encoded), PART_BYTES)
    ] or [b""]
    versions = {bucket: kept.version(bucket) + 1 for bucket in sorted(buckets)}
    return [
        Departure(
            id=f"{move}/{number:06d}",
            parts=len(pieces),
            source=kept.shard,
            to=to,
            versions=versions,
            contents=piece,
        )
        for number, piece in enumerate(pieces)
    ]


def arriving(kept: ShardMap | None, parts: Sequence[Departure]) -> Contents | None:
    """What has to be given its place; None if it has it already."""
    first = parts[0]
    if kept is None or kept.shard != first.to:
        raise Refused(f"buckets on their way to shard {first.to!r} are not of this store")
    if any(kept.version(bucket) >= version for bucket, version in first.versions.items()):
        return None
    if len(parts) != first.parts:
        raise Refused(
            f"of move {first.move} there are {len(parts)} of {first.parts} parts: the store of "
            f"shard {first.source!r} is damaged"
        )
    encoded = b"".join(part.contents for part in sorted(parts, key=lambda part: part.id))
    return msgspec.msgpack.decode(encoded, type=Contents)


def arrived(kept: ShardMap, parts: Sequence[Departure]) -> ShardMap:
    """The target's next copy of the map."""
    versions = parts[0].versions
    return kept.moved(frozenset(versions), versions, kept.shard)


def keys_elsewhere(
    jobs: Iterable[Job[Any]], keys: Iterable[tuple[str, str]], rules: Sequence[Rule]
) -> Generator[frozenset[int]]:
    """Pairs of buckets that have to stay together: of a job, and of a key that it holds.

    `keys` are unique keys with the job that holds each. A key of a job matters where a rule of its
    queue looks at keys.
    """
    for key, job_id in keys:
        yield frozenset({bucket_for(key), bucket_of(job_id)})
    for job in jobs:
        if job.unique is not None:
            yield frozenset({bucket_for(job.unique.key), bucket_of(job.id)})
        if job.key is not None and key_matters(job, rules):
            yield frozenset({bucket_for(job.key), bucket_of(job.id)})


def key_matters(job: Job[Any], rules: Iterable[Rule]) -> bool:
    """Whether a rule looks at the key of this job."""
    return any(
        (rule.policy in _ONE_AT_A_TIME and rule.queue == job.queue)
        or (rule.kind is RuleKind.LIMIT and rule.per_key and rule.fits(job))
        for rule in rules
    )


def split_apart(pairs: Iterable[frozenset[int]], buckets: Collection[int]) -> frozenset[int]:
    """Buckets that these pull along, as one of the two is among them and the other is not."""
    chosen = frozenset(buckets)
    return frozenset(
        bucket for pair in pairs if pair & chosen and not pair <= chosen for bucket in pair - chosen
    )
