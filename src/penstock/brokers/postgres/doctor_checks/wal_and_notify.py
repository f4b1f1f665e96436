"""What goes to and fro: WAL for each job, and whether notifications come through."""

from __future__ import annotations

import time
import uuid
from typing import NamedTuple

import psycopg

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql

MUCH_WAL = 10_000
_ENOUGH_JOBS = 100
_LOOK_SECONDS = 1.0
_ECHO_SECONDS = 1.0


class WalMark(NamedTuple):
    """Where the WAL and the history stood, and when."""

    at: float
    wal: int
    full_pages: int
    position: int


def mark(look: CheckContext) -> WalMark:
    row = look.row(sql.look_wal)
    return WalMark(time.monotonic(), row["wal"], row["full_pages"], row["position"])


def wal_per_job(look: CheckContext, before: WalMark) -> Findings:
    """Bytes of WAL since `before`, of the whole server, for each attempt that ended since.

    Two looks, and not totals: those would count what the server did before there were jobs.
    """
    if look.row(sql.look_connections)["workers"]:
        time.sleep(max(0.0, before.at + _LOOK_SECONDS - time.monotonic()))
    jobs = look.row(sql.look_ended, {"position": before.position})["jobs"]
    after = mark(look)
    seconds = after.at - before.at
    if not jobs:
        yield Fact("wal", f"no job ended in the {seconds:.1f} s that were looked at")
        return
    per_job = (after.wal - before.wal) / jobs
    pages = (after.full_pages - before.full_pages) / jobs
    says = (
        f"{per_job:,.0f} bytes of WAL a job: all that the server wrote in {seconds:.1f} s, by the "
        f"{jobs:,} jobs that ended; {pages:.2f} full pages a job"
    )
    if per_job > MUCH_WAL and jobs >= _ENOUGH_JOBS:
        yield Trouble(
            says,
            "small arguments and results, enqueue_many for many; for full pages a larger "
            "max_wal_size and wal_compression = on",
            grave=False,
            name="wal",
        )
    else:
        yield Fact("wal", says)


def echo(look: CheckContext) -> Findings:
    """Whether what is notified is heard on the same line."""
    if look.pooled:
        yield Fact("notifications", "a pooler is in between, as the URL says: workers poll")
        return
    echo = f"echo {uuid.uuid4()}"
    with psycopg.connect(look.conninfo, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(sql.look_listen.encode())
        connection.execute(sql.look_notify.encode(), (echo,))
        for notice in connection.notifies(timeout=_ECHO_SECONDS, stop_after=1):
            if notice.payload == echo:
                yield Fact("notifications", "heard: workers are woken up")
                return
    yield Trouble(
        "notifications are not heard: a pooler that hands sessions around is in between, and jobs "
        "start up to 0.25 s later",
        "add ?pooler=true to the URL, or give a direct one",
        grave=False,
        name="notifications",
    )
