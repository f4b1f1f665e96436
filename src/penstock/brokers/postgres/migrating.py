"""Migrate a database: numbered steps, then the functions, under one lock, in one transaction.

Only new indexes of the history are built after it (index_building.py). `penstock migrate sql`
prints the same text that `migrate up` runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import errors
from psycopg import sql as compose

from penstock.app.version import age_order
from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.errors import first_line
from penstock.brokers.postgres.index_building import are_parts_missing, build_parts, building_sql
from penstock.brokers.postgres.migration_steps import Meta, MigrationPlan, this_plan
from penstock.brokers.postgres.statements import sql
from penstock.brokers.tables.development_store import check_released
from penstock.errors import Refused, SchemaTooNew, StoreUnreachable, WrongUrl

MIGRATION_SECONDS = 3600.0
_TRIES = 5
_START_ANEW = (
    "run `drop schema penstock cascade` there as its owner, or name another database with --url"
)
_PAUSE_SECONDS = 0.5  # between two tries, so that those who wait behind our locks can go on


def open_schema(
    connection: Connection, where: str, *, create: bool, plan: MigrationPlan | None = None
) -> str:
    """Create or migrate the schema if need be; returns the store's id.

    A store of a newer release is refused if it lacks what this release needs.
    """
    plan = plan or this_plan()
    meta = read_meta(connection)
    if not meta and not create:
        raise WrongUrl(
            f"there is no store in {where} yet; a worker, the first enqueue or `penstock migrate "
            "up` creates it; or name another one with --url"
        )
    check_known(meta, where, plan)
    if not plan.is_current(meta):
        meta = migrate(connection, where, plan=plan)
    # Not behind a pooler: the advisory lock belongs to a session, which others would share.
    if are_parts_missing(meta) and connection.prepares:
        build_parts(connection)
    return meta["store"]


def check_known(meta: Meta, where: str, plan: MigrationPlan) -> None:
    """Refuse a store in which a newer Penstock dropped what this one needs."""
    if not plan.knows(meta):
        raise SchemaTooNew(
            f"the store {where} has schema {meta['post']}, this Penstock knows {plan.newest}; "
            "upgrade Penstock here before it opens this store"
        )


def migrate(
    connection: Connection, where: str, *, plan: MigrationPlan | None = None, post: bool = False
) -> Meta:
    """Apply what is missing, one process at a time; returns the rows of meta afterwards."""
    plan = plan or this_plan()
    call_seconds, connection.call_seconds = connection.call_seconds, MIGRATION_SECONDS
    try:
        for left in reversed(range(_TRIES)):
            try:
                return _migrate(connection, where, plan, post=post)
            except errors.LockNotAvailable as error:
                if not left:
                    raise StoreUnreachable(
                        f"the store {where} was not migrated, and is unchanged: lock timeout, "
                        "another transaction uses its tables or migrates it (`penstock doctor` "
                        "names open transactions); try again"
                    ) from error
            time.sleep(_PAUSE_SECONDS)
    except errors.InsufficientPrivilege as error:
        raise Refused(_lacks_privilege(read_meta(connection), where, plan)) from error
    except (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction) as error:
        raise Refused(
            f"the schema penstock in {where} holds something that is not Penstock's "
            f"({first_line(error)}); "
            "nothing was changed: rename or drop it, or name another database with --url"
        ) from error
    finally:
        connection.call_seconds = call_seconds
    raise AssertionError


def _migrate(connection: Connection, where: str, plan: MigrationPlan, *, post: bool) -> Meta:
    connection.execute("begin")
    try:
        connection.execute(sql.migrate_lock.encode())
        meta = read_meta(connection)  # another process may have migrated meanwhile
        check_known(meta, where, plan)
        if post and plan.pending_post(meta):
            _check_workers(connection, plan)
        for part in _parts(meta, plan, post=post):
            connection.execute(part.encode())
        meta = read_meta(connection)
        connection.execute("commit")
    except BaseException:
        if not connection.closed:
            connection.execute("rollback")
        raise
    return meta


def migration_sql(meta: Meta, *, plan: MigrationPlan | None = None, post: bool = False) -> str:
    """What `migrate` would run, as a script for psql: one transaction."""
    plan = plan or this_plan()
    parts = list(_parts(meta, plan, post=post))
    if not parts:
        return "-- Nothing to do: the store is up to date.\n"
    guard = _filled(sql.migrate_from, schema=meta.get("schema", ""), post=meta.get("post", ""))
    # ON_ERROR_STOP: else psql would go on after an error, outside of the transaction.
    begin = f"\\set ON_ERROR_STOP on\nbegin;\n{sql.migrate_lock}"
    return "\n".join([begin, guard if meta else "", *parts, "commit;\n", building_sql()])


def _parts(meta: Meta, plan: MigrationPlan, *, post: bool) -> Iterator[str]:
    steps = plan.pending(meta) + (plan.pending_post(meta) if post else [])
    for step in steps:
        yield f"-- {step.name}\n{step.script}"
        yield _put_meta("post" if step.post else "schema", str(step.number))
    if "store" not in meta:
        yield sql.put_store
    if plan.replaces_functions(meta):
        yield plan.functions
        yield _put_meta("functions", f"{plan.release} {plan.digest}")
    if "store" not in meta:
        yield sql.make_days
    if steps:
        yield sql.note_parts


def _put_meta(name: str, value: str) -> str:
    return _filled(sql.put_meta, name=name, value=value)


def _filled(statement: str, **values: str) -> str:
    literals = {name: compose.Literal(value) for name, value in values.items()}
    return compose.SQL(statement).format(**literals).as_string(None)  # pyright: ignore[reportArgumentType]  a file, not a literal


def _check_workers(connection: Connection, plan: MigrationPlan) -> None:
    """Refuse while a worker is alive that may need what a post step drops."""
    rows = connection.execute(sql.doctor_workers.encode()).fetchall()
    older = [
        f"{name} ({host}, pid {pid}, {f'Penstock {release}' if release else 'an older Penstock'})"
        for name, host, pid, release in rows
        if age_order(release or "") < age_order(plan.release)
    ]
    if older:
        raise Refused(
            f"workers of an older Penstock are alive: {', '.join(older)}; stop or upgrade them, "
            "then run `penstock migrate up --post`"
        )


def _lacks_privilege(meta: Meta, where: str, plan: MigrationPlan) -> str:
    if not meta:
        return (
            f"there is no store in {where}, and this login may not create one: have the database's "
            "owner run `penstock migrate up`, then the output of `penstock migrate roles`"
        )
    lacks = [step.name for step in plan.pending(meta)] or ["its functions"]
    return (
        f"the store {where} is older than this Penstock (it lacks {', '.join(lacks)}), and this "
        "login may not migrate it: have the owner of schema penstock run `penstock migrate up`"
    )


def read_meta(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """The rows of penstock.meta; empty if there is no store."""
    row = connection.execute(sql.has_meta.encode()).fetchone()
    if row is None or not row[0]:
        return {}
    try:
        meta = dict(connection.execute(sql.meta.encode()).fetchall())
    except errors.UndefinedTable:
        return {}
    except errors.UndefinedColumn:
        raise _foreign(connection, "has other columns") from None
    if not meta:
        raise _foreign(connection, "is empty")
    if "store" not in meta or not str(meta.get("schema")).isdecimal():
        raise _foreign(connection, "names no store and no schema")
    check_released(meta, f"in database {connection.info.dbname}", _START_ANEW)
    return meta


def _foreign(connection: psycopg.Connection[Any], what: str) -> Refused:
    return Refused(
        f"the table penstock.meta in database {connection.info.dbname} {what}: it is damaged, or "
        "not Penstock's. Restore it from a backup, or rename or drop the schema penstock, or name "
        "another database with --url"
    )


def roles_sql(members: Mapping[str, Sequence[str]]) -> str:
    """The roles and their privileges, as a script for psql; grants them to logins, by role."""
    lines = [sql.roles]
    for role, names in members.items():
        for name in names:
            if not re.fullmatch(r"\S.{0,62}", name):
                raise Refused(f"{name!r} is not the name of a role")
            lines.append(
                compose.SQL("grant {} to {};")
                .format(compose.Identifier(f"penstock_{role}"), compose.Identifier(name))
                .as_string(None)
            )
    return "\n".join(["\\set ON_ERROR_STOP on", "begin;", *lines, "commit;", ""])
