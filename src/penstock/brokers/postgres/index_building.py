"""New indexes of the history, built concurrently, one partition after the other.

A migration only declares such an index, and notes in `meta` that its parts are to be built.
Queries are right without it, and use each part once it is there. A process that is killed
meanwhile leaves an invalid part, which the next one drops and builds again.
"""

from __future__ import annotations

import logging

from psycopg import errors

from penstock.brokers.postgres.connection import Connection
from penstock.brokers.postgres.migration_steps import Meta
from penstock.brokers.postgres.statements import sql

logger = logging.getLogger("penstock.postgres")

BUILD_SECONDS = 3600.0
# A lock timeout, a missing privilege, or somebody who built a part by hand.
_LATER = (
    errors.LockNotAvailable,
    errors.DeadlockDetected,
    errors.InsufficientPrivilege,
    errors.DuplicateTable,
    errors.UndefinedObject,
    errors.UndefinedTable,
)


def are_parts_missing(meta: Meta) -> bool:
    """Whether a migration left index parts to build."""
    return "parts" in meta


def build_parts(connection: Connection, locks: str = "2s") -> bool:
    """Build the missing parts, unless another process does; whether none is left.

    `locks` is the lock_timeout while building, which blocks no writer.
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
        logger.warning(
            "an index of the history is not complete; the next process that opens the store "
            "continues: %s",
            error,
        )
        return False
    finally:
        connection.call_seconds = call_seconds
        if not connection.closed:
            connection.execute(sql.unlock_parts.encode())
    return True


def building_sql() -> str:
    """The same for psql, whose gexec runs each statement that the query returns."""
    query = sql.parts_to_build.rstrip().removesuffix(";")
    return f"{query}\n\\gexec\n{sql.parts_built}"
