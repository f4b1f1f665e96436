"""The brokers that there are. Only the functions here know them by name, and what a URL is of.

A URL of none of ours is of a store that another package registered: see `brokers.third_party`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.app.settings import mask
from penstock.broker.protocol import Broker
from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.schemes import MEMORY, POSTGRES, SQLITE, has_roles, is_ours
from penstock.errors import Refused, StoreUnreachable

if TYPE_CHECKING:
    from penstock.brokers.third_party import OpenBroker


def open_broker(url: str, clock: AnyClock | None = None, *, create: bool = True) -> Broker:
    """The broker that a URL names: `sqlite:///path`, `postgresql://...`, `memory:`, or another's.

    `create=False` refuses where there is no store yet: for those who only look.
    """
    if url.startswith(SQLITE):
        from penstock.brokers.sqlite import SqliteBroker

        return SqliteBroker(_path(url), clock=clock, create=create)
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres import PostgresBroker

        return PostgresBroker(url, clock=clock, create=create)
    if url in MEMORY:
        from penstock.brokers.memory import MemoryBroker

        return MemoryBroker(clock or SYSTEM_CLOCK)
    from penstock.brokers import third_party

    if opens := third_party.opener(url):
        return opens(url, clock, create=create)
    raise _unknown(url, third_party.schemes())


def store_condition(url: str, *, thorough: bool = False) -> StoreCondition:
    """What a store promises and how it is, found out without changing it.

    `thorough` looks at everything that the doctor wants to know, and takes a moment.
    """
    if url.startswith(SQLITE):
        from penstock.brokers.sqlite.condition import condition

        return condition(_path(url))
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.condition import condition as postgres_condition

        return postgres_condition(url, thorough=thorough)
    if url in MEMORY:
        promise = "an accepted job is lost with the process that holds it"
        return StoreCondition(kind="memory", where=url, promise=promise, exists=True)
    from penstock.brokers import third_party

    if looks := third_party.looker(url):
        return looks(url, thorough=thorough)
    if opens := third_party.opener(url):
        return _plain_condition(url, opens)
    raise _unknown(url, third_party.schemes())


def _plain_condition(url: str, opens: OpenBroker) -> StoreCondition:
    """Of a store whose package registers no condition: whether it can be opened."""
    where, kind = mask(url), url.partition(":")[0]
    promise = "as the package of this store documents it"
    try:
        opens(url, None, create=False).close()
    except StoreUnreachable as error:
        unseen = Trouble(str(error), "make it reachable, and look again")
        return StoreCondition(kind=kind, where=where, promise=promise, exists=False, unseen=unseen)
    except Refused as error:
        facts = (Fact("store", str(error)),)
        return StoreCondition(kind=kind, where=where, promise=promise, exists=False, facts=facts)
    return StoreCondition(kind=kind, where=where, promise=promise, exists=True)


def migrate_store(url: str, *, post: bool = False) -> None:
    """Bring a store to this Penstock's schema, and make it where there is none.

    `post` also takes away what only workers of an older Penstock used; refused while one is alive.
    """
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.migrate_command import migrate

        migrate(url, post=post)
        return
    if not is_ours(url):
        from penstock.brokers import third_party

        if migrates := third_party.migrator(url):
            migrates(url, post=post)
            return
    open_broker(url).close()


def migration_sql(url: str, *, post: bool = False) -> str:
    """What `migrate_store` would run, fit for the store's own command line."""
    if url.startswith(SQLITE):
        from penstock.brokers.sqlite.migrating import migration_sql as of_sqlite

        return of_sqlite(_path(url))
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.migrate_command import migration_sql as of_postgres

        return of_postgres(url, post=post)
    raise Refused(f"{mask(url)} has no schema")


def roles_sql(url: str, members: Mapping[str, Sequence[str]]) -> str:
    """What gives logins the rights of viewer, producer, worker or admin; for its owner to run."""
    if not has_roles(url):
        raise Refused(f"{mask(url)} knows no roles: whoever can open the store can do anything")
    need_driver(url)
    from penstock.brokers.postgres.migrating import roles_sql as of_postgres

    return of_postgres(members)


def _path(url: str) -> str:
    path, _, query = url.removeprefix(SQLITE).partition("?")
    if options := parse_qsl(query):
        raise Refused(f"{mask(url)}: no such option {options[0][0]!r}; a path is all it takes")
    return unquote(path)


def need_driver(url: str) -> None:
    """Refuse in a sentence where the driver that a URL needs is not installed."""
    if url.startswith(POSTGRES) and find_spec("psycopg") is None:
        raise Refused("PostgreSQL needs the driver: pip install 'penstock-queue[postgres]'")


def drivers(url: str) -> tuple[str, ...]:
    """The modules beyond Penstock's own that a URL needs where it is opened."""
    if url.startswith(POSTGRES):
        return ("psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions")
    if is_ours(url):
        return ()
    from penstock.brokers import third_party

    package = third_party.package(url)
    return () if package is None else (package,)


def _unknown(url: str, installed: list[str]) -> Refused:
    others = "".join(f", {scheme}:" for scheme in installed)
    return Refused(
        f"{mask(url)!r}: no such broker; there are sqlite:///path/to/file.db, "
        f"postgresql://user@host/database{others} and memory:"
    )
