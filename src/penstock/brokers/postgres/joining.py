"""Enqueue in the caller's own transaction: one statement with one parameter, whatever the driver.

Nothing of ours stays on the caller's connection, and nothing is done to it but the statement: its
transaction, its settings and its loop are its own. A connection that cannot be written to without
waiting gets the statement as a value, to be awaited where it belongs.
"""

from __future__ import annotations

import weakref
from typing import Any

import msgspec

from penstock.broker import Batch, Enqueued
from penstock.brokers.postgres.handed import Handed, job_values, parcel_values
from penstock.brokers.postgres.store import Store
from penstock.errors import Refused

_HERE = "select to_regclass('penstock.meta') is not null"
_STORE = "select value from penstock.meta where name = 'store'"
_SEND = "select penstock.enqueue_joined(%s::jsonb)"
_TRIES = 2

_checked: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def enqueue(
    store: Store, connection: Any, handed: Handed, now: float, batch: Batch | None
) -> Enqueued:
    """Store these jobs when, and only when, the caller commits."""
    if batch is not None:
        raise Refused(
            "enqueue_many(id=...) commits by itself, ten thousand at a time: leave connection out"
        )
    cursor = _cursor(store, connection)
    try:
        _check(store, connection, cursor)
        cursor.execute(_SEND, (payload(store, handed, now),))
        return answer(cursor.fetchone()[0])
    finally:
        cursor.close()


def payload(store: Store, handed: Handed, now: float) -> str:
    """What penstock.enqueue_joined takes."""
    return msgspec.json.encode(
        {
            "store": store.store_id,
            "now": now,
            "parcels": parcel_values(handed.parcels),
            "jobs": job_values(handed.singles),
        }
    ).decode()


def answer(said: Any) -> Enqueued:
    """What it answered, as a driver hands it over: text or a dict."""
    if isinstance(said, str | bytes):
        said = msgspec.json.decode(said)
    return Enqueued(frozenset(said["known"] + said["parcels"]), said["standing"])


def _cursor(store: Store, connection: Any) -> Any:
    make = getattr(connection, "cursor", None)
    if not callable(make) or type(connection).__module__.startswith("sqlite3"):
        raise Refused(
            f"connection is a {type(connection).__name__}; the store is {store.where}, so it must "
            "be a connection to that database: psycopg's, psycopg2's, SQLAlchemy's or Django's"
        )
    return make()


def _check(store: Store, connection: Any, cursor: Any) -> None:
    """Refuse another database before anything is written, without ending the transaction."""
    try:
        if _checked.get(connection) == store.store_id:
            return
    except TypeError:  # a driver whose connections cannot be referred to weakly
        pass
    cursor.execute(_HERE)
    found = None
    if cursor.fetchone()[0]:
        cursor.execute(_STORE)
        row = cursor.fetchone()
        found = row and row[0]
    if found != store.store_id:
        raise Refused(
            f"connection belongs to another database than the app's, {store.where}; jobs can be "
            "committed only with data of the same database. Nothing was written"
        )
    try:
        _checked[connection] = store.store_id
    except TypeError:
        pass
