"""What the URL of a store in Redis says: where the server is, and what the store demands of it.

    redis://user:password@host:6379/0?prefix={shop}:&durability=everysec&retention=2d
    rediss://host:6380?ca_file=/etc/ca.pem              TLS
    redis+sentinel://one:26379,two:26379/mymaster/0     the master of that name
    redis+unix:///run/redis.sock                        a socket of this machine

`valkey://` and `valkeys://` mean the same as `redis://` and `rediss://`. Reading it opens nothing.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import parse_qsl, unquote

import msgspec

from penstock.app.settings import mask
from penstock.brokers.schemes import REDIS
from penstock.errors import Refused

PREFIX = "{penstock}:"
RETENTION_SECONDS = 86400.0  # of what ended, and of ids: memory is dear
PORT, SENTINEL_PORT = 6379, 26379
Durability = Literal["always", "everysec", "server", "none"]
DURABILITIES = ("always", "everysec", "server", "none")
_OPTIONS = (
    *("prefix", "durability", "replicas", "retention", "ca_file", "cert_file", "key_file"),
    *("sentinel_user", "sentinel_password"),
)
_TAG = re.compile(r"\{[^{}]+\}")
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)([smhdw]?)")
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_HOST = re.compile(r"(?P<host>\[[^\]]+\]|[^:\[\]]*)(?::(?P<port>\d+))?")


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A store in Redis, as its URL names it."""

    where: str  # fit to be shown
    hosts: tuple[tuple[str, int], ...] = ()  # of Sentinels, if there is a `service`
    path: str = ""  # of a socket of this machine
    service: str = ""  # what Sentinels call the master
    db: int = 0
    user: str | None = None
    password: str | None = None
    sentinel_user: str | None = None
    sentinel_password: str | None = None
    tls: bool = False
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    prefix: str = PREFIX
    durability: Durability = "always"
    replicas: int = 0  # so many have a write before a call returns
    retention: float = RETENTION_SECONDS

    @property
    def of_this_machine(self) -> bool:
        """Whether only processes of this machine can be meant: a socket, or loopback."""
        return bool(self.path) or all(
            host in {"localhost", "127.0.0.1", "::1"} for host, _ in self.hosts
        )


def parse_address(url: str) -> StoreAddress:
    """Read a URL; whatever cannot be meant is refused."""
    where = mask(url)
    scheme, mark, rest = url.partition("://")
    if not mark or not url.startswith(REDIS):
        raise Refused(f"{where!r} is no URL of Redis: write redis://host:6379/0")
    rest, _, query = rest.partition("?")
    options = _options(query, where)
    login, at, rest = rest.rpartition("@")
    user, colon, password = login.partition(":")
    hosts, slash, path = rest.partition("/")
    fields: dict[str, object] = {}
    if scheme == "redis+unix":
        if hosts or not path:
            raise Refused(f"{where!r} names no socket: write redis+unix:///run/redis.sock")
        fields["path"] = unquote(slash + path)
        fields["db"] = _db(options.pop("db", ""), where)
    else:
        fields["hosts"] = _hosts(hosts, scheme, where)
        if scheme == "redis+sentinel":
            service, _, path = path.partition("/")
            if not service:
                raise Refused(
                    f"{where!r} names no master: write redis+sentinel://host:26379/mymaster"
                )
            fields["service"] = unquote(service)
        fields["db"] = _db(path, where)
    return StoreAddress(
        where=where,
        user=unquote(user) or None if at else None,
        password=unquote(password) if colon else None,
        tls=scheme in {"rediss", "valkeys"},
        sentinel_user=options.get("sentinel_user"),
        sentinel_password=options.get("sentinel_password"),
        ca_file=options.get("ca_file"),
        cert_file=options.get("cert_file"),
        key_file=options.get("key_file"),
        prefix=_prefix(options.get("prefix", PREFIX), where),
        durability=_durability(options.get("durability", "always"), where),
        replicas=_replicas(options.get("replicas", "0"), where),
        retention=_retention(options.get("retention"), where),
        **fields,  # pyright: ignore[reportArgumentType]  hosts or path, service and db
    )


def url_of_demo(url: str, name: str) -> str:
    """The URL with a prefix of its own. On loopback nothing is asked of the server's disk."""
    address = parse_address(url)
    added: list[str] = []
    options = url.partition("?")[2]
    if "prefix=" in options:
        raise Refused(f"{address.where}: the demo has a prefix of its own: leave out prefix=")
    added.append(f"prefix={{{name}}}:")
    if address.of_this_machine and "durability=" not in options:
        added.append("durability=none")
    return f"{url}{'&' if options else '?'}{'&'.join(added)}"


def _options(query: str, where: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in (*_OPTIONS, "db"):
            raise Refused(f"{where}: no such option {name!r}; there are {', '.join(_OPTIONS)}")
    return options


def _hosts(text: str, scheme: str, where: str) -> tuple[tuple[str, int], ...]:
    usual = SENTINEL_PORT if scheme == "redis+sentinel" else PORT
    found: list[tuple[str, int]] = []
    for part in text.split(","):
        match = _HOST.fullmatch(part)
        if match is None or not match["host"]:
            raise Refused(f"{where!r}: {part!r} is no host; write host or host:{usual}")
        found.append((match["host"].strip("[]"), int(match["port"] or usual)))
    if len(found) > 1 and scheme != "redis+sentinel":
        raise Refused(f"{where!r} names {len(found)} hosts: only Sentinels are several")
    return tuple(found)


def _db(text: str, where: str) -> int:
    if text and not text.isdecimal():
        raise Refused(f"{where!r}: {text!r} is no number of a database; write .../0")
    return int(text or 0)


def _prefix(text: str, where: str) -> str:
    if not _TAG.search(text):
        raise Refused(
            f"{where!r}: prefix {text!r} has no hash tag, by which all keys are in one slot of a"
            f" cluster; write prefix={{{text.strip(':') or 'penstock'}}}:"
        )
    return text


def _durability(text: str, where: str) -> Durability:
    if text not in DURABILITIES:
        raise Refused(
            f"{where!r}: durability {text!r} is not known; there are {', '.join(DURABILITIES)}"
        )
    return text


def _replicas(text: str, where: str) -> int:
    if not text.isdecimal():
        raise Refused(f"{where!r}: replicas {text!r}: how many have a write before a call returns")
    return int(text)


def _retention(text: str | None, where: str) -> float:
    if text is None:
        return RETENTION_SECONDS
    match = _SECONDS.fullmatch(text)
    if match is None or not float(match[1]):
        raise Refused(f"{where!r}: retention {text!r} is no time; write 12h, 1d or 3600")
    return float(match[1]) * _UNITS[match[2]]
