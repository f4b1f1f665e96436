"""Enqueue in the caller's own transaction: one statement with one parameter, whatever the driver.

Nothing of ours stays on the caller's connection, and no statement fails on it that could be
foreseen: an error would end the caller's transaction. What is asked is a value (`Join`), so that
an asynchronous connection can be asked as well, where it belongs.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from penstock.broker.checks import other_count, partly_known
from penstock.broker.values import Batch, Enqueued
from penstock.brokers.postgres.enqueue_values import Handed, flow_values, job_values, parcel_values
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import CHANNEL, RING_SECONDS, PostgresStore
from penstock.enqueue.caller_connection import Caller, Conversation, JoinStatement
from penstock.errors import PenstockError, Refused

# Cast, and not "::", which SQLAlchemy would take for the name of a value.
_SEND = "select cast(penstock.enqueue_joined(cast(cast(%s as text) as jsonb)) as text)"
_RING = "select pg_notify(%s, %s)"
_IDLE_SECONDS = 5.0

# Sessions with a database in which the store was found, each with the store's id.
_found: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class PostgresJoin:
    """Jobs on their way into a caller's transaction."""

    def __init__(
        self,
        store: PostgresStore,
        handed: Handed,
        now: float,
        *,
        prepare: Callable[[], Any] | None,
        bell: NotifyAfterCommit,
        whole: Collection[str] = (),
        batch: Batch | None = None,
    ) -> None:
        self._store = store
        self._handed = handed
        self._now = now
        self._prepare = prepare
        self._bell = bell
        self._whole = whole  # ids of parcels that nobody can cut differently
        self._batch = batch

    @property
    def prepared(self) -> bool:
        """Nothing has to be written on a connection of our own first."""
        return self._prepare is None

    def prepare(self) -> None:
        if self._prepare is not None:
            self._prepare()

    def asks(self, caller: Caller) -> Conversation:
        store = self._store
        if caller.dialect != "postgresql":
            raise Refused(
                f"connection is a {caller.dialect}; the store is {store.where}, so it must be a "
                "connection to that database: psycopg's, psycopg2's, asyncpg's, SQLAlchemy's or "
                "Django's"
            )
        if _known(caller.driver) != store.store_id:
            usable = yield JoinStatement(sql.joinable)
            if usable is None:
                raise _another(store)
            if not usable:
                raise Refused(
                    f"the login of this connection may not use the store {store.where}; "
                    "`penstock migrate roles` shows what to grant. Nothing was written"
                )
        notify = store.notify_in_transaction and not caller.hooked
        answer_text = yield JoinStatement(_SEND, self._payload(notify=notify))
        answer: dict[str, Any] = msgspec.json.decode(answer_text)
        if refused := answer.get("refused"):
            raise self._refusal(refused, answer)
        with suppress(TypeError):  # a driver whose connections cannot be referred to weakly
            _found[caller.driver] = store.store_id
        if caller.hooked:
            lanes = frozenset(lane.hash for lane in self._handed.lanes())
            caller.after_commit((store.store_id, lanes), partial(self._bell.ring, lanes))
        return Enqueued(frozenset(answer["known"]), answer["standing"], answer["batch"])

    def _payload(self, *, notify: bool) -> str:
        handed, batch = self._handed, self._batch
        parcels = parcel_values(handed.parcels)
        for parcel in parcels:
            parcel["cut"] = parcel["id"] not in self._whole
        return msgspec.json.encode(
            {
                "store": self._store.store_id,
                "now": self._now,
                "notify": notify,
                "batch": batch and {"id": batch.id, "count": batch.count, "rows": handed.rows},
                "parcels": parcels,
                "jobs": job_values(handed.singles),
                "flow": handed.flow and flow_values(handed.flow),
            }
        ).decode()

    def _refusal(self, word: str, answer: dict[str, Any]) -> Refused:
        if word == "old":
            return Refused(
                f"id {answer['id']} is older than what this store remembers; nothing was written"
            )
        if word == "batch" and self._batch is not None:
            return other_count(self._batch.id, self._batch.count, answer["rows"])
        if word == "flow" and self._handed.flow is not None:
            return partly_known(self._handed.flow.id, answer["id"])
        return _another(self._store)


def _another(store: PostgresStore) -> Refused:
    return Refused(
        f"connection belongs to another database than the app's, {store.where}; jobs can be "
        "committed only with data of the same database. Nothing was written"
    )


def _known(driver: Any) -> str | None:
    try:
        return _found.get(driver)
    except TypeError:
        return None


class NotifyAfterCommit:
    """Rings for what others have committed.

    On a thread of its own, because neither a commit nor an event loop is to wait for it; it ends
    when there is nothing to ring for.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._news = threading.Condition()
        self._lanes: set[int] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ring(self, lanes: Iterable[int]) -> None:
        """Tell whoever waits for these lanes, soon."""
        if self._pid != os.getpid():
            self._begin()  # a fork's child has the lock, but not the thread that may have held it
        with self._news:
            self._lanes.update(lanes)
            self._news.notify()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="penstock-bell", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._news:
                if not self._lanes and not self._closed:
                    self._news.wait(_IDLE_SECONDS)
                if not self._lanes:
                    self._thread = None
                    return
                lanes, self._lanes = self._lanes, set()
            lane_names = ",".join(map(str, lanes)) if len(lanes) <= 50 else ""
            # Only a hint: whoever is not told looks for itself after a while.
            with suppress(PenstockError), self._store.lend() as connection:
                connection.execute(_RING, (CHANNEL, lane_names))
            time.sleep(RING_SECONDS)

    def close(self) -> None:
        """What is to be rung for is rung for."""
        if self._pid != os.getpid():
            return
        with self._news:
            self._closed = True
            self._news.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)
