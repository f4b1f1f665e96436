"""The rules of the memory broker: a dictionary by what each one names.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

import msgspec

from penstock.brokers.memory.store import MemoryStore
from penstock.rules.key_order import check_same_policy
from penstock.rules.rule import Rule, check_rule, signed


class MemoryRules:
    """Every rule that was set and not taken back; the store's version changes with them."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._kept = store.rules

    def all(self) -> list[Rule]:
        """Those in force."""
        now = self._store.clock.now()
        return [rule for rule in self._kept.values() if rule.until is None or now < rule.until]

    def put(self, rule: Rule, author: str, reason: str) -> Rule:
        check_rule(rule)
        return self.put_checked(signed(rule, author, reason))

    def put_checked(self, rule: Rule, *, told: bool = True) -> Rule:
        """Put a rule that was checked; without `told` the history does not tell of it."""
        before = self._kept.get(rule.id)
        created_at = rule.created_at or self._store.clock.now()
        if before is not None and before in self.all():
            if rule.queue is not None:
                check_same_policy(rule.queue, before.policy, rule.policy)
            created_at = before.created_at
        self._store.rules_version += 1
        self._kept[rule.id] = msgspec.structs.replace(rule, created_at=created_at)
        if told:
            self._record(rule, in_force=True)
        return self._kept[rule.id]

    def clear(self, rule_id: str, author: str, reason: str, *, told: bool = True) -> bool:
        in_force = self.all()
        cleared = self._kept.pop(rule_id, None)
        if cleared is None or cleared not in in_force:
            return False
        self._store.rules_version += 1
        cleared = msgspec.structs.replace(cleared, author=author, reason=reason)
        if told:
            self._record(cleared, in_force=False)
        return True

    def _record(self, rule: Rule, *, in_force: bool) -> None:
        data = rule.data(in_force=in_force)
        self._store.record("rule", data=data, queue=rule.queue, task=rule.task)
