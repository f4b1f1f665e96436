"""The condition of a PostgreSQL store, read without changing it."""

from __future__ import annotations

import psycopg

from penstock.brokers.condition import StoreCondition, Trouble
from penstock.brokers.postgres.connection import connect
from penstock.brokers.postgres.migrating import read_meta
from penstock.brokers.postgres.statements import steps
from penstock.brokers.postgres.store import conninfo_of
from penstock.settings import mask

PROMISE = (
    "an accepted job survives kill -9 of any process and a crash of the server (synchronous "
    "commit, unless its queue is relaxed); a full disk refuses new jobs and loses none"
)


def condition(url: str) -> StoreCondition:
    """What there is in this database, and whether it can be used."""
    newest = steps()[-1][0]
    trouble: list[Trouble] = []
    schema: int | None = None
    settings: dict[str, str] = {}
    exists = False
    try:
        with connect(conninfo_of(url)[0], prepare=False) as connection:
            meta = read_meta(connection)
            exists = bool(meta)
            schema = int(meta.get("schema", 0))
            settings["postgresql"] = connection.info.parameter_status("server_version") or ""
    except psycopg.Error as error:
        said = str(error).strip().split("\n")[0]
        trouble.append(
            Trouble(f"it does not answer: {said}", "start it, or name another with --url")
        )
    return StoreCondition(
        kind="postgres",
        where=mask(url),
        promise=PROMISE,
        exists=exists,
        schema=schema,
        newest=newest,
        settings=settings,
        trouble=tuple(trouble),
    )
