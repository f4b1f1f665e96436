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
from penstock.brokers.schemes import (
    MEMORY,
    POSTGRES,
    REDIS,
    REMOTE,
    SHARDS,
    SQLITE,
    has_roles,
    is_ours,
)
from penstock.errors import Refused, StoreUnreachable

if TYPE_CHECKING:
    from penstock.brokers.attached import Attaching
    from penstock.brokers.key_views import KeyContent, KeyFamily
    from penstock.brokers.other_queues import OtherQueues
    from penstock.brokers.sharded.resharding import Resharding
    from penstock.brokers.third_party import OpenBroker


def open_broker(url: str, clock: AnyClock | None = None, *, create: bool = True) -> Broker:
    """The broker that a URL names: sqlite, postgresql, redis, memory, or of another package.

    `penstock://...` is the store of a manager, `shards:///...` a file that names several stores.
    `create=False` refuses where there is no store yet: for those who only look. A store that is one
    of several shards is refused by itself.
    """
    if url.startswith(SHARDS):
        from penstock.brokers.sharded.shards_file import open_file

        return open_file(url, open_store, clock, create=create)
    broker = open_store(url, clock, create=create)
    if not (url.startswith(REMOTE) or url in MEMORY):  # a manager looked itself
        _refuse_shard(url, broker)
    return broker


def open_shards(url: str, *, create: bool = True) -> Resharding:
    """What moves buckets between the shards of a file; `create=False`: what shows them."""
    if not url.startswith(SHARDS):
        raise Refused(
            f"{mask(url)} is one store: write a file of shards that names it, and use the URL "
            "shards:///path/to/shards.toml"
        )
    from penstock.brokers.sharded.resharding import Resharding
    from penstock.brokers.sharded.shards_file import open_file, urls_in

    return Resharding(open_file(url, open_store, create=create), lambda: urls_in(url))


def _refuse_shard(url: str, broker: Broker) -> None:
    """Whoever used one shard as a store would put jobs where nobody looks for them."""
    from penstock.broker.shard_map import ShardMap

    try:
        kept = broker.records(ShardMap)
    except BaseException:
        broker.close()
        raise
    if kept:
        broker.close()
        raise Refused(
            f"the store {mask(url)} is shard {kept[0].shard!r} of several: open all of them, with "
            "the URL shards:///path/to/shards.toml"
        )


def open_store(url: str, clock: AnyClock | None = None, *, create: bool = True) -> Broker:
    """As `open_broker`, of a single store, and also if it is one of several shards."""
    if url.startswith(SQLITE):
        from penstock.brokers.sqlite import SqliteBroker

        return SqliteBroker(_path(url), clock=clock, create=create)
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres import PostgresBroker

        return PostgresBroker(url, clock=clock, create=create)
    if url.startswith(REMOTE):
        need_driver(url)
        from penstock.brokers.remote import RemoteBroker

        return RemoteBroker(url, clock)
    if url.startswith(REDIS):
        need_driver(url)
        from penstock.brokers.redis import RedisBroker

        return RedisBroker(url, clock=clock, create=create)
    if url in MEMORY:
        from penstock.brokers.memory import MemoryBroker

        return MemoryBroker(clock or SYSTEM_CLOCK)
    from penstock.brokers import third_party

    if opens := third_party.opener(url):
        return opens(url, clock, create=create)
    raise _unknown(url, third_party.schemes())


def open_other_queues(system: str, url: str, queues: Sequence[str] = ()) -> OtherQueues:
    """The queues of Celery, RQ or BullMQ in a Redis, to be imported."""
    if not url.startswith(REDIS):
        raise Refused(f"{mask(url)!r} is no URL of Redis, where {system} keeps its queues")
    need_driver(url)
    from penstock.brokers.redis.other_queues import open_other_queues as in_redis

    return in_redis(system, url, queues)


def attaching(url: str) -> Attaching:
    """The database of a store, whose tables can be queues."""
    if not url.startswith(POSTGRES):
        raise Refused(
            f"{mask(url)}: a trigger that enqueues needs a store in PostgreSQL; elsewhere enqueue "
            "in the transaction that inserts, with options(connection=...)"
        )
    need_driver(url)
    from penstock.brokers.postgres.attaching import PostgresAttaching

    return PostgresAttaching(url)


def demo_url(url: str, name: str) -> str:
    """The URL of a new store of this name on the server of a URL, for a demo.

    Refused where a demo would have to share a store with others.
    """
    if url.startswith(REDIS):
        from penstock.brokers.redis.address import url_of_demo

        return url_of_demo(url, name)
    raise Refused(
        f"{mask(url)!r}: the demo runs in a file of its own, or with redis://localhost/0 under a"
        " prefix of its own"
    )


def store_keys(url: str) -> list[KeyFamily]:
    """The keys of a store that has keys, by what they are for; empty for others."""
    if not url.startswith(REDIS):
        return []
    need_driver(url)
    from penstock.brokers.redis.inspecting import store_keys as in_redis

    return in_redis(url)


def store_key(url: str, name: str, limit: int) -> KeyContent:
    """One key of a store, with its first members."""
    if not url.startswith(REDIS):
        raise Refused(f"{mask(url)} has no keys: they are of a store in Redis")
    need_driver(url)
    from penstock.brokers.redis.inspecting import store_key as in_redis

    return in_redis(url, name, limit)


def store_condition(url: str, *, thorough: bool = False) -> StoreCondition:  # noqa: PLR0911  by kind
    """What a store promises and how it is, found out without changing it.

    `thorough` looks at everything that the doctor wants to know, and takes a moment.
    """
    if url.startswith(SQLITE):
        from penstock.brokers.sqlite.condition import condition

        return condition(_path(url), thorough=thorough)
    if url.startswith(POSTGRES):
        need_driver(url)
        from penstock.brokers.postgres.condition import condition as postgres_condition

        return postgres_condition(url, thorough=thorough)
    if url.startswith(SHARDS):
        from penstock.brokers.sharded.condition import condition as shards_condition

        return shards_condition(url, store_condition, thorough=thorough)
    if url.startswith(REMOTE):
        need_driver(url)
        from penstock.brokers.remote.condition import condition as remote_condition

        return remote_condition(url)
    if url.startswith(REDIS):
        need_driver(url)
        from penstock.brokers.redis.condition import condition as redis_condition

        return redis_condition(url, thorough=thorough)
    if url in MEMORY:
        promise = "an accepted job is lost with the process that holds it"
        return StoreCondition(kind="memory", where=url, promise=promise, exists=True)
    return _condition_elsewhere(url, thorough=thorough)


def _condition_elsewhere(url: str, *, thorough: bool) -> StoreCondition:
    """Of a store that another package registered."""
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
    if url.startswith(SHARDS):
        from penstock.brokers.sharded.shards_file import urls_in

        for each in urls_in(url).values():
            _migrate(each, post=post)
        open_broker(url).close()  # makes the map, where there is none
        return
    _migrate(url, post=post)


def _migrate(url: str, *, post: bool) -> None:
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
    open_store(url).close()


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
    if url.startswith(REMOTE) and (find_spec("grpc") is None or find_spec("google") is None):
        raise Refused("a manager needs gRPC: pip install 'penstock-queue[remote]'")
    if url.startswith(REDIS) and find_spec("hiredis") is None:
        raise Refused("Redis needs the driver: pip install 'penstock-queue[redis]'")


def drivers(url: str) -> tuple[str, ...]:
    """The modules beyond Penstock's own that a URL needs where it is opened."""
    if url.startswith(POSTGRES):
        return ("psycopg", "psycopg_binary", "psycopg_binary.libs", "typing_extensions")
    if url.startswith(REMOTE):
        return ("grpc", "google.protobuf", "typing_extensions")
    if url.startswith(REDIS):
        return ("hiredis",)
    if url.startswith(SHARDS):
        from penstock.brokers.sharded.shards_file import urls_in

        return tuple(dict.fromkeys(each for one in urls_in(url).values() for each in drivers(one)))
    if is_ours(url):
        return ()
    from penstock.brokers import third_party

    package = third_party.package(url)
    return () if package is None else (package,)


def _unknown(url: str, installed: list[str]) -> Refused:
    others = "".join(f", {scheme}:" for scheme in installed)
    return Refused(
        f"{mask(url)!r} is not the URL of a store; there are sqlite:///path/to/file.db, "
        f"postgresql://user@host/database, redis://host:6379/0, penstock://:token@host:7450, "
        f"shards:///path/to/shards.toml"
        f"{others} and memory:"
    )
