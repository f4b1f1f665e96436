"""A gate before the commit of whoever changes a table: two transactions meet at one moment."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from tests.stories.conftest import eventually

_MAKE = """
create function wait_at_the_gate() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(77);
    return null;
end $$;
create constraint trigger gate after {} on penstock.{}
    deferrable initially deferred for each row execute function wait_at_the_gate();
"""
_WAITING = "select count(*) from pg_locks where not granted"


class Gate:
    """While it is closed, whoever has changed the table waits right before its commit."""

    def __init__(self, keeper: psycopg.Connection) -> None:
        self._keeper = keeper

    def waiting(self) -> int:
        """How many sessions wait, for the gate or for whoever waits there."""
        row = self._keeper.execute(_WAITING).fetchone()
        return row[0] if row else 0

    def until(self, waiting: int) -> None:
        eventually(lambda: self.waiting() == waiting)

    def open(self) -> None:
        self._keeper.execute("select pg_advisory_unlock(77)")


@contextmanager
def closed_gate(url: str, table: str, *changes: str) -> Generator[Gate]:
    """For these changes (insert, update), on a store of the test's own: the trigger stays."""
    with psycopg.connect(url, autocommit=True) as keeper:
        kinds = sql.SQL(" or ").join(map(sql.SQL, changes))
        keeper.execute(sql.SQL(_MAKE).format(kinds, sql.Identifier(table)))
        keeper.execute("select pg_advisory_lock(77)")
        yield Gate(keeper)
