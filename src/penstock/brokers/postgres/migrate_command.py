"""What `penstock migrate` does with a PostgreSQL store, on a connection of its own."""

from __future__ import annotations

from penstock.app.settings import mask
from penstock.brokers.postgres import migrating
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.errors import as_penstock_errors
from penstock.brokers.postgres.index_building import are_parts_missing, build_parts
from penstock.brokers.postgres.recovery import make_days
from penstock.brokers.postgres.store import PostgresStore, conninfo_of
from penstock.errors import StoreUnreachable


def migrate(url: str, *, post: bool) -> None:
    """Migrate the store; with `post`, also drop what only older workers used."""
    where = mask(url)
    with as_penstock_errors(where), connect(conninfo_of(url)[0], prepare=False) as connection:
        meta = migrating.migrate(connection, where, post=post)
        if are_parts_missing(meta) and not build_parts(connection, locks="1min"):
            raise StoreUnreachable(
                f"the store {where} is migrated, but an index of its history is not complete: "
                "another process builds it, or a transaction stays open (`penstock doctor` names "
                "it); run `penstock migrate up` again"
            )
    store = PostgresStore(url)
    try:
        make_days(store)  # workers whose login does not own the tables cannot create them
    finally:
        store.close_connections()


def migration_sql(url: str, *, post: bool) -> str:
    """The script that `migrate` would run now."""
    with as_penstock_errors(mask(url)), connect(conninfo_of(url)[0], prepare=False) as connection:
        return migrating.migration_sql(migrating.read_meta(connection), post=post)
