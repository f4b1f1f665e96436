"""Audit: what people did that no other verb has a history row for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.views import recorded
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import TableStore


class Audit:
    """Record."""

    def __init__(self, store: TableStore) -> None:
        self.store = store

    def record(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        says = msgspec.json.encode(recorded(kind, author, reason, data))
        with self.store.writing() as db:
            change = Change(self.store, db, self.store.clock.now())
            change.happened(kind, says, None, None)
            change.finish()
