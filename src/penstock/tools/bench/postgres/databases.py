"""The server of the benchmark: a temporary one, or one that runs; a database for each store.

On a server that runs, it only uses databases that it created, and drops all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from penstock.app.settings import mask
from penstock.errors import Refused, StoreUnreachable
from penstock.testing.postgres import Server, create_database, drop_database

# Usual for a server of this size; durability is left at the defaults. A checkpoint in the middle of
# a run would slow down whatever is measured just then.
SETTINGS = {"shared_buffers": "512MB", "max_wal_size": "8GB", "checkpoint_timeout": "15min"}


class BenchServer:
    """A server on which the benchmark may create databases."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def database(self) -> Generator[str]:
        """A new, empty database, dropped at the end."""
        try:
            made = create_database(self.url)
        except psycopg.errors.InsufficientPrivilege as error:
            raise Refused(
                f"the benchmark creates databases of its own on {mask(self.url)}, and this login "
                "may not: alter role ... createdb, or leave out --url"
            ) from error
        except psycopg.OperationalError as error:
            raise StoreUnreachable(f"{mask(self.url)} does not answer: {error}") from error
        try:
            yield made
        finally:
            drop_database(self.url, made)


@contextmanager
def bench_server(url: str | None, folder: Path | None) -> Generator[BenchServer]:
    """The server of `url`; without one, a temporary server with default durability."""
    if url is not None:
        yield BenchServer(url)
        return
    with Server(SETTINGS, folder=folder) as server:
        yield BenchServer(server.url())
