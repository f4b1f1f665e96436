"""What a URL alone says about its store. Nothing outside of `penstock.brokers` tests a scheme."""

from __future__ import annotations

SQLITE = "sqlite:///"
POSTGRES = ("postgresql://", "postgres://")
REMOTE = "penstock://"
SHARDS = "shards:///"
MEMORY = ("memory:", "memory://")
REDIS = (
    *("redis://", "rediss://", "redis+sentinel://", "redis+unix://"),
    *("valkey://", "valkeys://"),
)


def names_file(url: str) -> bool:
    """Whether the URL is the path of a file behind three slashes; no host, user or password."""
    return url.startswith((SQLITE, SHARDS))


def in_process(url: str) -> bool:
    """Whether the store is inside the process that opens it, so that nobody else can look."""
    return url.startswith("memory:")


def has_roles(url: str) -> bool:
    """Whether the store itself decides who may block: the capability "roles", before it is open."""
    return url.startswith(POSTGRES)


def is_ours(url: str) -> bool:
    """Whether a broker of Penstock's own opens it; else it is for `brokers.third_party`."""
    return url.startswith((SQLITE, SHARDS, REMOTE, *POSTGRES, *REDIS)) or url in MEMORY
