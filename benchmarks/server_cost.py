"""What PostgreSQL has done so far: CPU time of all its processes, WAL, commits, pages, connections.

The counters are the server's own; CPU time is of /proc, and not known elsewhere than on Linux. CPU
time and WAL are those of the whole server: nothing else may run on it meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

_TICKS = os.sysconf("SC_CLK_TCK")
_COUNTERS: LiteralString = """
    select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as wal,
           xact_commit as commits,
           blks_hit as hits,
           (select count(*) from pg_stat_activity
             where datname = %(name)s and backend_type = 'client backend') as connections
      from pg_stat_database
     where datname = %(name)s
"""


def read(url: str, database: str, server: int) -> dict[str, Any]:
    """The counters now; `url` is of another database, so that reading them is not counted."""
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        row = connection.execute(_COUNTERS, {"name": database}).fetchone()
    return {**(row or {}), "cpu": cpu_seconds(server)}


def cpu_seconds(server: int, proc: Path = Path("/proc")) -> float | None:
    """CPU seconds of a process, of its children, and of those children that have ended."""
    own = _times(proc, server)
    if own is None:
        return None
    total = sum(own)
    for folder in proc.iterdir():
        if folder.name.isdigit() and _parent(folder) == server:
            times = _times(proc, int(folder.name))
            total += 0 if times is None else sum(times[:2])
    return total / _TICKS


def _times(proc: Path, pid: int) -> list[int] | None:
    """User and system time, and those of the children that it has waited for."""
    fields = _fields(proc / str(pid))
    return None if fields is None else [int(field) for field in fields[11:15]]


def _parent(folder: Path) -> int | None:
    fields = _fields(folder)
    return None if fields is None else int(fields[1])


def _fields(folder: Path) -> list[str] | None:
    """What stands behind the name of the program, which may hold spaces and brackets."""
    try:
        text = (folder / "stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
