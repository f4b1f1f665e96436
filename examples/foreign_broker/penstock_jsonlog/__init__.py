"""A store in one append-only log file, for one process: an example of a broker from outside."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.broker.protocol import Broker
from penstock.brokers.condition import StoreCondition
from penstock.errors import Refused
from penstock_jsonlog.broker import JsonLogBroker

__all__ = ["JsonLogBroker", "open_broker", "store_condition"]


def open_broker(url: str, clock: AnyClock | None = None, *, create: bool = True) -> Broker:
    """What the entry point "penstock.brokers" names."""
    path = _path(url)
    if not create and not path.exists():
        raise Refused(f"{path} does not exist: a worker or the first enqueue makes it")
    return JsonLogBroker(path, clock or SYSTEM_CLOCK)


def store_condition(url: str, *, thorough: bool = False) -> StoreCondition:  # noqa: ARG001  there is little to see
    """What the entry point "penstock.store_conditions" names: for `penstock doctor`."""
    path = _path(url)
    promise = "an accepted job survives a crash of the process and of the machine"
    return StoreCondition(kind="jsonlog", where=str(path), promise=promise, exists=path.exists())


def _path(url: str) -> Path:
    path = unquote(url.removeprefix("jsonlog://"))
    if not path.startswith("/"):
        raise Refused(f"{url!r}: write jsonlog:///absolute/path.jsonl")
    return Path(path)
