"""Rules: a block is for those who were given the right to it in the database itself.

Row level security keeps everybody else from it, whatever they send; asking first is what makes a
sentence of it. A delete would otherwise find nothing, and say that nothing was blocked.
"""

from __future__ import annotations

from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.rule_rows import RuleRows
from penstock.brokers.tables.worker_rows import rules_in_force
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind


class PostgresRules(RuleRows):
    """Put and clear rules, blocks only by those who may; list them in one statement."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._store = store

    def put(self, rule: Rule, author: str = "", reason: str = "") -> Rule:
        if rule.kind is RuleKind.BLOCK:
            self._may_block("block")
        return super().put(rule, author, reason)

    def clear(self, rule_id: str, author: str = "", reason: str = "") -> bool:
        if any(rule.kind is RuleKind.BLOCK and rule.id == rule_id for rule in self.all()):
            self._may_block("unblock")
        return super().clear(rule_id, author, reason)

    def all(self) -> list[Rule]:
        # One statement: a worker that cannot hear of rules reads them before every start.
        with self._store.connection(self._store.work_seconds) as connection:
            return rules_in_force(self._store, PostgresDb(connection), self.clock.now())

    def _may_block(self, verb: str) -> None:
        with self._store.connection() as connection:
            row = PostgresDb(connection).execute(sql.may_block).fetchone()
        if not row or not row["allowed"]:
            who = connection.info.user
            raise Refused(
                f"{who} may not {verb} in the store {self._store.where}: that takes the role "
                f"penstock_admin, which `penstock migrate roles --admin {who}` shows how to give"
            )
