"""Indexes of a history that has rows: built a partition at a time, while others write.

A migration makes such an index of nothing and says so in `meta`; it is of use from its first part
on, and nothing is wrong without it. Whoever is killed at this leaves a part that the next one
builds anew.
"""

from __future__ import annotations

import logging

from psycopg import errors

from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.migration_steps import Meta
from penstock.brokers.postgres.statements import sql

logger = logging.getLogger("penstock.postgres")

BUILD_SECONDS = 3600.0
# Others are in the way, the login may not, or somebody without the lock was quicker.
_LATER = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.InsufficientPrivilege,
    errors.DuplicateTable,
    errors.UndefinedObject,
    errors.UndefinedTable,
)


def are_parts_missing(meta: Meta) -> bool:
    """Whether a migration has left something to build."""
    return "parts" in meta


def build_parts(connection: Connection, locks: str = "2s") -> bool:
    """Build what is missing, unless another process does; whether nothing is left.

    `locks`: how long transactions of others are waited for. Nobody waits behind one who builds.
    """
    row = connection.execute(sql.lock_parts.encode(), {"locks": locks}).fetchone()
    if row is None or not row[0]:
        return False
    call_seconds, connection.call_seconds = connection.call_seconds, BUILD_SECONDS
    try:
        for statements in connection.execute(sql.parts_to_build.encode()).fetchall():
            for statement in filter(None, statements):
                connection.execute(statement.encode())
        connection.execute(sql.parts_built.encode())
    except _LATER as error:
        logger.warning("an index of the history is not whole yet, the next open goes on: %s", error)
        return False
    finally:
        connection.call_seconds = call_seconds
        if not connection.closed:
            connection.execute(sql.unlock_parts.encode())
    return True


def building_sql() -> str:
    """The same for psql, which runs each of the statements that it is new_jobs."""
    question = sql.parts_to_build.rstrip().removesuffix(";")
    return f"{question}\n\\gexec\n{sql.parts_built}"
