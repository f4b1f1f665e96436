"""Errors of SQLite as errors of Penstock."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import PenstockError, StoreFull, StoreUnreachable, WrongUrl

FULL = {"SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_FSYNC"}


@contextmanager
def as_penstock_errors(path: Path) -> Generator[None]:
    """Errors of SQLite as errors of Penstock."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name in FULL:
            message = f"no room left for {path} ({error}); nothing of this call was written"
            raise StoreFull(message) from error
        message = f"the store {path} does not answer: {error}"
        if name == "SQLITE_CANTOPEN":
            message += f"; is {path.parent} there, and may this user write to it?"
            if not os.access(path.parent, os.W_OK | os.X_OK):
                raise WrongUrl(message) from error
        raise StoreUnreachable(message) from error
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        message = f"{path} cannot be used as a store: {error}"
        raise PenstockError(message) from error
