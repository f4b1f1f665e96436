"""The brokers that there are. Only `open_broker` knows them by name."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote

from penstock.broker import Broker
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Refused
from penstock.settings import mask


def open_broker(url: str, clock: Clock | None = None) -> Broker:
    """The broker that a URL names: `sqlite:///path` or `memory:`."""
    clock = clock or SYSTEM_CLOCK
    if url.startswith("sqlite:///"):
        from penstock.brokers.sqlite import SqliteBroker

        path, _, query = url.removeprefix("sqlite:///").partition("?")
        if options := parse_qsl(query):
            raise Refused(f"{mask(url)}: no such option {options[0][0]!r}; a path is all it takes")
        return SqliteBroker(unquote(path), clock=clock)
    if url in ("memory:", "memory://"):
        from penstock.brokers.memory import MemoryBroker

        return MemoryBroker(clock)
    raise Refused(f"{mask(url)!r}: no such broker; there are sqlite:///path/to/file.db and memory:")
