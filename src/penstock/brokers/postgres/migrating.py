"""Bringing a database up to date: numbered steps, then the functions, under one lock.

Steps come in two kinds. `0002_name.pre.sql` adds what both the old and the new workers can live
with and is applied by every open; `0002_name.post.sql` takes away what only the old ones used, and
is applied when a person says so (`penstock migrate up --post`), once the old workers are gone.
"""

from __future__ import annotations

import uuid

import psycopg
from psycopg import errors

from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.statements import functions, functions_digest, steps
from penstock.errors import SchemaTooNew, StoreUnreachable

_LOCK = 4855284200


def open_schema(connection: Connection, where: str, *, create: bool) -> str:
    """The store's id; the schema is made or brought forward if need be. A newer one is refused."""
    meta = read_meta(connection)
    newest = steps()[-1][0]
    found = int(meta.get("schema", 0))
    if not found and not create:
        raise StoreUnreachable(
            f"there is no store in {where} yet; a worker or the first enqueue makes it, as does "
            "`penstock migrate up`; or name another one with --url"
        )
    if found > newest:
        raise SchemaTooNew(
            f"the store {where} has schema {found}, this Penstock knows {newest}; "
            "upgrade Penstock here before it opens this store"
        )
    if found < newest or meta.get("functions") != functions_digest():
        meta = migrate(connection)
    return meta["store"]


def migrate(connection: Connection) -> dict[str, str]:
    """Apply what is missing, one process at a time; returns what the store then says of itself."""
    connection.execute("begin")
    try:
        connection.execute("set local lock_timeout = '20s'")
        connection.execute("select pg_advisory_xact_lock(%s)", (_LOCK,))
        meta = read_meta(connection)  # another process may have been quicker
        found = int(meta.get("schema", 0))
        for number, script in steps():
            if number > found:
                connection.execute(script)  # pyright: ignore[reportArgumentType]  a file, not a literal
                put_meta(connection, "schema", str(number))
        if not found:
            put_meta(connection, "store", str(uuid.uuid4()))
        if meta.get("functions") != functions_digest():
            connection.execute(functions())  # pyright: ignore[reportArgumentType]  as above
            put_meta(connection, "functions", functions_digest())
        meta = read_meta(connection)
        connection.execute("commit")
    except BaseException:
        if not connection.closed:
            connection.execute("rollback")
        raise
    return meta


def read_meta(connection: psycopg.Connection[tuple[str, ...]]) -> dict[str, str]:
    """What the store says of itself; nothing if there is none."""
    row = connection.execute("select to_regclass('penstock.meta') is not null").fetchone()
    if row is None or not row[0]:
        return {}
    try:
        return dict(connection.execute("select name, value from penstock.meta").fetchall())  # pyright: ignore[reportArgumentType]  two columns
    except errors.UndefinedTable:
        return {}


def put_meta(connection: Connection, name: str, value: str) -> None:
    connection.execute(
        "insert into penstock.meta (name, value) values (%s, %s) "
        "on conflict (name) do update set value = excluded.value",
        (name, value),
    )
