"""Stores that were made before the first release: no migration leads on from them.

Their schemas were numbered too, up to 11. What tells them apart is the row `format` in `meta`,
which schema.sql writes and they do not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import Refused


def check_released(meta: Mapping[str, str], where: str, start_anew: str) -> None:
    """Refuse a store of a development version; `start_anew` says how to get a new one."""
    if "schema" not in meta or "format" in meta:
        return
    raise Refused(
        f"the store {where} was made by a development version of Penstock (schema "
        f"{meta['schema']}), and is not brought forward. To start anew, which gives up its jobs "
        f"and its history, {start_anew}. What it holds can be written out first by the Penstock "
        "that made it: `penstock find --json --limit 1000000`"
    )
