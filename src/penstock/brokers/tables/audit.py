"""Audit: what people did that no other verb has a history row for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.broker.views import audit_data
from penstock.brokers.tables.change import Change
from penstock.brokers.tables.db import TableStore


def audit(
    store: TableStore,
    kind: str,
    author: str,
    reason: str = "",
    data: Mapping[str, Any] | None = None,
) -> None:
    """Write a history row of this kind."""
    encoded = msgspec.json.encode(audit_data(kind, author, reason, data))
    with store.writing() as db:
        change = Change(store, db, store.clock.now())
        change.add_event(kind, encoded, None, None)
        change.finish()
