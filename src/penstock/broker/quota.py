"""Quotas: what each of several shards may use of one limit over all of them.

A limit of a queue or a task counts over the whole store. Where the store is several shards, each
holds a quota of it: a rule with its part of the numbers, which its claims count as any limit. The
parts add up to the limit or to less. Who deals them out is `brokers/sharded/quotas.py`; a store
only keeps its part, and says what stands against it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeGuard

import msgspec

from penstock.rules.limits import Use
from penstock.rules.rule import Rule, RuleKind, check_rule


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it was set, and the part of it that this shard may use.

    Of two of one limit the one with the higher version holds; each attempt to deal out anew writes
    a higher one on every shard first. `cleared`: the limit was taken back; the record stays, so
    that nobody who read it before puts it back.
    """

    limit: Rule
    version: int
    dealer: str  # an id of one attempt: two that write the same version are told apart
    running: int | None = None
    rate: int | None = None
    cleared: bool = False

    @property
    def id(self) -> str:
        return self.limit.id

    @property
    def part(self) -> Rule:
        """The rule by which it holds on its shard; a part of nothing lets nothing start."""
        rate = self.limit.rate and (self.rate or 0, self.limit.rate[1])
        running = None if self.limit.running is None else self.running or 0
        return msgspec.structs.replace(self.limit, running=running, rate=rate)

    @property
    def emptied(self) -> Quota:
        """The same, with a part of nothing."""
        return msgspec.structs.replace(self, running=0, rate=0)


def check_quota(given: Quota) -> None:
    """Refuse what is no limit over all keys."""
    check_rule(given.limit)


def replaced(before: Quota | None, given: Quota, now: float) -> Quota:
    """The higher version; of two equal ones the first."""
    del now
    return given if before is None or given.version > before.version else before


def rules_of(quota: Quota) -> dict[str, Rule]:
    return {} if quota.cleared else {quota.id: quota.part}


def event_data(
    before: Quota | None, after: Quota | None, author: str, reason: str
) -> Mapping[str, Any] | None:
    """What the history tells: that a limit was set or cleared, not how it is dealt out."""
    del author, reason
    if after is None or (before is not None and _says(before) == _says(after)):
        return None
    if before is None and after.cleared:
        return None
    return after.limit.data(in_force=not after.cleared)


def _says(quota: Quota) -> tuple[Rule, bool]:
    return quota.limit, quota.cleared


def over_shards(rule: Rule) -> bool:
    """Whether a rule counts over all shards, and so is dealt out."""
    return rule.kind is RuleKind.LIMIT and not rule.per_key


_dealt_out: ContextVar[bool] = ContextVar("dealt_out", default=False)


@contextmanager
def dealt_out() -> Generator[None]:
    """Records that are put or cleared within this leave limits to whoever deals them out."""
    token = _dealt_out.set(True)
    try:
        yield
    finally:
        _dealt_out.reset(token)


def own_rules(rules: Mapping[str, Rule]) -> Mapping[str, Rule]:
    """The rules of a record that its store puts by itself."""
    if not _dealt_out.get():
        return rules
    return {id: rule for id, rule in rules.items() if not over_shards(rule)}


class LimitUse(msgspec.Struct, frozen=True):
    """What stands against a limit of a store, whatever the keys."""

    rule: str  # its id
    running: Mapping[str, int]  # by worker
    starts: Sequence[tuple[float, int]] = ()  # how many seconds ago so many started

    @property
    def use(self) -> Use:
        """The same for the arithmetic of limits, at time 0."""
        return Use(sum(self.running.values()), [(-ago, jobs) for ago, jobs in self.starts])


class HoldsQuotas(Protocol):
    """A verb of a store that can be a shard of limits over several: the capability "quotas"."""

    def limit_uses(self) -> list[LimitUse]:
        """What stands against each limit in force that counts all keys together."""
        ...


def holds_quotas(broker: Any) -> TypeGuard[HoldsQuotas]:
    """Whether limits over several shards may have a part in this store."""
    return "quotas" in broker.traits.capabilities
