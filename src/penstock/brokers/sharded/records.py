"""Records over shards: rules are on all of them, a schedule is where its jobs are.

A limit of a queue or a task is on all of them in parts: see `quotas`.

A rule is in force when all shards have it. If one does not answer nothing is changed; if one
stops answering half-way, the others are given back what they had. What else is on all shards
(subscriptions, options of queues) has to be put again then, which is safe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.broker.environment import Environment
from penstock.broker.lake_mark import Mark
from penstock.broker.protocol import Broker
from penstock.broker.quota import Quota, dealt_out, over_shards
from penstock.broker.records import PLAIN_KINDS, PlainKind, Record, rule_changes
from penstock.broker.shard_map import Departure, ShardMap, SplitEnqueue, SplitWrite
from penstock.brokers.sharded.marks import marks_as_one
from penstock.brokers.sharded.quotas import Quotas, check_quotas
from penstock.brokers.sharded.shards import AWAY, Shard, Shards
from penstock.enqueue.ids import bucket_for, bucket_of
from penstock.errors import Refused
from penstock.rules.rule import Rule, check_rule, signed
from penstock.schedules.schedule import Decision, Schedule, bucket_text

R = TypeVar("R", bound=Record)

# Kinds that each shard keeps by itself.
_BY_ITSELF = (ShardMap, SplitEnqueue, SplitWrite, Departure, Quota)


class ShardedRecords:
    """Put, clear and list records; decide schedules."""

    def __init__(self, shards: Shards, quotas: Quotas, now: Callable[[], float]) -> None:
        self._shards = shards
        self._quotas = quotas
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
        if kind is Rule and self._quotas.clear(record_id, author, reason):
            return True
        for plain in PLAIN_KINDS:
            if plain.type is kind and plain.rules is not None:
                found = self._shards.first(lambda shard: shard.records(kind))
                for record in found:
                    if plain.id_of(record) == record_id:
                        self._change_limits(plain, (record, None), (author, reason))
        with dealt_out():
            cleared = self._shards.every(
                lambda shard: shard.clear(kind, record_id, author, reason), fenced=True
            )
        return any(cleared.values())

    def records(self, kind: type[R]) -> list[R]:
        found: Any
        if kind is Rule:
            return self._shards.first(_rules_of)  # pyright: ignore[reportReturnType]
        if kind is ShardMap:
            self._shards.look_again()  # others may have moved buckets
            return [self._shards.map]  # pyright: ignore[reportReturnType]
        if kind is Mark:
            marks = self._shards.reached(lambda shard: shard.records(Mark))
            return marks_as_one(marks, self._shards.named)  # pyright: ignore[reportReturnType]
        if kind is Environment:  # more than one only if a shard was copied from elsewhere
            each = self._shards.reached(lambda shard: shard.records(Environment))
            named = {record.environment: record for records in each.values() for record in records}
            return list(named.values())  # pyright: ignore[reportReturnType]
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
        rule = signed(rule, author, reason)
        check_rule(rule)
        if over_shards(rule):
            self._ask_all()
            check_quotas(self._shards, rule)
            return self._quotas.put(rule)
        return self._put_on_all(rule, author, reason)

    def _change_limits(self, kind: PlainKind, both: tuple[Any, Any], said: tuple[str, str]) -> None:
        """Deal out the limits of a record before it changes: repeated it does no harm."""
        had, has = (
            {id: rule for id, rule in kind.rules_of(each).items() if over_shards(rule)}
            for each in both
        )
        clear, put = rule_changes(had, has, self.records(Rule) if had or has else ())
        for rule in clear:
            if rule.id not in has:
                self._quotas.clear(rule.id, *said)
        for rule in put:
            self._put_rule(rule, *said)

    def _change_limits_of(self, record: Any, before: Any, said: tuple[str, str]) -> None:
        for kind in PLAIN_KINDS:
            if isinstance(record, kind.type) and kind.rules is not None:
                record = kind.signed(record, *said)
                kind.check(record)
                self._change_limits(
                    kind, (before, kind.replaced(before, record, self._now())), said
                )

    def _put_on_all(self, record: R, author: str, reason: str) -> R:
        kind, name = type(record), _name_of(record)
        before = {
            shard: [kept for kept in records if _name_of(kept) == name]
            for shard, records in self._shards.every(lambda store: store.records(kind)).items()
        }
        self._change_limits_of(
            record, next((each[0] for each in before.values() if each), None), (author, reason)
        )
        kept: list[R] = []
        for shard in self._shards.all:
            # A rule is alike on all: the first says when it was made.
            given = kept[0] if kept and kind is Rule else record
            try:
                with dealt_out():
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


def _rules_of(store: Broker) -> list[Rule]:
    """The rules of a shard; each part of a limit as the limit that it is of."""
    whole = {quota.id: quota.limit for quota in store.records(Quota) if not quota.cleared}
    return [whole.get(rule.id, rule) for rule in store.records(Rule)]


def _schedules(store: Broker) -> list[Schedule]:
    return store.records(Schedule)
