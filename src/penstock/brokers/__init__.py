"""The brokers that there are. Only the functions here know them by name."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import parse_qsl, unquote

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.app.settings import mask
from penstock.broker.protocol import Broker
from penstock.brokers.condition import StoreCondition
from penstock.errors import Refused

_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")


def open_broker(url: str, clock: AnyClock | None = None, *, create: bool = True) -> Broker:
    """The broker that a URL names: `sqlite:///path`, `postgresql://...` or `memory:`.

    `create=False` refuses where there is no store yet: for those who only look.
    """
    if url.startswith(_SQLITE):
        from penstock.brokers.sqlite import SqliteBroker

        return SqliteBroker(_path(url), clock=clock, create=create)
    if url.startswith(_POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres import PostgresBroker

        return PostgresBroker(url, clock=clock, create=create)
    if url in ("memory:", "memory://"):
        from penstock.brokers.memory import MemoryBroker

        return MemoryBroker(clock or SYSTEM_CLOCK)
    raise _unknown(url)


def store_condition(url: str, *, thorough: bool = False) -> StoreCondition:
    """What a store promises and how it is, found out without changing it.

    `thorough` looks at everything that the doctor wants to know, and takes a moment.
    """
    if url.startswith(_SQLITE):
        from penstock.brokers.sqlite.condition import condition

        return condition(_path(url))
    if url.startswith(_POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.condition import condition as postgres_condition

        return postgres_condition(url, thorough=thorough)
    if url in ("memory:", "memory://"):
        promise = "an accepted job is lost with the process that holds it"
        return StoreCondition(kind="memory", where=url, promise=promise, exists=True)
    raise _unknown(url)


def migrate_store(url: str, *, post: bool = False) -> None:
    """Bring a store to this Penstock's schema, and make it where there is none.

    `post` also takes away what only workers of an older Penstock used; refused while one is alive.
    """
    if url.startswith(_POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.migrate_command import migrate

        migrate(url, post=post)
        return
    open_broker(url).close()


def migration_sql(url: str, *, post: bool = False) -> str:
    """What `migrate_store` would run, fit for the store's own command line."""
    if url.startswith(_SQLITE):
        from penstock.brokers.sqlite.migrating import migration_sql as of_sqlite

        return of_sqlite(_path(url))
    if url.startswith(_POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.migrate_command import migration_sql as of_postgres

        return of_postgres(url, post=post)
    raise Refused(f"{mask(url)} has no schema")


def roles_sql(url: str, logins: list[str], admins: list[str]) -> str:
    """What gives these logins the rights to use a store, and to block; for its owner to run."""
    if not url.startswith(_POSTGRES):
        raise Refused(f"{mask(url)} knows no roles: whoever can open the store can do anything")
    need_driver(url)
    from penstock.brokers.postgres.migrating import roles_sql as of_postgres

    return of_postgres(logins, admins)


def _path(url: str) -> str:
    path, _, query = url.removeprefix(_SQLITE).partition("?")
    if options := parse_qsl(query):
        raise Refused(f"{mask(url)}: no such option {options[0][0]!r}; a path is all it takes")
    return unquote(path)


def need_driver(url: str) -> None:
    """Refuse in a sentence where the driver that a URL needs is not installed."""
    if url.startswith(_POSTGRES) and find_spec("psycopg") is None:
        raise Refused("PostgreSQL needs the driver: pip install 'penstock-queue[postgres]'")


def drivers(url: str) -> tuple[str, ...]:
    """The modules beyond Penstock's own that a URL needs where it is opened."""
    if url.startswith(_POSTGRES):
        return ("psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions")
    return ()


def _unknown(url: str) -> Refused:
    return Refused(
        f"{mask(url)!r}: no such broker; there are sqlite:///path/to/file.db, "
        "postgresql://user@host/database and memory:"
    )
