"""The condition of a PostgreSQL store, read without changing it."""

from __future__ import annotations

import psycopg
from psycopg import errors

from penstock.app.settings import mask
from penstock.brokers.condition import Fact, StoreCondition, Trouble
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.doctor_checks import (
    CheckContext,
    open_transactions,
    server,
    tables,
    take,
    version_skew,
    wal_and_notify,
)
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
    "pg_hba.conf": "let this login in from here in pg_hba.conf, or use another --url",
    "does not exist": "create it, or name another one with --url",
    "too many": "raise max_connections, or put a pooler in between (?pooler=true)",
    "remaining connection slots": "raise max_connections, or put a pooler in between",
    "starting up": "wait until the server has started",
}


def condition(url: str, *, thorough: bool = False) -> StoreCondition:
    """What there is in this database, and whether it can be used; `thorough` is for the doctor."""
    plan = this_plan()
    conninfo, pooled, *_ = conninfo_of(url)
    meta: dict[str, str] = {}
    found: list[Trouble | Fact] = []
    settings: dict[str, str] = {}
    unseen: Trouble | None = None
    try:
        with connect(conninfo, prepare=False) as connection:
            settings["postgresql"] = connection.info.parameter_status("server_version") or ""
            meta = read_meta(connection)
            look = CheckContext(connection, conninfo, pooled, meta, plan)
            if thorough:
                found += take("server", look, server.server)
                if meta:
                    found += examined(look)
    except psycopg.Error as error:
        unseen = _unseen(error)
    except Refused as error:
        unseen = Trouble(str(error), "rename or drop what is there, or give another --url")
    pending = [step.name for step in plan.pending(meta)]
    if not pending and plan.brings_functions(meta):
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
        trouble=tuple(each for each in found if isinstance(each, Trouble)),
        facts=tuple(each for each in found if isinstance(each, Fact)),
    )


def _unseen(error: psycopg.Error) -> Trouble:
    """Why the server, the database or the schema does not let us look, and what to do about it."""
    message = str(error).strip().split("\n")[0]
    if isinstance(error, errors.InsufficientPrivilege):
        return Trouble(
            f"this login may not look at it: {message}",
            "have the owner of schema penstock run what `penstock migrate roles --login NAME` "
            "prints",
        )
    # A refusal at the door has no code that libpq hands on, only the server's words.
    for words, remedy in _LOGIN_REMEDIES.items():
        if words in message:
            return Trouble(f"it lets nobody in like this: {message}", remedy)
    return Trouble(
        f"it does not answer: {message}",
        "start it, or look at host, port, user and password of the URL",
    )


def examined(look: CheckContext) -> list[Trouble | Fact]:
    """Everything that there is to look at in a store, one after the other."""
    found: list[Trouble | Fact] = []
    marks: list[wal_and_notify.WalMark] = []
    found += take("wal", look, lambda look: iter(marks.append(wal_and_notify.mark(look)) or ()))
    for name, each in (
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
        found += take(name, look, each)
    if marks:
        found += take("wal", look, lambda look: wal_and_notify.wal_per_job(look, marks[0]))
    return found
