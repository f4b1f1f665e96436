"""Cancel, retry or delete everything that a filter means: on the server, while people watch.

An operation is a thread that goes page by page through the verbs of whoever began it, who is in the
history of every job. How far it got is in memory alone, of the process that was asked: another one
that serves the same dashboard does not know of it. Killed half-way, what was done is done, and the
same filter finds the rest.
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
from penstock.operate.bulk_actions import Operation, act_named, act_on_pages, meant_by
from penstock.operate.refusals import NotFound
from penstock.web.verbs import Verbs

logger = logging.getLogger("penstock.web")

PAGE = 500
MOST_COUNTED = 50_000
MOST_EXAMINED = 200_000  # jobs, by one count
MOST_AT_ONCE = 2
MOST_KEPT = 50
NOT_HERE = (
    "This process of the dashboard knows of no such operation. Another process may have begun it, "
    "and can alone show how far it is, or stop it: asking again may reach that one. Or this one "
    "was started anew since. What was done to which jobs is in the audit, while it goes on, too."
)
_LONGEST_REST = 0.25  # seconds


class Preview(msgspec.Struct, frozen=True):
    """How many jobs a filter means; `more`: at least so many."""

    verb: str
    filter: str
    count: int
    more: bool


class _Running(NamedTuple):
    operation: Operation
    stop: threading.Event
    thread: threading.Thread


def preview(verbs: Verbs, verb: str, text: str) -> Preview:
    """How many jobs an operation would be about, counted and looked for up to a bound."""
    wanted, count, examined, after = _meant(verbs, verb, text), 0, 0, None
    while count < MOST_COUNTED and examined < MOST_EXAMINED:
        page = verbs.find(wanted, after, 1000)
        count, examined, after = count + len(page.jobs), examined + page.examined, page.after
        if after is None:
            return Preview(verb, text, count, more=False)
    return Preview(verb, text, count, more=True)


def _meant(verbs: Verbs, verb: str, text: str) -> Filter:
    return meant_by(words_of(text), act_named(verb), verbs.now)


class Operations:
    """The operations of one process's dashboard: one at a time per person, and few in all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: dict[str, _Running] = {}

    def begin(self, verbs: Verbs, counted: Preview, reason: str) -> Operation:
        """Begin what was counted; it goes on when this returned."""
        verb = counted.verb
        wanted = _meant(verbs, verb, counted.filter)
        verbs.act(verb, (), reason)  # refused for its role or its reason, whatever the jobs
        operation = Operation(
            id=Ids(verbs.clock).first(),
            verb=verb,
            filter=counted.filter,
            author=verbs.person.name,
            reason=reason,
            expected=None if counted.more else counted.count,
            began_at=verbs.now,
        )
        stop = threading.Event()
        thread = threading.Thread(
            target=self._run, args=(operation, verbs, wanted, stop), name=f"penstock-{verb}"
        )
        thread.daemon = True
        with self._lock:
            going = [each.operation for each in self._all.values() if each.thread.is_alive()]
            mine = next((each for each in going if each.author == operation.author), None)
            if mine is not None:
                raise Refused(
                    f"{mine.author} has an operation under way ({mine.id}): wait until it has "
                    "ended, or cancel it"
                )
            if len(going) >= MOST_AT_ONCE:
                raise Refused(f"{MOST_AT_ONCE} operations are under way: wait for one of them")
            self._forget()
            self._all[operation.id] = _Running(operation, stop, thread)
            thread.start()
        return operation

    def all(self) -> list[Operation]:
        """Those that are remembered, the last one first."""
        with self._lock:
            return [each.operation for each in reversed(self._all.values())]

    def get(self, id: str) -> Operation | None:
        found = self._all.get(id)
        return None if found is None else found.operation

    def expected(self, id: str) -> Operation:
        """The operation of this id; else a sentence about who may know of it."""
        found = self.get(id)
        if found is None:
            raise NotFound(NOT_HERE)
        return found

    def cancel(self, verbs: Verbs, id: str) -> bool:
        """Have one end after its page, whoever began it; False if it has ended, or is about to."""
        found = self._all.get(id)
        if found is None or found.operation.state != "running" or found.stop.is_set():
            return False
        verbs.record_operation(id, {"verb": STOP})
        found.stop.set()
        return True

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
        self, operation: Operation, verbs: Verbs, wanted: Filter, stop: threading.Event
    ) -> None:
        state, error = "failed", None
        try:
            state = self._work(operation, verbs, wanted, stop)
        except PenstockError as refused:
            error = str(refused)
        except Exception:
            logger.exception("%s of %s", operation.verb, operation.filter)
            error = "see the dashboard's own log"
        # On record before it is told to have ended: whoever waits for that finds it there.
        try:
            verbs.record_operation(operation.id, operation.says(state), operation.reason)
        except Exception:
            logger.exception("operation %s is not on record; its jobs are", operation.id)
        operation.error, operation.ended_at = error, verbs.now
        operation.state = state

    def _work(
        self, operation: Operation, verbs: Verbs, wanted: Filter, stop: threading.Event
    ) -> str:
        """Go on until it is done, or cancelled."""
        pages = act_on_pages(verbs, operation, wanted, verbs.find, PAGE)
        while not stop.is_set():
            began = monotonic()
            if not next(pages):
                return "done"
            # As long a rest as the page took: workers have the store half of the time.
            stop.wait(min(monotonic() - began, _LONGEST_REST))
        return "cancelled"
