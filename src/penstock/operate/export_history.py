"""Export of the history: a line for each attempt that ended and each deed, for an archive.

The rows come by position, so that an export with `after` goes on where another one ended and misses
nothing. Gauges and statistics are left out. Encrypted arguments stay encrypted, whatever keys there
are here.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.app.encrypted_broker import EncryptedBroker
from penstock.broker.position import Position
from penstock.broker.protocol import Broker
from penstock.broker.views import MEASURED
from penstock.operate.to_json import EventJson, event_json

_PAGE = 1000


class HistoryEnd(msgspec.Struct, frozen=True):
    """The last line: so many rows, and where the next export begins."""

    end: Position
    rows: int


def exported_history(
    broker: Broker, after: Position, queue: str | None = None
) -> Iterator[tuple[Position, EventJson | None]]:
    """Each row behind a position, with its own; None: a row that is not wanted."""
    store = broker.store if isinstance(broker, EncryptedBroker) else broker
    while rows := store.history(after, _PAGE):
        for row in rows:
            wanted = row.kind not in MEASURED and queue in {None, row.queue}
            yield row.position, event_json(row) if wanted else None
        after = rows[-1].position
