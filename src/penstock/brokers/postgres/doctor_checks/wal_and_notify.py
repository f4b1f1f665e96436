"""WAL per job, and whether notifications arrive."""

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
_MEASURE_SECONDS = 1.0
_ECHO_SECONDS = 1.0


class WalMark(NamedTuple):
    """How far the WAL and the history had come, and when."""

    at: float
    wal: int
    full_pages: int
    position: int


def mark(context: CheckContext) -> WalMark:
    row = context.row(sql.doctor_wal)
    return WalMark(time.monotonic(), row["wal"], row["full_pages"], row["position"])


def wal_per_job(context: CheckContext, before: WalMark) -> Findings:
    """Bytes of WAL that the whole server wrote since `before`, per attempt that ended since."""
    if context.row(sql.doctor_connections)["workers"]:
        time.sleep(max(0.0, before.at + _MEASURE_SECONDS - time.monotonic()))
    jobs = context.row(sql.doctor_ended, {"position": before.position})["jobs"]
    after = mark(context)
    seconds = after.at - before.at
    if not jobs:
        yield Fact("wal", f"no job ended in the {seconds:.1f} s of this check")
        return
    per_job = (after.wal - before.wal) / jobs
    pages = (after.full_pages - before.full_pages) / jobs
    measured = (
        f"{per_job:,.0f} bytes of WAL per job: all that the server wrote in {seconds:.1f} s, "
        f"divided by the {jobs:,} jobs that ended; {pages:.2f} full pages per job"
    )
    if per_job > MUCH_WAL and jobs >= _ENOUGH_JOBS:
        yield Trouble(
            f"{measured}; more than {MUCH_WAL:,} bytes per job fill disks and slow replicas",
            "keep arguments and results small and use enqueue_many; against full pages raise "
            "max_wal_size and set wal_compression = on",
            grave=False,
            name="wal",
        )
    else:
        yield Fact("wal", measured)


def echo(context: CheckContext) -> Findings:
    """Whether a connection receives its own notification."""
    if context.pooled:
        yield Fact("notifications", "not used: the URL says pooler=true, so workers poll")
        return
    echo = f"echo {uuid.uuid4()}"
    with psycopg.connect(context.conninfo, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(sql.doctor_listen.encode())
        connection.execute(sql.doctor_notify.encode(), (echo,))
        for notice in connection.notifies(timeout=_ECHO_SECONDS, stop_after=1):
            if notice.payload == echo:
                yield Fact("notifications", "received: workers start new jobs at once")
                return
    yield Trouble(
        "notifications do not arrive, because of a pooler in transaction mode: workers poll, and "
        "jobs start up to 0.5 s later",
        "add ?pooler=true to the URL, or use one that goes to the server directly",
        grave=False,
        name="notifications",
    )
