"""The condition of a PostgreSQL store, for `penstock doctor` and `migrate`; read-only."""

from __future__ import annotations

from functools import partial

import psycopg
from psycopg import errors

from penstock.app.settings import mask
from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.doctor_checks import (
    CheckContext,
    Findings,
    open_transactions,
    run_check,
    server,
    tables,
    version_skew,
    wal_and_notify,
)
from penstock.brokers.postgres.errors import first_line
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.migration_steps import this_plan
from penstock.brokers.postgres.store import conninfo_of
from penstock.errors import Refused

PROMISE = (
    "an accepted job survives kill -9 of any process and a crash of the server (synchronous "
    "commit, unless its queue is relaxed); a full disk refuses new jobs and loses none"
)

_LOGIN_REMEDIES = {
    "password authentication failed": "give the right user and password in the URL",
    "no password supplied": "give the password in the URL, or in PGPASSWORD or ~/.pgpass",
    "pg_hba.conf": "allow this login from this host in pg_hba.conf, or use another --url",
    "does not exist": "create it, or name another one with --url",
    "too many": "raise max_connections, or use a pooler (?pooler=true)",
    "remaining connection slots": "raise max_connections, or use a pooler (?pooler=true)",
    "starting up": "wait until the server has started",
}


def condition(url: str, *, thorough: bool = False) -> StoreCondition:
    """Whether there is a store in this database and this Penstock can use it.

    With `thorough`, also everything that the doctor checks.
    """
    plan = this_plan()
    conninfo, pooled, *_ = conninfo_of(url)
    meta: dict[str, str] = {}
    findings: list[Trouble | Fact] = []
    settings: dict[str, str] = {}
    unseen: Trouble | None = None
    try:
        with connect(conninfo, prepare=False) as connection:
            settings["postgresql"] = connection.info.parameter_status("server_version") or ""
            meta = read_meta(connection)
            context = CheckContext(connection, conninfo, pooled, meta, plan)
            if thorough:
                findings += run_check("server", context, server.server)
                if meta:
                    findings += run_checks(context)
    except psycopg.Error as error:
        unseen = _unseen(error)
    except Refused as error:
        unseen = Trouble(str(error), "rename or drop what is there, or give another --url")
    pending = [step.name for step in plan.pending(meta)]
    if not pending and plan.replaces_functions(meta):
        pending = ["functions"]
    return StoreCondition(
        kind="postgres",
        where=mask(url),
        promise=PROMISE,
        exists=bool(meta),
        schema=int(meta["schema"]) if meta else None,
        newest=plan.newest,
        pending=tuple(pending),
        pending_post=tuple(step.name for step in plan.pending_post(meta)),
        too_new=not plan.knows(meta),
        settings=settings,
        unseen=unseen,
        trouble=tuple(finding for finding in findings if isinstance(finding, Trouble)),
        facts=tuple(finding for finding in findings if isinstance(finding, Fact)),
    )


def _unseen(error: psycopg.Error) -> Trouble:
    """Why the store cannot be checked, and what to do about it."""
    message = first_line(error)
    if isinstance(error, errors.InsufficientPrivilege):
        return Trouble(
            f"this login may not read it: {message}",
            "have the owner of schema penstock run what `penstock migrate roles --worker NAME` "
            "prints",
        )
    # libpq does not hand on the SQLSTATE of a failed login, only the server's message.
    for words, remedy in _LOGIN_REMEDIES.items():
        if words in message:
            return Trouble(f"it refuses the connection: {message}", remedy)
    return Trouble(
        f"it does not answer: {message}",
        "start it, or check host, port, user and password in the URL",
    )


def run_checks(context: CheckContext) -> list[Trouble | Fact]:
    """All checks of a store that exists, one after the other."""
    wal_before: list[wal_and_notify.WalMark] = []

    def read_wal(context: CheckContext) -> Findings:
        wal_before.append(wal_and_notify.mark(context))
        return iter(())

    # Read first, so that jobs end while the other checks run.
    findings = run_check("wal", context, read_wal)
    for name, check in (
        ("schema", version_skew.missing),
        ("functions", version_skew.functions),
        ("schema", version_skew.post_steps),
        ("releases", version_skew.releases),
        ("connections", server.connections),
        ("horizon", open_transactions.horizon),
        ("vacuum", tables.dead_rows),
        ("partitions", tables.partitions),
        ("counts", tables.counts),
        ("history", tables.positions),
        ("notifications", wal_and_notify.echo),
    ):
        findings += run_check(name, context, check)
    for before in wal_before:
        findings += run_check("wal", context, partial(wal_and_notify.wal_per_job, before=before))
    return findings
