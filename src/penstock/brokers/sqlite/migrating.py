"""The steps that a file still lacks, as a script for the `sqlite3` shell.

An open applies them by itself; this is for those who want to read them first.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from penstock.brokers.sqlite.condition import condition
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.errors import Refused


def migration_sql(path: str | Path) -> str:
    """What an open would run, all of it or nothing."""
    stands = condition(path)
    if stands.unseen is not None:
        raise Refused(stands.unseen.says)
    found = stands.schema or 0
    parts: list[str] = []
    for number, script in migrations():
        if number > found:
            parts += [script, _put_meta("schema", str(number))]
    if not parts:
        return "-- Nothing to do: the store is as this Penstock wants it.\n"
    if not found:
        parts.append(_put_meta("store", str(uuid.uuid4())))
    return "\n".join([".bail on", "begin immediate;", *parts, "commit;", ""])


def _put_meta(name: str, value: str) -> str:
    return sql.put_meta.replace(":name", f"'{name}'").replace(":value", f"'{value}'")
