"""One PostgreSQL store that many tests use in turn: migrated once, emptied before each of them.

Emptied with delete, not truncate: for tables of a few rows it takes 0.3 ms, and truncate 20 ms.
"""

from __future__ import annotations

import psycopg
from psycopg import sql

_TABLES = """
    select relname
      from pg_class
     where relnamespace = 'penstock'::regnamespace
       and relkind in ('r', 'p')
       and not relispartition
     order by relname
"""


class PostgresStore:
    """A database whose store can be put back to how the migrations left it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("set lock_timeout = '10s'")
        names = [name for (name,) in self._connection.execute(_TABLES)]
        self._connection.execute("create schema fresh")
        steps = [sql.SQL("delete from penstock.{}").format(sql.Identifier(name)) for name in names]
        for name in names:
            table = sql.Identifier(name)
            self._connection.execute(
                sql.SQL("create table fresh.{} as table penstock.{}").format(table, table)
            )
            if self._connection.execute(sql.SQL("table fresh.{}").format(table)).fetchone():
                copied = "insert into penstock.{} overriding system value table fresh.{}"
                steps.append(sql.SQL(copied).format(table, table))
        self._empty = sql.SQL("; ").join(steps)

    def empty(self) -> None:
        """Back to how it was when this was made; many statements in one go are one transaction."""
        self._connection.execute(self._empty)

    def close(self) -> None:
        self._connection.close()
