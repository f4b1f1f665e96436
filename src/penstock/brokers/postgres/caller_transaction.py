"""Enqueue in the caller's own transaction: one statement with one parameter, for any driver.

An error would abort the caller's transaction, so whatever can be refused is refused without one.
The statements are yielded as values: an asynchronous connection runs them in its own event loop.
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
from penstock.brokers.postgres.enqueue_values import NewJobs, flow_values, job_values, parcel_values
from penstock.brokers.postgres.statements import sql
from penstock.brokers.postgres.store import CHANNEL, NOTIFY_SECONDS, PostgresStore, lanes_payload
from penstock.enqueue.caller_connection import Caller, Conversation, JoinStatement
from penstock.errors import PenstockError, Refused

# cast() and not "::", which SQLAlchemy would take for a bound parameter.
_ENQUEUE = "select cast(penstock.enqueue_joined(cast(cast(%s as text) as jsonb)) as text)"
_NOTIFY = "select pg_notify(%s, %s)"
_IDLE_SECONDS = 5.0

# Callers' connections whose database holds a store, each with the id of that store.
_store_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


class PostgresJoin:
    """Jobs to be stored in a caller's transaction."""

    def __init__(
        self,
        store: PostgresStore,
        new_jobs: NewJobs,
        now: float,
        *,
        prepare: Callable[[], Any] | None,
        notifier: NotifyAfterCommit,
        whole: Collection[str] = (),
        batch: Batch | None = None,
    ) -> None:
        self._store = store
        self._new_jobs = new_jobs
        self._now = now
        self._prepare = prepare
        self._notifier = notifier
        self._whole = whole  # ids of parcels that are never packed differently
        self._batch = batch

    @property
    def prepared(self) -> bool:
        """Whether nothing has to be stored on a connection of our own first."""
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
        if _store_id_of(caller.driver) != store.store_id:
            usable = yield JoinStatement(sql.joinable)
            if usable is None:
                raise _other_database(store)
            if not usable:
                raise Refused(
                    f"the login of this connection may not use the store {store.where}; "
                    "`penstock migrate roles` shows what to grant. Nothing was written"
                )
        notify = store.notify_in_transaction and not caller.hooked
        answer_text = yield JoinStatement(_ENQUEUE, self._payload(notify=notify))
        answer: dict[str, Any] = msgspec.json.decode(answer_text)
        if refused := answer.get("refused"):
            raise self._refusal(refused, answer)
        with suppress(TypeError):  # some drivers' connections cannot be weakly referenced
            _store_ids[caller.driver] = store.store_id
        if caller.hooked:
            lanes = frozenset(lane.hash for lane in self._new_jobs.lanes())
            caller.after_commit((store.store_id, lanes), partial(self._notifier.notify, lanes))
        return Enqueued(frozenset(answer["known"]), answer["standing"], answer["batch"])

    def _payload(self, *, notify: bool) -> str:
        new_jobs, batch = self._new_jobs, self._batch
        parcels = parcel_values(new_jobs.parcels)
        for parcel in parcels:
            parcel["cut"] = parcel["id"] not in self._whole
        return msgspec.json.encode(
            {
                "store": self._store.store_id,
                "now": self._now,
                "notify": notify,
                "batch": batch and {"id": batch.id, "count": batch.count, "rows": new_jobs.rows},
                "parcels": parcels,
                "jobs": job_values(new_jobs.singles),
                "flow": new_jobs.flow and flow_values(new_jobs.flow),
            }
        ).decode()

    def _refusal(self, reason: str, answer: dict[str, Any]) -> Refused:
        if reason == "old":
            return Refused(
                f"id {answer['id']} is older than what this store remembers; nothing was written"
            )
        if reason == "batch" and self._batch is not None:
            return other_count(self._batch.id, self._batch.count, answer["rows"])
        if reason == "flow" and self._new_jobs.flow is not None:
            return partly_known(self._new_jobs.flow.id, answer["id"])
        return _other_database(self._store)


def _other_database(store: PostgresStore) -> Refused:
    return Refused(
        f"connection belongs to another database than the app's, {store.where}; jobs can be "
        "committed only with data of the same database. Nothing was written"
    )


def _store_id_of(driver: Any) -> str | None:
    try:
        return _store_ids.get(driver)
    except TypeError:
        return None


class NotifyAfterCommit:
    """Sends notifications after callers committed.

    In a thread, so that neither a commit nor an event loop waits for it; it ends when idle.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._condition = threading.Condition()
        self._lanes: set[int] = set()
        self._thread: threading.Thread | None = None
        self._closed = False

    def notify(self, lanes: Iterable[int]) -> None:
        """Notify whoever waits for work in these lanes, soon."""
        if self._pid != os.getpid():
            self._reset()  # a forked child inherits the lock, perhaps held, but not the thread
        with self._condition:
            self._lanes.update(lanes)
            self._condition.notify()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(
                    target=self._run, name="penstock-notifier", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._lanes and not self._closed:
                    self._condition.wait(_IDLE_SECONDS)
                if not self._lanes:
                    self._thread = None
                    return
                lanes, self._lanes = self._lanes, set()
            # Only a hint: a worker that is not notified polls after a while.
            with suppress(PenstockError), self._store.connection() as connection:
                connection.execute(_NOTIFY, (CHANNEL, lanes_payload(lanes)))
            time.sleep(NOTIFY_SECONDS)

    def close(self) -> None:
        """Send what is left, and end the thread."""
        if self._pid != os.getpid():
            return
        with self._condition:
            self._closed = True
            self._condition.notify()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5)
