"""Who keeps a SQLite file from being written, for the doctor.

Workers share the write lock in turns of milliseconds. A transaction that keeps it for seconds is
not one of theirs: nothing is claimed, settled or renewed meanwhile, and live workers look dead.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

from penstock.brokers.condition import Trouble

PROBE_SECONDS = 2.0
_WRITE_LOCK = "120 120"  # the byte of the -shm file that SQLite's WAL mode locks for a writer


def held_by_another(file: Path, seconds: float = PROBE_SECONDS) -> list[Trouble]:
    """That one transaction kept the lock for so long; nothing if others had their turn."""
    address = f"file:{quote(str(file))}?mode=rw"
    with (
        closing(sqlite3.connect(address, uri=True, isolation_level=None)) as reader,
        closing(
            sqlite3.connect(address, uri=True, isolation_level=None, timeout=seconds)
        ) as writer,
    ):
        before = _commits(reader)
        try:
            writer.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or _commits(reader) != before:
                return []
        else:
            writer.execute("rollback")
            return []
    return [
        Trouble(
            f"a transaction{_holder(file)} has held the write lock for {seconds:.0f} s or longer: "
            "nothing is enqueued, claimed or settled until it ends, and live workers look dead",
            "commit or end it; do slow work before a transaction writes, not in it",
            name="write lock",
        )
    ]


def _commits(reader: sqlite3.Connection) -> int:
    """A number that changes when another connection commits."""
    return int(reader.execute("pragma data_version").fetchone()[0])


def _holder(file: Path) -> str:
    """The process with the lock, where the kernel tells."""
    with suppress(OSError, ValueError, IndexError):
        inode = Path(f"{file}-shm").stat().st_ino
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            words = line.split()
            if (
                words[1:4] == ["POSIX", "ADVISORY", "WRITE"]
                and " ".join(words[6:]) == _WRITE_LOCK
                and int(words[5].rpartition(":")[2]) == inode
            ):
                pid = int(words[4])
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                program = " ".join(os.fsdecode(word) for word in command[:2] if word)
                return f" of process {pid} ({program[:80]})"
    return ""
