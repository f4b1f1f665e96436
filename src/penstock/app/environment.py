"""Which environment this process is of, and whether it may run the jobs of a store.

PENSTOCK_ENVIRONMENT says which, else the profile of penstock.toml that names the store; the profile
"default", which nobody has to choose, is no environment.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from penstock.app.settings import ResolvedUrl, mask
from penstock.broker.environment import Environment
from penstock.broker.protocol import Broker
from penstock.errors import PenstockError, Refused

if TYPE_CHECKING:
    from penstock.app.app import App

VARIABLE = "PENSTOCK_ENVIRONMENT"

log = logging.getLogger("penstock")


def environment_of(resolved: ResolvedUrl) -> str:
    """The environment of this process; "": it has none."""
    return os.environ.get(VARIABLE, resolved.profile)


def record_of(broker: Broker, environment: str, *, adopts: bool = False) -> Environment:
    """The record that names the environment of a store where it is now."""
    places = {shard: ids[0] for shard, ids in broker.traits.places().items() if ids}
    return Environment(environment=environment, places=places, adopts=adopts)


def open_to_run(app: App) -> Broker:
    """The store of an app whose jobs this process is about to run; see `check_environment`."""
    broker = app.broker
    if app.opens_itself:
        check_environment(broker, app.resolved_url)
    return broker


def check_environment(broker: Broker, resolved: ResolvedUrl) -> None:
    """Refuse to run jobs of a store that is of another environment than this process.

    A store that has none is of that of this process from now on.
    """
    own = environment_of(resolved)
    kept = broker.records(Environment)
    if own and not kept:
        try:
            broker.put(record_of(broker, own), "", "the first to run its jobs")
        except PenstockError as error:  # a login without that right, or a shard that is away
            log.info("the store is not marked as of the environment %s: %s", own, error)
        kept = broker.records(Environment)  # whoever was first
    for record in kept:
        if record.environment != own:
            here = f"of {own!r}" if own else f"of no environment ({VARIABLE} is not set)"
            raise Refused(
                f"the store {mask(resolved.url)} is of the environment {record.environment!r}, and "
                f"this process is {here}, so it runs none of its jobs: name another store, or make "
                "this one its own with `penstock adopt`"
            )
