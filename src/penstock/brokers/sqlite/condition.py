"""The condition of a SQLite file, read without changing it."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path
from urllib.parse import quote

from penstock.brokers.condition import StoreCondition
from penstock.brokers.sqlite.statements import migrations, sql
from penstock.brokers.sqlite.store import Store
from penstock.brokers.sqlite.wake import Bell
from penstock.errors import PenstockError

PROMISE = (
    "an accepted job survives kill -9 of any process and a power cut (WAL, synchronous=FULL); "
    "a full disk refuses new jobs and loses none"
)
_SYNCHRONOUS = {"0": "off", "1": "normal", "2": "full", "3": "extra"}


def condition(path: str | Path) -> StoreCondition:
    """What there is at this path, and whether it can be used."""
    file = Path(os.path.realpath(path))
    newest = migrations()[-1][0]
    trouble: list[tuple[str, str]] = []
    settings: dict[str, str] = {"sqlite": sqlite3.sqlite_version}
    schema: int | None = None
    if file.exists():
        try:
            schema = _schema(file)
            if schema == newest:
                settings |= _settings(file)
        except (sqlite3.Error, PenstockError) as error:
            trouble.append((f"it cannot be read: {error}", "name another file with --url"))
        trouble += _out_of_reach(file)
    trouble += _weak(settings)
    bell = Bell(file)
    bell.close()
    folder = bell.folder
    settings["sockets"] = str(folder)
    if not os.access(folder, os.W_OK):
        trouble.append(
            (
                f"no sockets can be made in {folder}: jobs start up to 50 ms later",
                f"make {tempfile.gettempdir()} writable, or set TMPDIR",
            )
        )
    return StoreCondition(
        kind="sqlite",
        where=str(file),
        promise=PROMISE,
        exists=file.exists(),
        schema=schema,
        newest=newest,
        settings=settings,
        trouble=tuple(trouble),
    )


def _schema(file: Path) -> int:
    # Read-only: another connection's mode could be changed by merely opening it for writing.
    connection = sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True, timeout=5)
    try:
        if not connection.execute(sql.has_meta).fetchone()[0]:
            return 0
        return int(dict(connection.execute(sql.meta).fetchall()).get("schema", 0))
    finally:
        connection.close()


def _settings(file: Path) -> dict[str, str]:
    """As the broker's own connections have them: synchronous is not kept in the file."""
    store = Store(file, create=False)
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


def _out_of_reach(file: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if not os.access(file, os.W_OK):
        found.append((f"{file} is not writable here", "give this user the right to write it"))
    if not os.access(file.parent, os.W_OK):
        found.append(
            (f"{file.parent} is not writable here, and SQLite keeps its log there", "as above")
        )
    return found


def _weak(settings: dict[str, str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if settings.get("journal_mode", "wal") != "wal":
        found.append(
            (
                f"journal_mode is {settings['journal_mode']}, not wal: readers and writers block "
                "each other",
                "move the file to a local disk; network file systems have no WAL",
            )
        )
    if settings.get("synchronous", "full") not in {"full", "extra"}:
        found.append(
            (
                f"synchronous is {settings['synchronous']}: a power cut may lose accepted jobs",
                "let Penstock set it",
            )
        )
    return found
