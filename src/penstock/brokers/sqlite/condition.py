"""The condition of a SQLite file, read without changing it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from penstock.brokers.condition import StoreCondition, Trouble
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.brokers.sqlite.store import START_ANEW, SqliteStore
from penstock.brokers.sqlite.wake import Waiter, WakeSender
from penstock.brokers.sqlite.write_lock import held_by_another
from penstock.brokers.tables.development_store import check_released
from penstock.errors import PenstockError, Refused

PROMISE = (
    "an accepted job survives kill -9 of any process and a power cut (WAL, synchronous=FULL); "
    "a full disk refuses new jobs and loses none"
)
_SYNCHRONOUS = {"0": "off", "1": "normal", "2": "full", "3": "extra"}


def condition(path: str | Path, *, thorough: bool = False) -> StoreCondition:
    """What there is at this path, and whether it can be used; `thorough`: and written to, too."""
    file = Path(os.path.realpath(path))
    newest = migrations()[-1][0]
    trouble: list[Trouble] = []
    settings: dict[str, str] = {"sqlite": sqlite3.sqlite_version}
    schema: int | None = None
    unseen: Trouble | None = None
    if file.exists():
        try:
            schema = _schema(file)
            if schema == newest:
                settings |= _settings(file)
        except Refused as error:
            unseen = Trouble(str(error), "move it away, or name another file with --url")
        except (sqlite3.Error, PenstockError) as error:
            trouble.append(Trouble(f"it cannot be read: {error}", "name another file with --url"))
        out_of_reach = _out_of_reach(file)
        trouble += out_of_reach
        if thorough and schema == newest and not out_of_reach:
            trouble += held_by_another(file)
    trouble += _weak(settings)
    sender = WakeSender(file)
    sender.close()
    waiter = Waiter(sender.folder, lambda: 0)
    waiter.close()
    settings["sockets"] = str(sender.folder)
    if not waiter.listens:
        trouble.append(
            Trouble(
                f"no sockets can be made in {sender.folder}: jobs start up to 50 ms later",
                f"make {tempfile.gettempdir()} writable, remove {sender.folder.parent} if it is "
                "not yours, or set TMPDIR",
                grave=False,
            )
        )
    return StoreCondition(
        kind="sqlite",
        where=str(file),
        promise=PROMISE,
        exists=file.exists(),
        schema=schema,
        newest=newest,
        pending=tuple(f"step {number}" for number, _ in migrations() if number > (schema or 0)),
        too_new=schema is not None and schema > newest,
        settings=settings,
        unseen=unseen,
        trouble=tuple(trouble),
    )


def _schema(file: Path) -> int:
    # Read-only, so that looking at a file that is no store does not make it one.
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=5)
    try:
        if not connection.execute(sql.has_meta).fetchone()[0]:
            return 0
        meta = dict(connection.execute(sql.meta).fetchall())
        check_released(meta, str(file), START_ANEW)
        return int(meta.get("schema", 0))
    finally:
        connection.close()


def _settings(file: Path) -> dict[str, str]:
    """As the broker's own connections have them: synchronous is not kept in the file."""
    store = SqliteStore(file, create=False)
    try:
        connection = store.connect()
        journal = connection.execute("pragma journal_mode").fetchone()[0]
        synchronous = str(connection.execute("pragma synchronous").fetchone()[0])
        connection.close()
    finally:
        store.close_connections()
    return {
        "journal_mode": str(journal),
        "synchronous": _SYNCHRONOUS.get(synchronous, synchronous),
        "bytes": str(file.stat().st_size),
    }


def _out_of_reach(file: Path) -> list[Trouble]:
    remedy = "give this user the right to write there"
    return [
        Trouble(f"{place} is not writable here", remedy)
        for place in (file, file.parent)
        if not os.access(place, os.W_OK)
    ]


def _weak(settings: dict[str, str]) -> list[Trouble]:
    found: list[Trouble] = []
    if (journal := settings.get("journal_mode", "wal")) != "wal":
        found.append(
            Trouble(
                f"journal_mode is {journal}, not wal: readers and writers block each other",
                "move the file to a local disk; network file systems have no WAL",
            )
        )
    if (synchronous := settings.get("synchronous", "full")) not in {"full", "extra"}:
        found.append(
            Trouble(
                f"synchronous is {synchronous}: a power cut may lose accepted jobs",
                "look for what changes it: Penstock sets it to full",
            )
        )
    return found
