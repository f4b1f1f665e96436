"""Rules: a block is for those who were given the right to it in the database itself.

Row level security keeps everybody else from it, whatever they send; asking first is what makes a
sentence of it. A delete would otherwise find nothing, and say that nothing was blocked.
"""

from __future__ import annotations

from penstock.brokers.postgres.renewing import PostgresRenewing
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import PostgresDb
from penstock.errors import Refused
from penstock.rules.rule import Rule, RuleKind


class Ruling(PostgresRenewing):
    """Set and clear rules."""

    def set_rule(self, rule: Rule) -> Rule:
        if rule.kind is RuleKind.BLOCK:
            self._may_block("block")
        return super().set_rule(rule)

    def clear_rule(
        self,
        kind: RuleKind,
        queue: str | None = None,
        task: str | None = None,
        author: str = "",
        reason: str = "",
        *,
        version: int | None = None,
        tag: tuple[str, str] | None = None,
        key: str | None = None,
        per_key: bool = False,
    ) -> bool:
        if kind is RuleKind.BLOCK:
            self._may_block("unblock")
        return super().clear_rule(
            kind, queue, task, author, reason, version=version, tag=tag, key=key, per_key=per_key
        )

    def _may_block(self, verb: str) -> None:
        with self.store.lend() as connection:
            row = PostgresDb(connection).execute(sql.may_block).fetchone()
        if not row or not row["allowed"]:
            who = connection.info.user
            raise Refused(
                f"{who} may not {verb} in the store {self.store.where}: that takes the role "
                f"penstock_admin, which `penstock migrate roles --admin {who}` shows how to give"
            )
