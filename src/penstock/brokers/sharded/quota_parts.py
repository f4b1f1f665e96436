"""The arithmetic of quotas: how a limit is dealt out to shards. Numbers in, numbers out.

A shard counts for its part, or for what it uses where that is more: jobs that were running when
the limit came, or came with a bucket. So whatever is dealt out, all shards together stay within
the limit, or start nothing until they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from penstock.broker.quota import LimitUse, Quota
from penstock.broker.views import Count
from penstock.rules.limits import Limits, slack_of
from penstock.rules.rule import Rule


class ShardStanding(NamedTuple):
    """One shard under one number of a limit."""

    part: int
    used: int
    due: int  # jobs that would start, were there no limit

    @property
    def charge(self) -> int:
        return max(self.part, self.used)

    @property
    def wants(self) -> int:
        return self.used + self.due


Standings = Mapping[str, ShardStanding]  # by shard


class ShardLook(msgspec.Struct, frozen=True):
    """What one shard said at one moment."""

    quotas: Mapping[str, Quota]
    uses: Mapping[str, LimitUse]
    counts: list[Count]

    def use(self, rule: Rule) -> tuple[int, int]:
        """How many run under a limit, and how many starts count against its rate."""
        return used(rule, self.uses.get(rule.id))


def used(rule: Rule, use: LimitUse | None) -> tuple[int, int]:
    if use is None:
        return 0, 0
    window = 0.0 if rule.rate is None else rule.rate[1] + slack_of(rule.rate[1])
    return use.use.running, sum(jobs for ago, jobs in use.starts if ago < window)


def numbers_of(rule: Rule) -> tuple[int | None, int | None]:
    return rule.running, rule.rate and rule.rate[0]


def parts_of(quota: Quota | None) -> tuple[int, int]:
    return (0, 0) if quota is None else (quota.running or 0, quota.rate or 0)


def fair_parts(total: int, standings: Standings, turn: int) -> dict[str, int]:
    """Parts that add up to the total: to each what it wants, or as much as is fair.

    What nobody wants is dealt out evenly. With fewer to deal than there are shards that want some,
    whose turn it is changes with `turn`.
    """
    names: list[str] = sorted(standings)
    hungry: list[str] = [name for name in names if standings[name].wants > 0]
    if total < len(hungry):
        first = turn % len(hungry)
        hungry = hungry[first:] + hungry[:first]
    parts: dict[str, int] = dict.fromkeys(names, 0)
    left = total
    while left > 0 and hungry:
        each = max(1, left // len(hungry))
        for name in hungry:
            more = min(each, standings[name].wants - parts[name], left)
            parts[name] += more
            left -= more
        hungry = [name for name in hungry if parts[name] < standings[name].wants]
    for place, name in enumerate(names):
        parts[name] += left // len(names) + (place < left % len(names))
    return parts


def moves_now(total: int, standings: Standings) -> bool:
    """Whether a shard lacks what another one has no use for, or what nobody has."""
    lacks = any(each.part < each.wants for each in standings.values())
    spare = sum(each.charge for each in standings.values()) < total or any(
        each.part > each.wants for each in standings.values()
    )
    return lacks and spare


def is_unfair(total: int, standings: Standings, turn: int) -> bool:
    """Whether a shard that lacks some has less than its fair part."""
    fair = fair_parts(total, standings, turn)
    return any(each.part < min(each.wants, fair[name]) for name, each in standings.items())


def grants(total: int, standings: Standings, fair: Mapping[str, int]) -> dict[str, int]:
    """The parts of those that get more than they have; never more than is left."""
    left = total - sum(each.charge for each in standings.values())
    found: dict[str, int] = {}
    for name in sorted(standings, key=lambda name: -standings[name].due):
        each = standings[name]
        most = min(fair.get(name, 0), each.charge + max(0, left))
        if most > each.part:
            found[name] = most
            left -= max(0, most - each.charge)
    return found


def room_of(rule: Rule, looks: Iterable[ShardLook]) -> int:
    """How many more jobs may start under a limit, on all shards together."""
    uses = [look.use(rule) for look in looks]
    left = [
        number - sum(use[place] for use in uses)
        for place, number in enumerate(numbers_of(rule))
        if number is not None
    ]
    return max(0, min(left))


def due_under(rule: Rule, counts: Iterable[Count], others: Mapping[Rule, int]) -> int:
    """How many jobs of a shard would start under a limit, as far as the others leave room."""
    due = 0
    for count in counts:
        if covers(rule, count):
            rooms = [room for other, room in others.items() if covers(other, count)]
            due += min([count.ready + count.limited, *rooms])
    return due


def covers(rule: Rule, count: Count) -> bool:
    return rule.queue in {None, count.queue} and rule.task in {None, count.task}


def all_uses(rule: Rule, looks: Iterable[ShardLook]) -> LimitUse:
    """What stands against a limit on all shards together."""
    running: dict[str, int] = {}
    starts: list[tuple[float, int]] = []
    for look in looks:
        use = look.uses.get(rule.id)
        if use is not None:
            starts += use.starts
            for worker, jobs in use.running.items():
                running[worker] = running.get(worker, 0) + jobs
    return LimitUse(rule.id, running, sorted(starts, reverse=True))


def limits_over(rules: Iterable[Rule], looks: Iterable[ShardLook]) -> Limits:
    """The limits as if all shards were one store, at time 0."""
    seen = list(looks)
    return Limits(rules, lambda rule, _: all_uses(rule, seen).use, 0.0)


def ready_elsewhere(
    counts: Iterable[Count], limits: Iterable[Rule], looks: Mapping[str, ShardLook]
) -> list[Count]:
    """Counts of all shards: what may start once an idle part comes is ready, not limited."""
    limits, found = list(limits), list(counts)
    rooms = {
        limit: room_of(limit, looks.values())
        - sum(count.ready for count in found if covers(limit, count))
        for limit in limits
    }
    for at, count in enumerate(found):
        over = [limit for limit in limits if covers(limit, count)]
        more = max(0, min([count.limited, *(rooms[limit] for limit in over)])) if over else 0
        for limit in over:
            rooms[limit] -= more
        found[at] = msgspec.structs.replace(
            count, ready=count.ready + more, limited=count.limited - more
        )
    return found
