"""The condition of shards: what each of their stores says, and where the buckets are."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.app.settings import mask
from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.sharded.shards_file import urls_in

PROMISE = "an accepted job survives whatever the store of its shard survives"


def condition(
    url: str, of_store: Callable[..., StoreCondition], *, thorough: bool
) -> StoreCondition:
    """Look at each store by itself; what is wrong with one names its shard."""
    facts: list[Fact] = []
    trouble: list[Trouble] = []
    pending: list[str] = []
    exists = too_new = False
    schemas: list[int] = []
    newest: list[int] = []
    for name, each in urls_in(url).items():
        found = of_store(each, thorough=thorough)
        missing = not found.exists and found.unseen is None
        exists = exists or not missing
        too_new = too_new or found.too_new
        schemas += [] if found.schema is None else [found.schema]
        newest += [] if found.newest is None else [found.newest]
        pending += [f"{name}: {step}" for step in found.pending]
        wrong = [found.unseen] if found.unseen is not None else list(found.trouble)
        wrong += [_lost(found.where)] if missing else []
        trouble += [msgspec.structs.replace(one, says=f"shard {name}: {one.says}") for one in wrong]
        facts.append(Fact(f"shard {name}", f"{found.where}: {found.promise}"))
    return StoreCondition(
        kind="shards",
        where=mask(url),
        promise=PROMISE,
        exists=exists,
        schema=max(schemas) if too_new else min(schemas, default=None),
        newest=max(newest, default=None),
        pending=tuple(pending),
        too_new=too_new,
        trouble=tuple(trouble),
        facts=tuple(facts),
    )


def _lost(where: str) -> Trouble:
    return Trouble(
        f"there is no store at {where}",
        "put its file or database back, or restore a backup; a shard that is new gets its store "
        "with `penstock shards add`",
        name="store",
    )
