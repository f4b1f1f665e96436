"""Operations: cancel, retry or delete all jobs that match a filter, in the background.

An operation is a thread that goes page by page through the store, with the role and name of the
person who began it. Its progress is only in the memory of the process that runs it: another process
that serves the same dashboard does not know it. If it is killed half-way, what was done stays done,
and the same filter finds the rest.
"""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import NamedTuple

import msgspec

from penstock.broker.filter import Filter, words_of
from penstock.enqueue.ids import Ids
from penstock.errors import PenstockError, Refused
from penstock.operate.audit import STOP
from penstock.operate.bulk_actions import (
    Operation,
    act_on_pages,
    bulk_verb_named,
    parse_bulk_filter,
)
from penstock.operate.find_pages import find_pages
from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.roles import Person
from penstock.web.checked_store import CheckedStore

logger = logging.getLogger("penstock.web")

PAGE = 500
MOST_COUNTED = 50_000
MOST_EXAMINED = 200_000  # jobs that one preview may look through
MOST_AT_ONCE = 2
MOST_KEPT = 50
NOT_HERE = (
    "This process of the dashboard does not know the operation: another process may run it (load "
    "the page again), or this one was restarted since. The audit shows what was done to which jobs."
)
_LONGEST_REST = 0.25  # seconds


class Preview(msgspec.Struct, frozen=True):
    """How many jobs match a filter; `more`: at least this many."""

    verb: str
    filter: str
    count: int
    more: bool


class _Running(NamedTuple):
    operation: Operation
    stop: threading.Event
    thread: threading.Thread


def preview(store: CheckedStore, verb: str, text: str) -> Preview:
    """Count the jobs that an operation would act on, up to a bound."""
    count = examined = 0
    for page in find_pages(store.find, _filter(store, verb, text)):
        count, examined = count + len(page.jobs), examined + page.examined
        if page.after is not None and (count >= MOST_COUNTED or examined >= MOST_EXAMINED):
            return Preview(verb, text, count, more=True)
    return Preview(verb, text, count, more=False)


def _may_see(person: Person, operation: Operation) -> bool:
    """With an access list only one's own: the filter of another's may name what is not on it."""
    return person.only is None or operation.author == person.name


def _filter(store: CheckedStore, verb: str, text: str) -> Filter:
    return parse_bulk_filter(words_of(text), bulk_verb_named(verb), store.now)


class Operations:
    """The operations of one process's dashboard: one at a time per person, and few in all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, _Running] = {}

    def begin(self, store: CheckedStore, counted: Preview, reason: str) -> Operation:
        """Start the operation that was counted; returns while it runs."""
        verb = counted.verb
        wanted = _filter(store, verb, counted.filter)
        store.act(verb, (), reason)  # checks the role and the reason before the thread starts
        operation = Operation(
            id=Ids(store.clock).first(),
            verb=verb,
            filter=counted.filter,
            author=store.person.name,
            reason=reason,
            expected=None if counted.more else counted.count,
            began_at=store.now,
        )
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(operation, store, wanted, stop), name=f"penstock-{verb}"
        )
        thread.daemon = True
        with self._lock:
            running = [run.operation for run in self._all.values() if run.thread.is_alive()]
            mine = next((other for other in running if other.author == operation.author), None)
            if mine is not None:
                raise Refused(
                    f"{mine.author} already runs an operation ({mine.id}): wait until it has "
                    "ended, or cancel it"
                )
            if len(running) >= MOST_AT_ONCE:
                raise Refused(f"{MOST_AT_ONCE} operations are running: wait until one has ended")
            self._forget()
            self._all[operation.id] = _Running(operation, stop, thread)
            thread.start()
        return operation

    def all(self, person: Person) -> list[Operation]:
        """The remembered operations that this person may see, newest first."""
        with self._lock:
            found = [each.operation for each in reversed(self._all.values())]
        return [each for each in found if _may_see(person, each)]

    def get(self, id: str) -> Operation | None:
        found = self._all.get(id)
        return None if found is None else found.operation

    def expected(self, id: str, person: Person) -> Operation:
        """The operation of this id; NotFound if this process does not know it."""
        found = self.get(id)
        if found is None or not _may_see(person, found):
            raise NotFound(NOT_HERE)
        return found

    def cancel(self, store: CheckedStore, id: str) -> Operation:
        """Stop an operation after its current page; Conflict if it has ended, or is stopping."""
        operation = self.expected(id, store.person)
        stop = self._all[id].stop
        if operation.state != "running" or stop.is_set():
            raise Conflict(f"operation {id} has ended: {operation.state}")
        store.record_operation(id, {"verb": STOP})
        stop.set()
        return operation

    def close(self) -> None:
        for each in list(self._all.values()):
            each.stop.set()
        for each in list(self._all.values()):
            each.thread.join()

    def _forget(self) -> None:
        ended = [id for id, each in self._all.items() if not each.thread.is_alive()]
        for id in ended[: max(0, len(self._all) - MOST_KEPT + 1)]:
            del self._all[id]

    def _run(
        self, operation: Operation, store: CheckedStore, wanted: Filter, stop: threading.Event
    ) -> None:
        state, error = "failed", None
        try:
            state = self._work(operation, store, wanted, stop)
        except PenstockError as refused:
            error = str(refused)
        except Exception:
            logger.exception("%s of %s", operation.verb, operation.filter)
            error = "see the dashboard's own log"
        # Recorded before its state says that it ended: who waits for that finds the record.
        try:
            store.record_operation(operation.id, operation.audit_data(state), operation.reason)
        except Exception:
            logger.exception("operation %s is not in the audit; its jobs are", operation.id)
        operation.error, operation.ended_at = error, store.now
        operation.state = state

    def _work(
        self, operation: Operation, store: CheckedStore, wanted: Filter, stop: threading.Event
    ) -> str:
        """Act page by page until it is done or stopped; the final state."""
        pages = act_on_pages(store, operation, wanted, store.find, PAGE)
        while not stop.is_set():
            began = monotonic()
            if not next(pages):
                return "done"
            # Rest as long as the page took: workers have the store half of the time.
            stop.wait(min(monotonic() - began, _LONGEST_REST))
        return "cancelled"
