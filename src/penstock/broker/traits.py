"""Traits: what a store declares about itself, and the capabilities that only some stores have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import msgspec

from penstock.broker.values import RETENTION_SECONDS, Transaction
from penstock.errors import Refused
from penstock.job import Job

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

# joins: `enqueue` can write in the caller's own transaction, given by `connection=`.
# joins later: and that write can be made a value, for callers that await it (see `Joinable`).
# begins: a task can open a transaction of the store's database, which ends with the job.
# order across buckets: `claim` keeps its order over the whole store, not only in each bucket of
#     ids; a store on several servers cannot.
# limits across buckets: a limit of a queue or a task counts over the whole store; without it only
#     limits per key are taken.
# bulk: the verbs of `Bulk` but `get_many`, and marks of lakes: what Spark and its pipelines need.
# one place: the positions that `history` shows are those of scans, marks and `reach`; without it
#     a scan shows those of the place that a row is in, and marks are put on each place by itself.
# scan as one look: all rows of a slice are as they were at one moment.
# moves: the verbs of `Move`: buckets of a store that is a shard move to others while jobs run.
# quotas: the verb `limit_uses`: its limits may be parts of limits over several shards.
# roles: the database itself decides who may block.
Capability = Literal[
    "joins",
    "joins later",
    "begins",
    "order across buckets",
    "limits across buckets",
    "bulk",
    "one place",
    "scan as one look",
    "moves",
    "quotas",
    "roles",
]
# Of every store that keeps all jobs in one place and reads them in one transaction.
ONE_PLACE: frozenset[Capability] = frozenset(
    {
        *("order across buckets", "limits across buckets"),
        *("bulk", "one place", "scan as one look"),
    }
)


_PROCESS_KEY = os.urandom(32)


class Traits(msgspec.Struct, kw_only=True):
    """What a store declares about itself; `relaxed` and what it calls are set by who opens it."""

    name: str  # what people call the store in a sentence: "the memory broker"
    capabilities: frozenset[Capability] = frozenset()
    # The store works in a server process: this process can run jobs while it waits for an answer.
    apart: bool = False
    # How long ended jobs are kept and ids are remembered.
    retention: float = RETENTION_SECONDS
    # How often a worker claims without having had a hint; may change while it runs.
    poll_seconds: Callable[[], float]
    # Random bytes that belong to the store, for digests that nobody else can compute. Asked for
    # seldom; a store that keeps none has one for each process.
    digest_key: Callable[[], bytes] = lambda: _PROCESS_KEY
    # The names of apps whose jobs are encrypted, as `mark_sealed` was called within the retention.
    # Who has no key for them stores nothing for them. A store that keeps no such list has none.
    sealed_apps: Callable[[], frozenset[str]] = frozenset
    mark_sealed: Callable[[str], None] = lambda _: None
    # About how much memory the open and failed jobs of each queue take; empty where jobs are on a
    # disk. An estimate, from a few jobs of each.
    queue_bytes: Callable[[], Mapping[str, int]] = dict
    # Where the store is: ids of its server or its file, and "" or the name of the shard that it is.
    # Another id at another time is a copy, a restored backup or a failover.
    places: Callable[[], Mapping[str, tuple[str, ...]]] = dict
    # A number that changes with every rule and schedule; cheap enough to read before every start.
    rules_version: Callable[[], int]
    # Of a store on several servers: what it could not see or reach when it last tried, a sentence
    # for each. Looks leave that out.
    missing: Callable[[], tuple[str, ...]] = tuple
    # Jobs of one place are stored in one transaction; None: all are.
    place_of: Callable[[str], str] | None = None
    # Queues whose jobs need not be on the disk when enqueue or settle returns: a crash of the
    # machine may lose the last jobs enqueued, and run the last ones settled again.
    relaxed: frozenset[str] = frozenset()
    # Called after the commit with each job that a call of this process ended, or made ready again,
    # although no worker reported that: it expired, was cancelled before it ran, or its worker died.
    # The job is as it stands then. It must not block, and not call the store.
    ended: Callable[[Job[Any]], None] | None = None
    # Called with the id of a job that was settled from SQL, by any connection: a hint, for who
    # keeps a copy of what is handed out. It must not block, and not call the store.
    settled_in_sql: Callable[[str], None] | None = None

    def can(self, capability: Capability) -> bool:
        return capability in self.capabilities


class Begins(Protocol):
    """A store with the capability "begins"."""

    def begin(self) -> Transaction:
        """Open a transaction of the store's own database."""
        ...


def begins(broker: Broker) -> Begins:
    """The store as one that opens transactions; refused where it cannot."""
    if not broker.traits.can("begins"):
        raise Refused(
            f"{broker.traits.name} has no database of its own: transaction() needs a store in SQL"
        )
    return cast("Begins", broker)
