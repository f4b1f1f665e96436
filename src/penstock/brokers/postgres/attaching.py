"""Attach tables of the database to queues, by triggers of the login that asks for it.

Names come as texts: the database resolves and quotes them (functions/attach.sql).
"""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import errors

from penstock.app.settings import mask
from penstock.brokers.attached import AttachedTable, RowJobs
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.errors import as_penstock_errors, first_line
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import conninfo_of
from penstock.errors import Refused


class PostgresAttaching:
    """Each call on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    def attach(self, table: str, jobs: RowJobs, *, dry_run: bool = False) -> str:
        values = {"table": table, "says": jobs.encode(), "dry_run": dry_run}
        return self._ask(sql.attach_table, values)[0][0]

    def detach(self, table: str, task: str | None = None, *, dry_run: bool = False) -> str | None:
        values = {"table": table, "task": task, "dry_run": dry_run}
        return self._ask(sql.detach_table, values)[0][0]

    def attached(self) -> list[AttachedTable]:
        return [
            AttachedTable(name, msgspec.json.decode(says, type=RowJobs), enabled)
            for name, enabled, says in self._ask(sql.attached_tables, {})
        ]

    def _ask(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        conninfo, *_ = conninfo_of(self._url)
        with as_penstock_errors(mask(self._url)), connect(conninfo, prepare=False) as connection:
            try:
                return connection.execute(statement.encode(), values).fetchall()
            except (errors.InvalidParameterValue, errors.InsufficientPrivilege) as error:
                raise Refused(first_line(error)) from error
