"""Where it is measured: a server to throw away, or one that runs; a database for each store.

On a server that runs, only databases that were made here are touched, and all of them go at the
end.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from penstock.app.settings import mask
from penstock.errors import Refused, StoreUnreachable
from penstock.testing.postgres import Server, create_database, drop_database

# As a server of this size is set up; what is safe is left as it is. A checkpoint in mid-run would
# fall on whatever is measured just then.
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}


class BenchDatabase:
    """A server on which databases can be made."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def database(self) -> Generator[str]:
        """A fresh, empty database, while this lasts."""
        try:
            made = create_database(self.url)
        except psycopg.errors.InsufficientPrivilege as error:
            raise Refused(
                f"the benchmark makes databases of its own on {mask(self.url)}, and this login may "
                "not: alter role ... createdb, or leave out --url"
            ) from error
        except psycopg.OperationalError as error:
            raise StoreUnreachable(f"{mask(self.url)} does not answer: {error}") from error
        try:
            yield made
        finally:
            drop_database(self.url, made)


@contextmanager
def place(url: str | None, folder: Path | None) -> Generator[BenchDatabase]:
    """The server that was named, else one of our own, durable as by default."""
    if url is not None:
        yield BenchDatabase(url)
        return
    with Server(SETTINGS, folder=folder) as server:
        yield BenchDatabase(server.url())
