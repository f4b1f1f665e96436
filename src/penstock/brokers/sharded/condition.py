"""The condition of shards: what each of their stores says, and where the buckets are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.app.settings import mask
from penstock.brokers.condition import Fact, StoreCondition
from penstock.brokers.sharded.shards_file import urls_in

PROMISE = "an accepted job survives whatever the store of its shard survives"


def condition(
    url: str, of_store: Callable[..., StoreCondition], *, thorough: bool
) -> StoreCondition:
    """Look at each store by itself; what is wrong with one names its shard."""
    facts: list[Fact] = []
    trouble: list[Any] = []
    pending: list[str] = []
    exists = True
    schemas: list[int | None] = []
    newest: list[int] = []
    for name, each in urls_in(url).items():
        found = of_store(each, thorough=thorough)
        exists = exists and found.exists
        schemas.append(found.schema)
        newest += [] if found.newest is None else [found.newest]
        pending += [f"{name}: {step}" for step in found.pending]
        wrong = [found.unseen] if found.unseen is not None else list(found.trouble)
        trouble += [msgspec.structs.replace(one, says=f"shard {name}: {one.says}") for one in wrong]
        facts.append(Fact(f"shard {name}", f"{found.where}: {found.promise}"))
    return StoreCondition(
        kind="shards",
        where=mask(url),
        promise=PROMISE,
        exists=exists,
        schema=None if None in schemas else min(number or 0 for number in schemas),
        newest=max(newest, default=None),
        pending=tuple(pending),
        trouble=tuple(trouble),
        facts=tuple(facts),
    )
