"""What the doctor looks at in a PostgreSQL store: a file for each kind of trouble.

A look changes nothing and is denied nothing: what this login may not see is said, and the other
looks go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.rows import dict_row

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.migration_steps import Meta, MigrationPlan

Findings = Iterator[Trouble | Fact]


class CheckContext(NamedTuple):
    """One store, as it is looked at."""

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


def take(
    name: str, look: CheckContext, found: Callable[[CheckContext], Findings]
) -> list[Trouble | Fact]:
    """What one look found; what it may not see is a fact as well."""
    seen: list[Trouble | Fact] = []
    try:
        seen.extend(found(look))
    except errors.InsufficientPrivilege as error:
        user = look.connection.info.user
        message = str(error).strip().split("\n")[0]
        seen.append(
            Fact(name, f"not looked at: {message}", f"grant pg_monitor to {user}, or be the owner")
        )
    except psycopg.Error as error:
        seen.append(Fact(name, f"not looked at: {str(error).strip().split(chr(10))[0]}"))
    return seen
