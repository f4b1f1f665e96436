"""Traits: what a store declares about itself, and the capabilities that only some stores have."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol, cast

import msgspec

from penstock.broker.values import RETENTION_SECONDS, Transaction
from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

# joins: `enqueue` can write in the caller's own transaction, by `connection=`.
# joins later: and a join can be made a value, for callers that await (see `Joinable`).
# begins: a task can open a transaction of the store's database, which ends with the job.
# roles: the database itself decides who may block.
Capability = Literal["joins", "joins later", "begins", "roles"]


class Traits(msgspec.Struct, kw_only=True):
    """What a store declares about itself. Only `relaxed` is set by the program that opens it."""

    name: str  # what people call the store in a sentence: "the memory broker"
    capabilities: frozenset[Capability] = frozenset()
    # It works in another process, so that this one can run jobs meanwhile.
    apart: bool = False
    # How long what ended is kept, and ids are remembered.
    retention: float = RETENTION_SECONDS
    # How long a worker that waits for a hint need not look for itself; may change while it runs.
    poll_seconds: Callable[[], float]
    # A number that changes with the rules and schedules; cheap enough to ask before every start.
    rules_version: Callable[[], int]
    # Queues whose jobs need not be on the disk when enqueue or settle returns: a crash of the
    # machine may lose the last that were enqueued, and run the last that ended again.
    relaxed: frozenset[str] = frozenset()

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
