"""The driver's own connection behind whatever the caller hands to `options(connection=...)`.

SQLAlchemy is recognised by its shape, so that it need not be installed; its asynchronous classes
wrap the plain ones, and only those can be written to without waiting.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import Refused


def driver_connection(connection: Any) -> Any:
    """A driver's connection as it is; of SQLAlchemy's Session and Connection, the one below."""
    if hasattr(connection, "sync_session") or hasattr(connection, "sync_connection"):
        raise Refused(
            "options(connection=...): an AsyncSession or AsyncConnection cannot be written to from"
            " here; inside `await connection.run_sync(...)` hand over the connection you get there"
        )
    if callable(getattr(connection, "connection", None)):  # a Session
        connection = connection.connection()
    pooled = getattr(connection, "connection", None)  # a Connection: what the pool lent it
    if pooled is not None and hasattr(pooled, "driver_connection"):
        return pooled.driver_connection
    return connection
