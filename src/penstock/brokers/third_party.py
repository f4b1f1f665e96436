"""Stores of other packages: each registers the scheme of its URLs as an entry point.

    [project.entry-points."penstock.brokers"]
    jsonlog = "penstock_jsonlog:open_broker"

The value is called as `penstock.brokers.open_broker` is. What a store need not have is registered
under the same name in groups of its own: "penstock.store_conditions", called as
`penstock.brokers.store_condition` is, and "penstock.store_migrations", called as `migrate_store`
is. Looked for only where a URL is none of Penstock's own: that takes milliseconds.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol

from penstock.app.clock import AnyClock
from penstock.broker.protocol import Broker
from penstock.brokers.condition import StoreCondition
from penstock.errors import Refused

BROKERS = "penstock.brokers"
CONDITIONS = "penstock.store_conditions"
MIGRATIONS = "penstock.store_migrations"


class OpenBroker(Protocol):
    """What a package registers in the group "penstock.brokers"."""

    def __call__(self, url: str, clock: AnyClock | None, *, create: bool) -> Broker: ...


class LookAtStore(Protocol):
    """What a package may register in the group "penstock.store_conditions"."""

    def __call__(self, url: str, *, thorough: bool) -> StoreCondition: ...


class MigrateStore(Protocol):
    """What a package may register in the group "penstock.store_migrations"."""

    def __call__(self, url: str, *, post: bool) -> None: ...


def schemes() -> list[str]:
    """The schemes that installed packages registered, sorted."""
    return sorted({entry.name for entry in entry_points(group=BROKERS)})


def opener(url: str) -> OpenBroker | None:
    """What opens such a URL; None if no installed package does."""
    return _loaded(url, BROKERS)


def looker(url: str) -> LookAtStore | None:
    """What finds out the condition of such a store; None if its package does not offer that."""
    return _loaded(url, CONDITIONS)


def migrator(url: str) -> MigrateStore | None:
    """What migrates such a store; None if its package does not offer that."""
    return _loaded(url, MIGRATIONS)


def package(url: str) -> str | None:
    """The top-level package that opens such a URL."""
    entry = _entry(url, BROKERS)
    return None if entry is None else entry.module.partition(".")[0]


def _loaded(url: str, group: str) -> Any:
    entry = _entry(url, group)
    if entry is None:
        return None
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise Refused(
            f"{entry.name}: is registered as {entry.value}, which cannot be loaded: {error}"
        ) from error


def _entry(url: str, group: str) -> EntryPoint | None:
    scheme = url.partition(":")[0]
    found = {entry.value: entry for entry in entry_points(group=group, name=scheme)}
    if len(found) > 1:
        raise Refused(
            f"{scheme}: is registered by several packages, as {' and '.join(sorted(found))}:"
            " uninstall all but one"
        )
    return next(iter(found.values()), None)
