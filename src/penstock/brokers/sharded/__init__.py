"""Several stores used as one: each has a part of the 1,024 buckets of ids."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.app.clock import AnyClock
from penstock.brokers.sharded.broker import ShardedBroker
from penstock.brokers.sharded.opening import Opens, open_all

__all__ = ["ShardedBroker", "open_sharded"]  # see docs/how-to/shards.md


def open_sharded(
    opens: Mapping[str, Opens], clock: AnyClock | None = None, *, create: bool = True
) -> ShardedBroker:
    """The shards that these open, by name."""
    return ShardedBroker(open_all(opens, create=create), clock)
