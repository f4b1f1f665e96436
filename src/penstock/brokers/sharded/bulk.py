"""What Spark and its pipelines need of a store, and several shards do not have yet."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import Refused


def no_bulk(*_: Any, **__: Any) -> NoReturn:
    """Refuse a verb of the capability "bulk"."""
    raise Refused(
        "several shards take no writes in parts, and are not read in slices: Spark's sink, source "
        "and pipelines need a store of their own. enqueue_many stores as many jobs"
    )
