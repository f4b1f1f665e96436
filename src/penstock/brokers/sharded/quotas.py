"""Limits over shards: each shard holds a quota, and the quotas add up to the limit or to less.

    claims       every shard counts its own part, as any limit: no claim asks another shard
    deal         who finds that a part lies idle, or is not fair, deals out anew: below

One deal, of one limit. `version` is higher than any that a shard has:

    1  put on every shard, in the order of their names: its part, or less   (none is higher now)
    2  count on every shard what it uses: it can only become less
    3  put on those that lack some what is left: the limit, without parts and uses   (version + 1)

A shard refuses a lower version, so of two that deal at once one gets through the first step, and a
step that comes late changes nothing. Killed anywhere, the parts add up to less, and the next deal
finds it. All shards have to be there: the part of one that is away stays with it.

A bucket that leaves takes running jobs along: its shard's part becomes nothing in the same
transaction (`take_out`), and a deal in which any shard's map changed between its first and its
second step deals out nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec

from penstock.broker.move import StaleMap
from penstock.broker.protocol import Broker
from penstock.broker.quota import LimitUse, Quota, holds_quotas, over_shards
from penstock.broker.values import Wanted
from penstock.brokers.sharded.quota_parts import (
    ShardLook,
    ShardStanding,
    due_under,
    fair_parts,
    grants,
    is_unfair,
    moves_now,
    numbers_of,
    parts_of,
    room_of,
    used,
)
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.errors import Refused, StoreUnreachable
from penstock.rules.limits import slack_of
from penstock.rules.rule import Rule

_TRIES = 20
# Another one deals, a shard is away, or has buckets and is not named here: parts stay as they are.
_NOT_NOW = (StaleMap, Refused, *AWAY)
LOOK_SECONDS = 0.05  # a claim that found too little looks no sooner for idle parts
_TURN_SECONDS = 5.0  # of a limit lower than the number of shards that want some of it


class Quotas:
    """Deal out limits over shards."""

    def __init__(
        self,
        shards: Shards,
        now: Callable[[], float],
        version: Callable[[], int],
        look_seconds: float,
    ) -> None:
        self._shards = shards
        self._now = now
        self._version = version  # of the rules: changes with every part
        self._look_seconds = look_seconds
        self._look_at = 0.0
        self._limits: tuple[int, list[Rule]] | None = None

    # Set and clear

    def put(self, rule: Rule) -> Rule:
        """Put a limit that was checked on every shard, with a part of nothing; then deal it out."""
        for _ in range(_TRIES):
            kept = self._kept(rule.id)
            now = self._now()
            stands = [each.limit for each in kept.values() if each and not each.cleared]
            stands = [limit for limit in stands if limit.in_force(now)]
            began = stands[0].created_at if stands else rule.created_at or now
            limit = msgspec.structs.replace(rule, created_at=began)
            if self._place_on_all(limit, kept, cleared=False):
                self._deal_while(limit.id)
                return limit
        raise _outrun(rule)

    def clear(self, rule_id: str, author: str, reason: str) -> bool:
        """Take a limit back on every shard; False if there is none."""
        for _ in range(_TRIES):
            kept = self._kept(rule_id)
            newest = _newest(kept)
            if newest is None or newest.cleared:
                return False
            limit = msgspec.structs.replace(newest.limit, author=author, reason=reason)
            if self._place_on_all(limit, kept, cleared=True):
                return newest.limit.in_force(self._now())
        raise StoreUnreachable(f"limit {rule_id} is being dealt out again and again: try again")

    def _place_on_all(
        self, limit: Rule, kept: Mapping[str, Quota | None], *, cleared: bool
    ) -> bool:
        """Whether this attempt was the first everywhere; if a shard goes away, as it was before."""
        newest = _newest(kept)
        given = Quota(
            limit=limit,
            version=1 if newest is None else newest.version + 1,
            dealer=str(uuid.uuid4()),
            cleared=cleared,
        )
        placed: list[Shard] = []
        try:
            for shard in map(self._shards.named.__getitem__, kept):
                placed.append(shard)
                if not _place(shard, given):
                    return False
        except AWAY:
            for shard in placed:
                _give_back(shard, given, kept[shard.name] or newest)
            raise
        return True

    # What stands

    def limits(self) -> list[Rule]:
        """The limits over all shards that are in force, as they were set."""
        version = self._version()
        if self._limits is None or self._limits[0] != version:
            found = self._shards.first(lambda store: store.records(Quota))
            self._limits = (version, [each.limit for each in found if not each.cleared])
        now = self._now()
        return [limit for limit in self._limits[1] if limit.in_force(now)]

    def looks(self) -> dict[str, ShardLook]:
        """What every shard that answers says of its parts."""
        return self._shards.reached(_look)

    def not_here(self, limit: Rule, shard: Shard) -> str:
        """Why a shard lets nothing start under a limit that is not used up."""
        part = shard.call(_quotas_of).get(limit.id)
        share = "nothing" if part is None else part.part.bound
        away = [each.name for each in self._shards.all if each.away is not None]
        rest = (
            f"the rest stays with shard {', '.join(away)}, which is away, until it is back"
            if away
            else "the rest is with other shards, and comes here within seconds"
        )
        whole = f"the limit of {limit.target} ({limit.bound})"
        return f"Of {whole} shard {shard.name} has {share}: {rest}."

    # Deal

    def look_for_more(
        self, wanted: Sequence[Wanted], monotonic: float
    ) -> tuple[bool, float | None]:
        """Whether parts that lie idle went to where jobs are due; and when to look again.

        For a claim that found too little: of the limits that it may have come up against.
        """
        try:
            limits = [limit for limit in self.limits() if _concerns(limit, wanted)]
            if not limits:
                return False, None
            if any(shard.resting for shard in self._shards.all):
                return False, None  # a deal needs all
            if monotonic < self._look_at:
                return False, self._now() + self._look_at - monotonic
            dealt, free_at = self._deal_what(limits, moves_now)
        except _NOT_NOW:
            return False, None
        if not dealt:
            self._look_at = monotonic + self._look_seconds
        return dealt, free_at

    def deal_fairly(self) -> None:
        """Deal out anew what is unfair or unfinished; a part of everybody's upkeep."""
        if any(shard.resting for shard in self._shards.all):
            return
        try:
            kept = self._shards.every(_quotas_of)
            for rule_id in {rule_id for quotas in kept.values() for rule_id in quotas}:
                each = {name: quotas.get(rule_id) for name, quotas in kept.items()}
                newest = _newest(each)
                if newest is not None and any(
                    quota is None or (quota.limit, quota.cleared) != (newest.limit, newest.cleared)
                    for quota in each.values()
                ):
                    self._deal(rule_id)  # whoever set or cleared it was killed
            if limits := self.limits():
                turn = self._turn()
                self._deal_what(
                    limits,
                    lambda total, each: moves_now(total, each) or is_unfair(total, each, turn),
                )
        except _NOT_NOW:
            return

    def adopt(self, shard: Shard) -> None:
        """Deal out limits that a store had before it was one of several."""
        dealt = shard.call(_quotas_of)
        for rule in shard.call(lambda store: store.records(Rule)):
            if over_shards(rule) and (rule.id not in dealt or dealt[rule.id].cleared):
                check_quotas(self._shards, rule)
                self.put(rule)

    def deal_all(self) -> None:
        """Deal out every limit anew, as far as all shards are there: buckets moved."""
        for limit in self.limits():
            try:
                self._deal(limit.id)
            except _NOT_NOW:
                continue

    def _deal_what(
        self, limits: Sequence[Rule], worth: Callable[[int, Mapping[str, ShardStanding]], bool]
    ) -> tuple[bool, float | None]:
        looks = self._shards.every(_look)
        dealt, times = False, list[float]()
        for limit in limits:
            due = _due(limit, self.limits(), looks)
            if any(
                worth(total, standings)
                for total, standings in _standings(limit, looks, due).values()
            ):
                dealt = self._deal(limit.id) or dealt
            if limit.rate is not None and any(due.values()):
                window = limit.rate[1] + slack_of(limit.rate[1])
                ago = [start[0] for look in looks.values() for start in _starts(look, limit)]
                times += [self._now() + window - max(ago)] if ago else []
        return dealt, min(times, default=None)

    def _deal_while(self, rule_id: str) -> None:
        """Deal, and again while another one does, or a bucket moves."""
        for _ in range(_TRIES):
            try:
                if self._deal(rule_id):
                    return
            except _NOT_NOW:
                continue  # whoever looks after the store does it

    def _deal(self, rule_id: str) -> bool:
        """Deal out one limit anew; False if another one does, or a bucket is on its way."""
        self._shards.look_again()
        with self._shards.patience():
            plan = self._shards.plan
            names = plan.map.names
            if plan.coming or not self._shards.named.keys() >= set(names):
                return False
            kept = self._kept(rule_id)
            newest = _newest(kept)
            if newest is None:
                return False
            limit, version = newest.limit, newest.version + 1
            looks = self._shards.every(_look)
            due = _due(limit, self.limits(), looks)
            fair = _fair(limit, looks, due, names, self._turn())
            dealer = str(uuid.uuid4())
            parts: dict[str, tuple[int, int]] = {}
            for name, before in kept.items():
                stands = before is not None and before.limit == limit and not newest.cleared
                had = parts_of(before) if stands else (0, 0)
                parts[name] = min(had[0], fair[0].get(name, 0)), min(had[1], fair[1].get(name, 0))
                given = _quota(newest, version, dealer, parts[name])
                if not _place(self._shards.named[name], given):
                    return False
            if newest.cleared:
                return True
            uses = self._shards.every(_uses)
            # All have to say that nothing left them: what did is counted nowhere.
            self._shards.look_again(at_all=True)
            if self._shards.newest_plan != plan:
                return False
            raised = [dict[str, int](), dict[str, int]()]
            for place, total in enumerate(numbers_of(limit)):
                if total is not None:
                    after = {
                        name: ShardStanding(
                            parts[name][place],
                            used(limit, uses[name].get(rule_id))[place],
                            due[name],
                        )
                        for name in parts
                    }
                    raised[place] = grants(total, after, fair[place])
            for name in sorted(raised[0].keys() | raised[1].keys()):
                part = (
                    raised[0].get(name, parts[name][0]),
                    raised[1].get(name, parts[name][1]),
                )
                _place(self._shards.named[name], _quota(newest, version + 1, dealer, part))
            return bool(raised[0] or raised[1])

    def _turn(self) -> int:
        return int(self._now() / _TURN_SECONDS)

    def _kept(self, rule_id: str) -> dict[str, Quota | None]:
        kept = self._shards.every(_quotas_of)
        return {name: quotas.get(rule_id) for name, quotas in kept.items()}


def _quota(newest: Quota, version: int, dealer: str, part: tuple[int, int]) -> Quota:
    return Quota(
        limit=newest.limit,
        version=version,
        dealer=dealer,
        running=part[0],
        rate=part[1],
        cleared=newest.cleared,
    )


def _place(shard: Shard, given: Quota) -> bool:
    """Put a quota on its shard; whether it is kept, or a higher version stands."""
    return shard.write(lambda store: store.put(given)) == given


def _give_back(shard: Shard, given: Quota, before: Quota | None) -> None:
    """Put back what a shard had, or nothing, as far as it answers."""
    given = msgspec.structs.replace(given, version=given.version + 1, cleared=True)
    if before is not None:
        given = msgspec.structs.replace(
            before, version=given.version, dealer=given.dealer, running=0, rate=0
        )
    try:
        _place(shard, given)
    except _NOT_NOW:
        return


def _newest(kept: Mapping[str, Quota | None]) -> Quota | None:
    return max(
        (quota for quota in kept.values() if quota is not None),
        key=lambda quota: quota.version,
        default=None,
    )


def _due(limit: Rule, limits: Sequence[Rule], looks: Mapping[str, ShardLook]) -> dict[str, int]:
    others = {other: room_of(other, looks.values()) for other in limits if other.id != limit.id}
    return {name: due_under(limit, look.counts, others) for name, look in looks.items()}


def _standings(
    limit: Rule, looks: Mapping[str, ShardLook], due: Mapping[str, int]
) -> dict[int, tuple[int, dict[str, ShardStanding]]]:
    """For each number of a limit: the number, and how each shard stands."""
    return {
        place: (
            total,
            {
                name: ShardStanding(
                    parts_of(look.quotas.get(limit.id))[place], look.use(limit)[place], due[name]
                )
                for name, look in looks.items()
            },
        )
        for place, total in enumerate(numbers_of(limit))
        if total is not None
    }


def _fair(
    limit: Rule,
    looks: Mapping[str, ShardLook],
    due: Mapping[str, int],
    names: Sequence[str],
    turn: int,
) -> list[dict[str, int]]:
    """The fair parts of both numbers, of shards that have buckets."""
    found = [dict[str, int](), dict[str, int]()]
    for place, (total, standings) in _standings(limit, looks, due).items():
        among = {name: each for name, each in standings.items() if name in names}
        found[place] = fair_parts(total, among, turn)
    return found


def _look(store: Broker) -> ShardLook:
    return ShardLook(_quotas_of(store), _uses(store), store.count())


def _quotas_of(store: Broker) -> dict[str, Quota]:
    return {quota.id: quota for quota in store.records(Quota)}


def _uses(store: Broker) -> dict[str, LimitUse]:
    return {use.rule: use for use in store.limit_uses()} if holds_quotas(store) else {}


def _starts(look: ShardLook, limit: Rule) -> Sequence[tuple[float, int]]:
    use = look.uses.get(limit.id)
    return () if use is None else use.starts


def _concerns(limit: Rule, wanted: Sequence[Wanted]) -> bool:
    return any(
        each.limit > 0
        and (limit.queue is None or each.queues is None or limit.queue in each.queues)
        for each in wanted
    )


def _outrun(rule: Rule) -> Exception:
    return StoreUnreachable(
        f"the limit of {rule.target} is being set by somebody else again and again: try again"
    )


def check_quotas(shards: Shards, rule: Rule) -> None:
    """Refuse a limit over shards where a store cannot hold a part of one."""
    for shard in shards.all:
        if not shard.call(holds_quotas):
            raise Refused(
                f"a limit of {rule.target} over several shards: the store of shard {shard.name} "
                "cannot hold a part of one. Limit each key (per_key)"
            )
