"""The doctor's checks of a PostgreSQL store, a file for each subject.

Checks are read-only. What this login may not read is reported as such, and the other checks go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.rows import dict_row

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.errors import first_line
from penstock.brokers.postgres.migration_steps import Meta, MigrationPlan

Findings = Iterator[Trouble | Fact]


class CheckContext(NamedTuple):
    """The store that is checked."""

    connection: Connection
    conninfo: str
    pooled: bool  # as the URL says
    meta: Meta
    plan: MigrationPlan

    def rows(self, statement: str, parameters: Any = None) -> list[dict[str, Any]]:
        cursor = self.connection.cursor(row_factory=dict_row)
        return cursor.execute(statement.encode(), parameters).fetchall()

    def row(self, statement: str, parameters: Any = None) -> dict[str, Any]:
        return self.rows(statement, parameters)[0]


def run_check(
    name: str, context: CheckContext, check: Callable[[CheckContext], Findings]
) -> list[Trouble | Fact]:
    """The findings of one check; if it could not be made, that is a fact of this name."""
    findings: list[Trouble | Fact] = []
    try:
        findings.extend(check(context))
    except errors.InsufficientPrivilege as error:
        user = context.connection.info.user
        hint = f"grant pg_monitor to {user}, or run doctor as the owner of schema penstock"
        findings.append(Fact(name, f"not checked: {first_line(error)}", hint))
    except psycopg.Error as error:
        findings.append(Fact(name, f"not checked: {first_line(error)}"))
    return findings
