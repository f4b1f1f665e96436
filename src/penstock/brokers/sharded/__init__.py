"""Several stores used as one: each has a part of the 1,024 buckets of ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.app.clock import AnyClock
from penstock.brokers.sharded.broker import ShardedBroker
from penstock.brokers.sharded.opening import open_all
from penstock.brokers.sharded.shards import Opens

__all__ = ["ShardedBroker", "open_sharded"]  # see docs/how-to/shards.md


def open_sharded(
    opens: Mapping[str, Opens],
    clock: AnyClock | None = None,
    *,
    create: bool = True,
    more: Callable[[], Mapping[str, Opens]] | None = None,
    claim_from: frozenset[str] | None = None,
) -> ShardedBroker:
    """The shards that these open, by name; `more` says which there are by now.

    Jobs are taken from those that `claim_from` names, or from all.
    """
    return ShardedBroker(open_all(opens, create=create, more=more), clock, claim_from)
