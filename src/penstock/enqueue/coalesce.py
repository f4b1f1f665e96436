"""Concurrent single enqueues of one process share one call of the broker, and so one commit.

Callers append to a list. Whoever finds nobody sending sends everything that is there, its own jobs
among it, and then hands the turn to the first that came in the meantime: no timer, so no delay when
it is quiet, and nobody leads twice in a row while others wait. Awaiting callers have one thread
between them, which is a caller like any other.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.broker.values import Enqueued
from penstock.errors import SchemaTooNew, StoreFull, StoreUnreachable, UnknownOutcome
from penstock.flows.flow import Flow
from penstock.job import Job, Parcel

if TYPE_CHECKING:
    import asyncio

IDLE_SECONDS = 5.0  # then the thread of awaiting callers ends

ToStore = Sequence[Job[Any] | Parcel]
Send = Callable[[ToStore], Enqueued]


class _Request:
    """The jobs of one call, and what became of them."""

    __slots__ = ("answer", "error", "future", "jobs", "loop")

    def __init__(self, jobs: ToStore) -> None:
        self.jobs = jobs
        self.answer: Enqueued | None = None
        self.error: Exception | None = None
        self.loop: asyncio.AbstractEventLoop | None = None  # of a caller that awaits
        self.future: asyncio.Future[Enqueued] | None = None

    def fail(self, error: Exception) -> None:
        # Each caller raises an error of its own: one instance would gather everybody's traceback.
        if isinstance(error, UnknownOutcome):
            # The whole flush, as it was packed: sent again in the same pieces it is recognised,
            # also while the first sending is still on its way.
            self.error = UnknownOutcome(str(error), error.jobs)
        else:
            self.error = copy.copy(error)
            self.error.__cause__ = error.__cause__

    def outcome(self) -> Enqueued:
        if self.error is not None:
            raise self.error
        if self.answer is None:
            raise UnknownOutcome("the call that carried these jobs was interrupted", self.jobs)
        return self.answer


class _Caller:
    """A thread that waits until its requests were sent, or until it is its turn to send."""

    __slots__ = ("leads", "requests", "sent", "turn")

    def __init__(self, requests: list[_Request]) -> None:
        self.requests = requests
        self.sent = False
        self.leads = False  # the turn was handed to it
        self.turn: threading.Lock | None = None  # made only by those who have to wait


class Coalescer:
    """Sends the jobs of many callers together; each hears only of its own."""

    def __init__(
        self, send: Send, places: Callable[[], Callable[[str], str] | None] = lambda: None
    ) -> None:
        self._send = send
        self._places = places  # see `Traits.place_of`
        self._lock = threading.Lock()
        self._callers: list[_Caller] = []
        self._sending = False
        self._awaited: list[_Request] = []
        self._arrived = threading.Condition()
        self._flusher: threading.Thread | None = None

    def enqueue(self, jobs: ToStore) -> Enqueued:
        """Store these jobs, all or none, together with whatever others are storing."""
        request = _Request(jobs)
        self._send_in_turn(_Caller([request]))
        return request.outcome()

    async def enqueue_async(self, jobs: ToStore) -> Enqueued:
        """As `enqueue`; the event loop goes on meanwhile."""
        import asyncio

        request = _Request(jobs)
        request.loop = asyncio.get_running_loop()
        request.future = future = request.loop.create_future()
        with self._arrived:
            self._awaited.append(request)
            self._arrived.notify()
            if self._flusher is None:
                self._flusher = threading.Thread(
                    target=self._flush_awaited, name="penstock-enqueue", daemon=True
                )
                self._flusher.start()
        return await future

    def _flush_awaited(self) -> None:
        while True:
            with self._arrived:
                if not self._awaited:
                    self._arrived.wait(timeout=IDLE_SECONDS)
                # Looked at again, whatever `wait` says: a request may come in between the timeout
                # and the moment that the lock is ours again.
                if not self._awaited:
                    self._flusher = None
                    return
                requests, self._awaited = self._awaited, []
            self._send_in_turn(_Caller(requests))
            _resolve_futures(requests)

    def _send_in_turn(self, caller: _Caller) -> None:
        """Return once the caller's requests were sent, by itself or by another.

        It may be interrupted anywhere (a task's time is up): the turn must never be lost.
        """
        others: list[_Caller] = []
        try:
            with self._lock:
                self._callers.append(caller)
                if self._sending:
                    caller.turn = threading.Lock()
                    caller.turn.acquire()  # released by whoever sends it, or hands on the turn
                else:
                    caller.leads = self._sending = True
            if caller.turn is not None:
                caller.turn.acquire()
            if caller.sent:
                return
            with self._lock:
                callers, self._callers = self._callers, []
            others += [other for other in callers if other is not caller]
            requests = [request for each in callers for request in each.requests]
            if len(requests) > 1 and (place_of := self._places()) is not None:
                for group in _by_place(requests, place_of):
                    self._send_for(group)
            else:
                self._send_for(requests)
            while others:
                others[-1].sent = True
                _release(others.pop())
        except BaseException:
            with self._lock:
                # The others send theirs again, which is safe because their ids are known.
                self._callers[:0] = others
                if caller in self._callers:
                    self._callers.remove(caller)
            raise
        finally:
            if caller.leads:
                self._hand_on(caller)

    def _hand_on(self, leader: _Caller) -> None:
        with self._lock:
            leader.leads = False
            self._sending = bool(self._callers)
            if self._callers:
                self._callers[0].leads = True
                _release(self._callers[0])

    def _send_for(self, requests: list[_Request]) -> None:
        try:
            answer = self._send([job for request in requests for job in request.jobs])
        except Exception as error:
            if len(requests) == 1 or _is_of_store(error):
                for request in requests:
                    request.fail(error)
                return
            # One caller's jobs are refused: the others must not fail with them.
            for request in requests:
                self._send_for([request])
        else:
            for request in requests:
                request.answer = answer


def _by_place(requests: list[_Request], place_of: Callable[[str], str]) -> Iterable[list[_Request]]:
    """Requests that one transaction can store together."""
    groups: dict[frozenset[str], list[_Request]] = {}
    for request in requests:
        places = frozenset(place_of(job.id) for job in request.jobs)
        groups.setdefault(places, []).append(request)
    return groups.values()


def _is_of_store(error: Exception) -> bool:
    """Whether the store itself is in trouble, rather than one caller's jobs."""
    return type(error) is StoreUnreachable or isinstance(
        error, (StoreFull, UnknownOutcome, SchemaTooNew, OSError)
    )


def _release(caller: _Caller) -> None:
    if caller.turn is not None:
        caller.turn.release()


def _resolve_futures(requests: list[_Request]) -> None:
    # One call per loop, not per request: each wakes the loop through a pipe.
    loops: dict[asyncio.AbstractEventLoop, list[_Request]] = {}
    for request in requests:
        if request.loop is not None:
            loops.setdefault(request.loop, []).append(request)
    for loop, waiting in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, waiting)
        except RuntimeError:
            continue  # the loop has ended, and with it whoever waited


def _resolve(requests: list[_Request]) -> None:
    for request in requests:
        future = request.future
        if future is not None and not future.done():
            try:
                future.set_result(request.outcome())
            except Exception as error:
                future.set_exception(error)


class Sending:
    """The jobs of one call, which may have to be sent more than once."""

    def __init__(
        self,
        coalescer: Coalescer,
        send: Callable[[ToStore, Flow | None], Enqueued],
        jobs: ToStore,
        flow: Flow | None,
        *,
        alone: bool,
    ) -> None:
        self._coalescer = coalescer
        self._send = send
        self._jobs = jobs
        self._flow = flow
        self._alone = alone  # not together with the jobs of other callers

    def send(self) -> Enqueued:
        """Store them; calling it again stores nothing twice."""
        if self._alone:
            return self._send(self._jobs, self._flow)
        with self._keeping_packed():
            return self._coalescer.enqueue(self._jobs)

    async def send_async(self) -> Enqueued:
        """As `send`; the event loop goes on meanwhile."""
        if self._alone:
            import asyncio

            return await asyncio.to_thread(self._send, self._jobs, self._flow)
        with self._keeping_packed():
            return await self._coalescer.enqueue_async(self._jobs)

    @contextmanager
    def _keeping_packed(self) -> Generator[None]:
        """After a lost answer, send that call's jobs again as they were packed.

        Only so does the store recognise them.
        """
        try:
            yield
        except UnknownOutcome as error:
            self._jobs, self._alone = error.jobs, True
            raise


def has_unique_key(jobs: ToStore) -> bool:
    """Whether storing them may have to wait for an open transaction that holds the same key.

    Jobs of other callers are not sent together with these: they would have to wait as well.
    """
    return any(isinstance(job, Job) and job.unique is not None for job in jobs)
