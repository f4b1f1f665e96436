"""Which environment this process is of, and whether it may run the jobs of a store.

PENSTOCK_ENVIRONMENT says which, else the profile of penstock.toml that names the store; the profile
"default", which nobody has to choose, is no environment.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from penstock.app.clock import AnyClock
from penstock.app.encrypted_broker import encrypted
from penstock.app.key_ring import KeyRing
from penstock.app.settings import ResolvedUrl, mask
from penstock.broker.environment import Environment
from penstock.broker.protocol import Broker
from penstock.brokers import open_broker
from penstock.errors import PenstockError, Refused

if TYPE_CHECKING:
    from penstock.app.app import App

VARIABLE = "PENSTOCK_ENVIRONMENT"

log = logging.getLogger("penstock")


def environment_of(resolved: ResolvedUrl) -> str:
    """The environment of this process; "": it has none."""
    return os.environ.get(VARIABLE, resolved.profile)


def open_named(resolved: ResolvedUrl, clock: AnyClock | None, keys: KeyRing | None) -> Broker:
    """The store; one that has no environment yet belongs to that of this process from now on."""
    broker = encrypted(open_broker(resolved.url, clock), keys)
    environment = environment_of(resolved)
    try:
        if environment and not broker.records(Environment):
            broker.put(record_of(broker, environment), "", "the first to open the store")
    except PenstockError as error:  # a login that may enqueue and no more, or a shard that is away
        log.info("the store is not marked as of the environment %s: %s", environment, error)
    except BaseException:
        broker.close()
        raise
    return broker


def record_of(broker: Broker, environment: str, *, adopts: bool = False) -> Environment:
    """The record that names the environment of a store where it is now."""
    places = {shard: ids[0] for shard, ids in broker.traits.places().items() if ids}
    return Environment(environment=environment, places=places, adopts=adopts)


def open_to_run(app: App) -> Broker:
    """The store of an app whose jobs this process is about to run.

    Refused if it is of another environment.
    """
    broker = app.broker
    if app.opens_itself:
        check_environment(broker, app.resolved_url)
    return broker


def check_environment(broker: Broker, resolved: ResolvedUrl) -> None:
    """Refuse to run jobs of a store that is of another environment than this process."""
    own = environment_of(resolved)
    for record in broker.records(Environment):
        if record.environment != own:
            here = f"of {own!r}" if own else f"of no environment ({VARIABLE} is not set)"
            raise Refused(
                f"the store {mask(resolved.url)} is of the environment {record.environment!r}, and "
                f"this process is {here}, so it runs none of its jobs: name another store, or make "
                "this one its own with `penstock adopt`"
            )
