"""The condition of a store in Redis, for `penstock doctor`; nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeGuard

from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.redis.address import StoreAddress, parse_address
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.durability import (
    PROMISES,
    ServerSettings,
    check_durability,
    server_settings,
)
from penstock.errors import Refused, StoreUnreachable

_FULL = 0.8  # of maxmemory: beyond that there is little room for a burst


def condition(url: str, *, thorough: bool = False) -> StoreCondition:
    """How the server is, and whether there is a store in it."""
    address = parse_address(url)
    server = ServerCalls(address)
    unseen: Trouble | None = None
    settings: ServerSettings | None = None
    findings: list[Trouble | Fact] = []
    exists = False
    try:
        exists = bool(server.call("EXISTS", f"{address.prefix}meta"))
        settings = server_settings(server)
        if thorough:
            findings += _findings(server, settings)
        if not exists:
            # Else the first that anybody hears is that there is no store, and then why.
            unseen = next((one for one in findings if _keeps_it_out(one)), None)
    except Refused as error:
        unseen = Trouble(str(error), "give the user of the URL the right to INFO and its keys")
    except StoreUnreachable as error:
        unseen = Trouble(str(error), "start it, or check host, port, user and password in the URL")
    finally:
        server.close()
    return StoreCondition(
        kind="redis",
        where=address.where,
        promise=promise_of(address),
        exists=exists,
        settings={} if settings is None else {settings.kind: settings.version},
        unseen=unseen,
        trouble=tuple(finding for finding in findings if isinstance(finding, Trouble)),
        facts=tuple(finding for finding in findings if isinstance(finding, Fact)),
    )


def _keeps_it_out(finding: Trouble | Fact) -> TypeGuard[Trouble]:
    """Whether a store could not be made as things are."""
    return isinstance(finding, Trouble) and finding.grave


def promise_of(address: StoreAddress) -> str:
    """What an accepted job survives, with what the URL demands."""
    promise = PROMISES[address.durability]
    if not address.replicas:
        return promise
    return f"{promise}; a call returns when {address.replicas} of its replicas have the write too"


def _findings(server: ServerCalls, settings: ServerSettings) -> Iterator[Trouble | Fact]:
    try:
        check_durability(server)
    except Refused as error:
        yield Trouble(str(error), "change the server's settings or the URL", name="durability")
    else:
        yield Fact("durability", PROMISES[server.address.durability])
    if settings.keeps is None:
        yield Fact(
            "durability",
            "the server does not say how often it writes to its disk",
            "let this user call CONFIG GET",
        )
    yield from _memory(settings)
    yield from _replicas(settings)


def _memory(settings: ServerSettings) -> Iterator[Trouble | Fact]:
    used = f"{settings.used_memory / 2**20:,.0f} MiB"
    if not settings.most_memory:
        yield Fact("memory", f"{used} used, and no limit", "set maxmemory: a machine has an end")
        return
    most = f"{settings.most_memory / 2**20:,.0f} MiB"
    if settings.used_memory > settings.most_memory * _FULL:
        yield Trouble(
            f"{used} of {most} are used: enqueue is refused when there is no more",
            "raise maxmemory, add workers, or shorten retention= in the URL",
            grave=False,
            name="memory",
        )
    else:
        yield Fact("memory", f"{used} of {most} used")
    if settings.policy.startswith("volatile-"):
        yield Fact("memory", f"maxmemory-policy {settings.policy}: no key of Penstock's expires")


def _replicas(settings: ServerSettings) -> Iterator[Trouble | Fact]:
    if settings.role not in {"", "master"}:
        yield Trouble(
            "this server is a replica: it takes no writes",
            "give the master in the URL, or Sentinels: redis+sentinel://host:26379/mymaster",
            name="replicas",
        )
    elif settings.replicas and settings.min_replicas == 0:
        yield Trouble(
            f"{settings.replicas} replicas, and min-replicas-to-write is 0: cut off from them, this"
            " server goes on accepting what a failover loses",
            "set min-replicas-to-write 1 and min-replicas-max-lag 2",
            grave=False,
            name="replicas",
        )
