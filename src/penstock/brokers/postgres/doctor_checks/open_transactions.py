"""The horizon: the oldest open transactions, prepared transactions and replication slots.

Vacuum cannot remove rows that an open snapshot may still see. Readers of the history by position
also wait for an open transaction that has written, because it may still commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.brokers.condition import Fact, Trouble
from penstock.brokers.postgres.doctor_checks import CheckContext, Findings
from penstock.brokers.postgres.statements import sql
from penstock.operate.time_text import duration_text

LONG_SECONDS = 60.0
_NAME = "horizon"


def horizon(context: CheckContext, long: float = LONG_SECONDS) -> Findings:
    """The oldest open transactions, prepared ones, and replication slots."""
    rows = context.rows(sql.doctor_horizon)
    for row in rows:
        if row["seconds"] >= long:
            yield _held_by(row)
    if not rows or rows[0]["seconds"] < long:
        oldest = f"the oldest is that of {_session(rows[0])}" if rows else "none is open"
        yield Fact(_NAME, f"no transaction has been open for long; {oldest}")
    hidden = context.row(sql.doctor_hidden)["sessions"]
    if hidden:
        user = context.connection.info.user
        yield Fact(
            _NAME,
            f"{hidden} sessions of other logins are hidden from {user}, and were not checked",
            f"grant pg_read_all_stats to {user}",
        )
    yield from _prepared(context, long)
    yield from _slots(context)


def _held_by(row: Mapping[str, Any]) -> Trouble:
    harm = (
        "vacuum cannot remove dead rows, and readers of the history by position wait for it"
        if row["writes"]
        else "vacuum cannot remove rows that its snapshot may still see"
    )
    return Trouble(
        f"the horizon is held by {_session(row)}: {harm}",
        f"end it: select pg_terminate_backend({row['pid']}); and set "
        "idle_in_transaction_session_timeout, for example to 10min",
        grave=False,
        name=_NAME,
    )


def _session(row: Mapping[str, Any]) -> str:
    application = f" ({row['application_name']})" if row["application_name"] else ""
    return (
        f"pid {row['pid']}{application} of {row['usename']} in {row['datname']}, {row['state']}, "
        f"open for {duration_text(row['seconds'])}"
    )


def _prepared(context: CheckContext, long: float) -> Findings:
    for row in context.rows(sql.doctor_prepared):
        if row["seconds"] >= long:
            yield Trouble(
                f"the horizon is held by the prepared transaction {row['gid']!r} of {row['owner']} "
                f"in {row['database']}, {duration_text(row['seconds'])} old: vacuum cannot remove "
                "dead rows, and it stays open when its session ends",
                f"in {row['database']}: commit prepared or rollback prepared '{row['gid']}'",
                grave=False,
                name=_NAME,
            )


def _slots(context: CheckContext) -> Findings:
    for row in context.rows(sql.doctor_slots):
        if row["active"]:
            continue
        kept = f"keeps {row['kept'] / 2**20:,.0f} MiB of WAL" if row["kept"] is not None else ""
        pins = f"holds the horizon {row['pinned']:,} transactions back" if row["pinned"] else ""
        if harm := " and ".join(filter(None, (pins, kept))):
            yield Trouble(
                f"the replication slot {row['slot_name']} has no reader; it {harm}, and more with "
                "every job",
                f"select pg_drop_replication_slot('{row['slot_name']}'); or start its reader",
                grave=False,
                name=_NAME,
            )
