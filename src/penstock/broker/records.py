"""Records: what a store keeps beside jobs, each under an id of its own.

A rule, a schedule, a subscription, the mark of a lake and the map of shards are records: values
that are put, listed and cleared by the same three verbs. A new kind of record is a new value, not a
new verb; if nothing but its id is ever looked for, it is a line in `PLAIN_KINDS`, and every store
keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from penstock.broker import environment, queue_options, quota, shard_map, worker_settings
from penstock.broker.environment import Environment
from penstock.broker.lake_mark import Mark
from penstock.broker.queue_options import QueueOptions
from penstock.broker.quota import Quota
from penstock.broker.shard_map import Departure, ShardMap, SplitEnqueue, SplitWrite
from penstock.broker.worker_settings import WorkerSettings
from penstock.enqueue import subscription
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Schedule

Record = (
    Rule
    | Schedule
    | Mark
    | Subscription
    | QueueOptions
    | ShardMap
    | SplitEnqueue
    | SplitWrite
    | WorkerSettings
    | Departure
    | Quota
    | Environment
)
R = TypeVar("R", bound=Record)


def _as_given(record: Any, author: str, reason: str) -> Any:
    del author, reason
    return record


class PlainKind(NamedTuple):
    """A kind of record that a store keeps as it is, under its id."""

    type: type[Any]
    name: str  # in the store, and of its rows of history
    id_of: Callable[[Any], str]
    check: Callable[[Any], object]
    replaced: Callable[[Any, Any, float], Any]  # before, given, now: what is stored
    # before, after, author, reason; None: the history does not tell of these.
    event_data: Callable[[Any, Any, str, str], Mapping[str, Any] | None] | None
    signed: Callable[[Any, str, str], Any] = _as_given
    rules: Callable[[Any], Mapping[str, Rule]] | None = None  # by which it holds, by their ids
    # Its rules take the place of whatever stands; the history tells of it in the words of rules.
    parts: bool = False

    def rules_of(self, record: Any) -> Mapping[str, Rule]:
        """The rules of a record; none of None."""
        return {} if record is None or self.rules is None else self.rules(record)

    def rule_changes(
        self, before: Any, after: Any, standing: Iterable[Rule]
    ) -> tuple[list[Rule], list[Rule]]:
        """The rules to clear, and then those to put, when a record changes."""
        had, has = self.rules_of(before), self.rules_of(after)
        if not self.parts:
            return rule_changes(quota.own_rules(had), quota.own_rules(has), standing)
        gone = [rule for id, rule in had.items() if id not in has]
        return gone, [rule for id, rule in has.items() if had.get(id) != rule]

    def event(self, before: Any, after: Any, author: str, reason: str) -> dict[str, Any] | None:
        """What the history tells of a change; None: nothing."""
        found = self.event_data and self.event_data(before, after, author, reason)
        return None if found is None else dict(found)

    @property
    def event_name(self) -> str:
        return "rule" if self.parts else self.name


PLAIN_KINDS = (
    PlainKind(
        Subscription,
        "subscription",
        attrgetter("name"),
        subscription.check_subscription,
        subscription.replaced,
        subscription.event_data,
    ),
    PlainKind(
        QueueOptions,
        "queue",
        attrgetter("id"),
        queue_options.check_queue_options,
        queue_options.replaced,
        queue_options.event_data,
        queue_options.signed,
        queue_options.rules_of,
    ),
    PlainKind(
        WorkerSettings,
        "worker",
        attrgetter("id"),
        worker_settings.check_settings,
        worker_settings.replaced,
        worker_settings.event_data,
        worker_settings.signed,
        worker_settings.no_rules,
    ),
    PlainKind(
        ShardMap,
        "shard_map",
        attrgetter("id"),
        shard_map.check_map,
        shard_map.replaced_map,
        None,
    ),
    PlainKind(
        SplitEnqueue,
        "split_enqueue",
        attrgetter("id"),
        shard_map.check_split,
        shard_map.replaced_split,
        None,
    ),
    PlainKind(
        SplitWrite,
        "split_write",
        attrgetter("id"),
        shard_map.check_split_write,
        shard_map.replaced_write,
        None,
    ),
    PlainKind(
        Departure,
        "departure",
        attrgetter("id"),
        shard_map.check_departure,
        shard_map.replaced_departure,
        None,
    ),
    PlainKind(
        Quota,
        "quota",
        attrgetter("id"),
        quota.check_quota,
        quota.replaced,
        quota.event_data,
        rules=quota.rules_of,
        parts=True,
    ),
    PlainKind(
        Environment,
        "environment",
        attrgetter("id"),
        environment.check_environment_name,
        environment.replaced,
        environment.event_data,
        environment.signed,
    ),
)


def rule_changes(
    before: Mapping[str, Rule], after: Mapping[str, Rule], standing: Iterable[Rule]
) -> tuple[list[Rule], list[Rule]]:
    """The rules to clear, and then those to put, when those of a record change.

    A rule that a person put in the place of a declared one is left alone, unless this is of a
    person, too.
    """
    stand = {rule.id: rule for rule in standing}
    ours = {id for id, rule in before.items() if id in stand and _same(stand[id], rule)}
    put = [
        rule
        for id, rule in after.items()
        if before.get(id) != rule and (id not in stand or id in ours or rule.author or rule.reason)
    ]
    over = {rule.id for rule in put} & stand.keys()
    gone = {id for id in ours if after.get(id) != before[id]}
    return [stand[id] for id in stand if id in over | gone], put


def _same(standing: Rule, rule: Rule) -> bool:
    return msgspec.structs.replace(standing, created_at=0.0) == rule


class RecordTable(Protocol[R]):
    """Where a store keeps the records of one kind."""

    def put(self, record: R, author: str, reason: str, /) -> R: ...

    def clear(self, record_id: str, author: str, reason: str, /) -> bool: ...

    def all(self) -> list[R]: ...


class Records:
    """The verbs `put`, `clear` and `records` of a store, over a table for each kind.

    `plain` makes the table of each of the `PLAIN_KINDS`.
    """

    def __init__(
        self,
        rules: RecordTable[Rule],
        schedules: RecordTable[Schedule],
        marks: RecordTable[Mark],
        plain: Callable[[PlainKind], RecordTable[Any]],
    ) -> None:
        self._tables: Mapping[type, RecordTable[Any]] = {
            Rule: rules,
            Schedule: schedules,
            Mark: marks,
            **{kind.type: plain(kind) for kind in PLAIN_KINDS},
        }

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        return self._table(type(record)).put(record, author, reason)

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        return self._table(kind).clear(record_id, author, reason)

    def records(self, kind: type[R]) -> list[R]:
        return self._table(kind).all()

    def _table(self, kind: type) -> RecordTable[Any]:
        try:
            return self._tables[kind]
        except KeyError:
            known = ", ".join(sorted(each.__name__ for each in self._tables))
            raise Refused(f"{kind.__name__} is no record of a store; there are {known}") from None
