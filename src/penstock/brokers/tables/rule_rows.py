"""Rules in a table: a row for each; the history says who put it there and who took it back."""

from __future__ import annotations

import msgspec

from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import Db, TableStore
from penstock.brokers.tables.rows import rule_place
from penstock.brokers.tables.worker_rows import rules_in_force
from penstock.rules.key_order import check_same_policy
from penstock.rules.rule import Rule, RuleKind, check_rule, signed


class RuleRows:
    """Put, clear and list rules."""

    def __init__(self, store: TableStore) -> None:
        self.store = store
        self.clock = store.clock

    def put(self, rule: Rule, author: str = "", reason: str = "") -> Rule:
        rule = signed(rule, author, reason)
        check_rule(rule)
        with self.store.writing() as db:
            rule = self.put_within(db, rule)
        holds = rule.kind in {RuleKind.PAUSE, RuleKind.BLOCK}
        self.store.rules_changed(stop=holds)
        if not holds:
            self.store.notify()  # a limit that was raised lets more start
        return rule

    def put_within(self, db: Db, rule: Rule, *, told: bool = True) -> Rule:
        """Put a rule that was checked, within a transaction; `rules_changed` is the caller's.

        Without `told` the history does not tell of it.
        """
        now = self.clock.now()
        made = db.execute(
            self.store.sql.set_rule,
            {
                **rule_place(rule),
                "author": rule.author,
                "reason": rule.reason,
                "created_at": rule.created_at or now,
                "now": now,
                "until": rule.until,
                "running": rule.running,
                "rate_jobs": rule.rate and rule.rate[0],
                "rate_seconds": rule.rate and rule.rate[1],
                "policy": rule.policy,
            },
        ).fetchone()
        if rule.queue is not None:
            check_same_policy(rule.queue, made["policy"], rule.policy)
        rule = msgspec.structs.replace(rule, created_at=made["created_at"])
        if told:
            self._add_event(db, rule, in_force=True)
        return rule

    def clear(self, rule_id: str, author: str = "", reason: str = "") -> bool:
        with self.store.writing() as db:
            cleared = self.clear_within(db, rule_id, author, reason)
        if cleared:
            self.store.rules_changed(stop=False)
            self.store.notify()
        return cleared

    def clear_within(
        self, db: Db, rule_id: str, author: str, reason: str, *, told: bool = True
    ) -> bool:
        """Clear a rule within a transaction; `rules_changed` is the caller's."""
        now = self.clock.now()
        found = [rule for rule in rules_in_force(self.store, db, now) if rule.id == rule_id]
        cleared = 0
        for rule in found:
            parameters = {**rule_place(rule), "now": now}
            cleared = db.execute(self.store.sql.clear_rule, parameters).rowcount
        if cleared and told:
            rule = msgspec.structs.replace(found[0], author=author, reason=reason)
            self._add_event(db, rule, in_force=False)
        return bool(cleared)

    def all(self) -> list[Rule]:
        with self.store.reading() as db:
            return rules_in_force(self.store, db, self.clock.now())

    def _add_event(self, db: Db, rule: Rule, *, in_force: bool) -> None:
        change = Change(self.store, db, self.clock.now())
        change.add_event("rule", msgspec.json.encode(rule.data(in_force=in_force)), None, None)
        change.finish()
