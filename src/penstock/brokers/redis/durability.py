"""What a server keeps when it dies, as far as it says so, and whether that is what the URL wants.

INFO tells whether there is an append-only file, CONFIG GET how often it is flushed. Managed
services forbid CONFIG, and some have no such file: then the URL has to name what it relies on.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.brokers.redis.address import Durability, StoreAddress
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.errors import CommandFailed
from penstock.errors import Refused, StoreUnreachable

PROMISES: Mapping[Durability, str] = {
    "always": (
        "an accepted job survives kill -9 of any process and of the server, and a crash of the"
        " machine (appendfsync always); a failover to a replica loses what it had not received"
    ),
    "everysec": (
        "an accepted job survives kill -9 of any process but the server; kill -9 of the server or a"
        " crash of its machine loses up to two seconds of what was accepted and settled"
    ),
    "server": (
        "an accepted job survives kill -9 of any process but the server; what the server survives"
        " is up to whoever runs it"
    ),
    "none": "an accepted job is lost with the server",
}
# Each one keeps what those behind it keep.
_ORDER: tuple[Durability, ...] = ("always", "everysec", "none")


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says about itself; None: it does not say."""

    version: str
    kind: str  # redis or valkey
    append_only: bool
    fsync: str | None
    policy: str  # what it does when its memory is full
    most_memory: int  # bytes; 0: no limit
    used_memory: int
    replicas: int
    min_replicas: int | None
    role: str

    @property
    def keeps(self) -> Durability | None:
        """What it keeps when it dies; None: it does not say."""
        if not self.append_only:
            return "none"
        return {"always": "always", "everysec": "everysec", "no": "none"}.get(  # pyright: ignore[reportReturnType]  of these three
            self.fsync or ""
        )


def server_settings(server: ServerCalls) -> ServerSettings:
    """Ask the server."""
    info = _info(server)
    fsync, least = (_config(server, name) for name in ("appendfsync", "min-replicas-to-write"))
    return ServerSettings(
        version=info.get("valkey_version") or info.get("redis_version", ""),
        kind="valkey" if "valkey_version" in info else "redis",
        append_only=info.get("aof_enabled") == "1",
        fsync=fsync,
        policy=info.get("maxmemory_policy", ""),
        most_memory=int(info.get("maxmemory", 0)),
        used_memory=int(info.get("used_memory", 0)),
        replicas=int(info.get("connected_slaves", 0)),
        min_replicas=None if least is None else int(least),
        role=info.get("role", ""),
    )


def check_durability(server: ServerCalls) -> None:
    """Refuse a server that keeps less than the URL wants, or that forgets keys at will."""
    address = server.address
    if address.durability in {"server", "none"}:
        # Nothing is asked of it, but that it does not throw away jobs while it is up.
        info = _info(server)
        _check_policy(address, info.get("maxmemory_policy", ""), int(info.get("maxmemory", 0)))
        return
    settings = server_settings(server)
    _check_policy(address, settings.policy, settings.most_memory)
    kept = settings.keeps
    if kept is None:
        raise Refused(
            f"the store {address.where} does not say how often it writes to its disk (CONFIG is"
            " forbidden): add durability=server to the URL to rely on whoever runs it, or let this"
            " user call CONFIG GET"
        )
    if _ORDER.index(kept) > _ORDER.index(address.durability):
        raise Refused(_too_little(address, kept))


def _too_little(address: StoreAddress, kept: Durability) -> str:
    wanted = address.durability
    loses = (
        "a crash of the server alone loses up to two seconds of accepted jobs"
        if kept == "everysec"
        else "accepted jobs are lost with the server"
    )
    return (
        f"the store {address.where} keeps less than durability={wanted}: {loses}. Set appendonly"
        f" yes and appendfsync {wanted} on the server, or accept that: durability={kept} in the"
        " URL"
    )


def _check_policy(address: StoreAddress, policy: str, most: int) -> None:
    if most and policy.startswith("allkeys-"):
        raise Refused(
            f"the store {address.where} throws away keys when its memory is full (maxmemory-policy"
            f" {policy}), and jobs with them: set maxmemory-policy noeviction, or use another"
            " server"
        )


def places_of(server: ServerCalls) -> dict[str, tuple[str, ...]]:
    """See `Traits.places`: a server that took over knows the id of the one before it, too."""
    info = _info(server)
    ids = (info.get("master_replid", ""), info.get("master_replid2", ""))
    return {"": tuple(id for id in ids if id.strip("0"))}


def _info(server: ServerCalls) -> dict[str, str]:
    lines = server.call("INFO").decode(errors="replace").splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
    if info.get("loading") == "1":
        # Meanwhile it says that it has no append-only file.
        raise StoreUnreachable(f"the store {server.where} is loading its data; try again")
    return info


def _config(server: ServerCalls, name: str) -> str | None:
    try:
        found = server.call("CONFIG", "GET", name)
    except (CommandFailed, Refused):
        return None
    return found[1].decode() if found else None
