"""Who holds the horizon: rows that are dead stay, and history stops, behind the oldest transaction.

A snapshot keeps dead rows from being cleared away. A transaction that writes also stops those who
read the history by position: they wait for what it may still commit.
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


def horizon(look: CheckContext, long: float = LONG_SECONDS) -> Findings:
    """The oldest open transactions, prepared ones, and replication slots."""
    rows = look.rows(sql.look_horizon)
    for row in rows:
        if row["seconds"] >= long:
            yield _held(row)
    if not rows or rows[0]["seconds"] < long:
        oldest = f"the oldest is that of {_who(rows[0])}" if rows else "none is open"
        yield Fact(_NAME, f"no transaction is open for long; {oldest}")
    hidden = look.row(sql.look_hidden)["sessions"]
    if hidden:
        user = look.connection.info.user
        yield Fact(
            _NAME,
            f"{hidden} sessions of other logins are not to be seen by {user}",
            f"grant pg_read_all_stats to {user}",
        )
    yield from _prepared(look, long)
    yield from _slots(look)


def _held(row: Mapping[str, Any]) -> Trouble:
    harm = (
        "dead rows stay, and readers of the history by position wait for it"
        if row["writes"]
        else "dead rows behind its snapshot stay"
    )
    return Trouble(
        f"the horizon is held by {_who(row)}: {harm}",
        f"end it: select pg_terminate_backend({row['pid']}); and set "
        "idle_in_transaction_session_timeout",
        grave=False,
        name=_NAME,
    )


def _who(row: Mapping[str, Any]) -> str:
    called = f" ({row['application_name']})" if row["application_name"] else ""
    return (
        f"pid {row['pid']}{called} of {row['usename']} in {row['datname']}, {row['state']}, open "
        f"for {duration_text(row['seconds'])}"
    )


def _prepared(look: CheckContext, long: float) -> Findings:
    for row in look.rows(sql.look_prepared):
        if row["seconds"] >= long:
            yield Trouble(
                f"the horizon is held by the prepared transaction {row['gid']!r} of {row['owner']} "
                f"in {row['database']}, {duration_text(row['seconds'])} old: it outlives every "
                "session",
                f"in {row['database']}: commit prepared or rollback prepared '{row['gid']}'",
                grave=False,
                name=_NAME,
            )


def _slots(look: CheckContext) -> Findings:
    for row in look.rows(sql.look_slots):
        if row["active"]:
            continue
        kept = f"keeps {row['kept'] / 2**20:,.0f} MiB of WAL" if row["kept"] is not None else ""
        pins = f"holds the horizon {row['pinned']:,} transactions back" if row["pinned"] else ""
        if harm := " and ".join(filter(None, (pins, kept))):
            yield Trouble(
                f"nobody uses the replication slot {row['slot_name']}, which {harm}, and more with "
                "every job",
                f"select pg_drop_replication_slot('{row['slot_name']}'); or start its reader",
                grave=False,
                name=_NAME,
            )
