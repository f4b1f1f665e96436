"""Rules; only members of the database role penstock_admin may block and unblock.

Row-level security enforces that, whatever a client sends. The check here is for the error message:
without the role, a delete would find no row and report that nothing was blocked.
"""

from __future__ import annotations

from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb, PostgresStore
from penstock.brokers.tables.rule_rows import RuleRows
from penstock.brokers.tables.worker_rows import rules_in_force
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind


class PostgresRules(RuleRows):
    """As in every store in tables, with the check of who may block."""

    def __init__(self, store: PostgresStore) -> None:
        super().__init__(store)
        self._store = store

    def put(self, rule: Rule, author: str = "", reason: str = "") -> Rule:
        if rule.kind is RuleKind.BLOCK:
            self._check_may_block("block")
        return super().put(rule, author, reason)

    def clear(self, rule_id: str, author: str = "", reason: str = "") -> bool:
        if any(rule.kind is RuleKind.BLOCK and rule.id == rule_id for rule in self.all()):
            self._check_may_block("unblock")
        return super().clear(rule_id, author, reason)

    def all(self) -> list[Rule]:
        # One statement: a worker that gets no notifications reads the rules before every start.
        with self._store.connection(self._store.work_seconds) as connection:
            return rules_in_force(self._store, PostgresDb(connection), self.clock.now())

    def _check_may_block(self, verb: str) -> None:
        with self._store.connection() as connection:
            row = PostgresDb(connection).execute(sql.may_block).fetchone()
        if not row or not row["allowed"]:
            login = connection.info.user
            raise Refused(
                f"{login} may not {verb} in the store {self._store.where}: that needs the role "
                f"penstock_admin; `penstock migrate roles --admin {login}` prints how to grant it"
            )
