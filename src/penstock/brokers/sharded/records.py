"""Records over shards: rules are on all of them, a schedule is where its jobs are.

A rule is in force when all shards have it. If one does not answer nothing is changed; if one
stops answering half-way, the others are given back what they had. What else is on all shards
(subscriptions, options of queues) has to be put again then, which is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.broker.lake_mark import Mark
from penstock.broker.protocol import Broker
from penstock.broker.records import PLAIN_KINDS, Record
from penstock.broker.shard_map import Departure, ShardMap, SplitEnqueue, SplitWrite
from penstock.brokers.sharded.marks import marks_as_one
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.enqueue.ids import bucket_for, bucket_of
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind, check_rule
from penstock.schedules.schedule import Decision, Schedule, bucket_text

R = TypeVar("R", bound=Record)

# Kinds that each shard keeps by itself.
_BY_ITSELF = (ShardMap, SplitEnqueue, SplitWrite, Departure)


class ShardedRecords:
    """Put, clear and list records; decide schedules."""

    def __init__(self, shards: Shards, now: Callable[[], float]) -> None:
        self._shards = shards
        self._now = now
        self._rules: tuple[int, list[Rule]] | None = None

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        kept: Any
        if isinstance(record, Schedule):
            kept = self._put_schedule(record, author, reason)
        elif isinstance(record, Rule):
            kept = self._put_rule(record, author, reason)
        elif isinstance(record, (Mark, *_BY_ITSELF)):
            raise Refused(f"a {type(record).__name__} is put on each shard by itself")
        else:
            kept = self._put_on_all(record, author, reason)
        return kept

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        if kind in _BY_ITSELF:
            raise Refused(f"a {kind.__name__} is cleared on each shard by itself")
        self._ask_all()
        cleared = self._shards.every(
            lambda shard: shard.clear(kind, record_id, author, reason), fenced=True
        )
        return any(cleared.values())

    def records(self, kind: type[R]) -> list[R]:
        found: Any
        if kind is ShardMap:
            return [self._shards.map]  # pyright: ignore[reportReturnType]
        if kind is Mark:
            marks = self._shards.reached(lambda shard: shard.records(Mark))
            return marks_as_one(marks, self._shards.named)  # pyright: ignore[reportReturnType]
        if kind not in {Schedule, SplitEnqueue, SplitWrite, Departure}:  # all shards have them
            found = self._shards.first(lambda shard: shard.records(kind))
        else:
            each = self._shards.reached(lambda shard: shard.records(kind))
            found = sorted(
                (record for records in each.values() for record in records), key=_name_of
            )
        return found

    def rules(self, version: int) -> Sequence[Rule]:
        """The rules as they were at this version."""
        if self._rules is None or self._rules[0] != version:
            self._rules = (version, self.records(Rule))
        return self._rules[1]

    def _ask_all(self) -> None:
        """Refuse, and change nothing, where a shard does not answer."""
        self._shards.every(lambda shard: shard.records(Rule))

    # Rules

    def _put_rule(self, rule: Rule, author: str, reason: str) -> Rule:
        check_rule(rule)
        self._check_limit(rule)
        return self._put_on_all(rule, author, reason)

    def _check_limit(self, rule: Rule) -> None:
        if rule.kind is RuleKind.LIMIT and not rule.per_key and len(self._shards.map.names) > 1:
            raise Refused(
                f"a limit of {rule.target} over several shards: each would let as many start. Limit"
                " each key (per_key), or keep these jobs in a store of their own"
            )

    def _check_rules_of(self, record: Record, before: Sequence[Record]) -> None:
        """A record may hold by rules, of what it says and of what it said before."""
        for kind in PLAIN_KINDS:
            if isinstance(record, kind.type):
                kind.check(record)
                after = kind.replaced(next(iter(before), None), record, self._now())
                for rule in kind.rules_of(after).values():
                    self._check_limit(rule)

    def _put_on_all(self, record: R, author: str, reason: str) -> R:
        kind, name = type(record), _name_of(record)
        before = {
            shard: [kept for kept in records if _name_of(kept) == name]
            for shard, records in self._shards.every(lambda store: store.records(kind)).items()
        }
        for kept in before.values():
            self._check_rules_of(record, kept)
        kept: list[R] = []
        for shard in self._shards.all:
            # A rule is alike on all: the first says when it was made.
            given = kept[0] if kept and kind is Rule else record
            try:
                kept.append(shard.write(_putting(given, author, reason)))
            except AWAY:
                if kind is Rule:
                    for other in self._shards.all[: len(kept)]:
                        _give_back(other, name, before[other.name])
                raise
        return kept[0]

    # Schedules

    def _home(self, schedule: Schedule) -> Shard:
        return self._shards.of_bucket(bucket_for(bucket_text(schedule)))

    def _put_schedule(self, schedule: Schedule, author: str, reason: str) -> Schedule:
        home = self._home(schedule)
        for shard in self._shards.all:
            if shard is not home and any(
                kept.name == schedule.name for kept in shard.call(_schedules)
            ):
                raise Refused(
                    f"schedule {schedule.name} is on shard {shard.name}, and with this key its jobs"
                    f" are on {home.name}: remove it first (penstock schedules remove)"
                )
        return home.write(lambda store: store.put(schedule, author, reason))

    def decide_schedule(self, schedule: Schedule, decisions: Sequence[Decision]) -> bool:
        home = self._home(schedule)
        for decision in decisions:
            job = decision.job
            if job is not None and self._shards.of_bucket(bucket_of(job.id)) is not home:
                raise Refused(
                    f"job {job.id} of schedule {schedule.name} is not on the schedule's shard "
                    f"{home.name}: its id has another bucket than {bucket_text(schedule)!r}"
                )
        return home.write(lambda store: store.decide_schedule(schedule, decisions))


def _name_of(record: Any) -> str:
    return getattr(record, "name", None) or record.id


def _putting(record: R, author: str, reason: str) -> Callable[[Broker], R]:
    return lambda store: store.put(record, author, reason)


def _give_back(shard: Shard, rule_id: str, before: Sequence[Any]) -> None:
    """Put back the rule that a shard had, or none, as far as it answers."""
    why = "a shard went away while it was set"
    try:
        for rule in before:
            shard.call(_putting(rule, rule.author, rule.reason))
        if not before:
            shard.call(lambda store: store.clear(Rule, rule_id, "", why))
    except AWAY:
        return


def _schedules(store: Broker) -> list[Schedule]:
    return store.records(Schedule)
