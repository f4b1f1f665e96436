"""Hands jobs to receivers: one thread claims for all of them at once, and settles on the way.

A receiver is a worker of the store with a row of its own, so that mark-before-send, fences, limits
and order are what the claim makes them, and another manager can take it over. One round is one
`claim`: the settlements that came in since the last one ride along. Between two rounds the thread
knows when the next job is due, and hears of every change. Without receivers there is no thread and
no statement.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from heapq import nsmallest
from typing import Any, Literal

from msgspec.structs import replace

from penstock.app.version import RELEASE
from penstock.broker.protocol import Broker
from penstock.broker.values import Claimed, Settlement, Wanted
from penstock.broker.views import MANAGER, WorkerRow
from penstock.errors import PenstockError, Refused
from penstock.job import Job, Outcome, lapsed, put_back
from penstock.manager.counters import Counters
from penstock.manager.receiver import Receiver
from penstock.manager.watching import Version

MOST_CREDITS = 1000  # of one receiver
MOST_RECEIVERS = 2000
MOST_SETTLED = 2000  # in one round
MOST_ASKED = 2000  # jobs for one group in one round
POLL_SECONDS = 2.0  # without a hint and without a job that falls due
_AGAIN_SECONDS = 0.5  # after the store did not answer
_RENEWS = 3  # in a lease

HOST = socket.gethostname()

log = logging.getLogger("penstock.manager")
AnyJob = Job[Any]
Choice = Literal["least-busy", "random"]
Done = Callable[[list[bool]], None]
Calls = list[Callable[[], None]]


class Dispatch:
    """The receivers of one manager, and the thread that claims for them.

    `deliver` is called once a round, with all that is to be sent and answered.
    """

    def __init__(
        self,
        broker: Broker,
        version: Version,
        deliver: Callable[[Calls], None],
        choice: Choice = "least-busy",
    ) -> None:
        self._broker = broker
        self._version = version
        self._deliver = deliver
        self._choice: Choice = choice
        self._receivers: dict[str, Receiver] = {}
        self._settlements: list[tuple[list[Settlement], Done]] = []
        self._changed = threading.Condition()
        self._stir = False  # something may be there to claim, or to settle
        self._thread: threading.Thread | None = None
        self._ear: threading.Thread | None = None
        self._stopped = False
        self._own = WorkerRow(
            id=f"{MANAGER}{uuid.uuid4()}",
            queues=(),
            host=HOST,
            pid=os.getpid(),
            started_at=broker.clock.now(),
            penstock=RELEASE,
        )
        self._renewed_at = 0.0
        self._stray: set[str] = set()  # rows that may hold jobs of a claim whose answer was lost
        # How many jobs to ask for, for receivers that take the same ones: more after each claim
        # that gave all, so that one job costs one row, and a backlog few rounds.
        self._asking: dict[Any, int] = {}
        self.next_at: float | None = None  # when the next job falls due that could be handed out
        self.counters = Counters()
        broker.traits.settled_in_sql = self._settled_in_sql

    @property
    def resting(self) -> bool:
        """Nobody is connected and nothing is to be settled: no thread asks the store."""
        return self._thread is None and self._ear is None

    @property
    def rounds(self) -> int:
        """Claims so far, each of which is a call of the store."""
        return self.counters.claims

    # Called by the service, on its event loop

    def join(self, receiver: Receiver) -> None:
        """From now on it is handed jobs; one of the same name before it is not, any more."""
        with self._changed:
            if len(self._receivers) >= MOST_RECEIVERS:
                raise Refused(f"{MOST_RECEIVERS:,} receivers are connected already")
            self._receivers[receiver.row.id] = receiver
            self._renewed_at = 0.0  # with the next round
        self._wake()

    def leave(self, receiver: Receiver, unsent: Sequence[AnyJob] = ()) -> None:
        """Its stream ended: it has its lease to come back, here or to another manager.

        What was never sent to it is put back, uncounted.
        """
        with self._changed:
            if self._receivers.get(receiver.row.id) is receiver:
                del self._receivers[receiver.row.id]
            for job in unsent:
                receiver.drop(job.id)
        self.counters.not_sent(unsent)
        if unsent:
            self.settle([(job, put_back("not sent")) for job in unsent], _nobody)
        self._wake()
        if not self._receivers:
            self._broker.wake()  # for the thread that waits for hints

    def heard(self, receiver: Receiver, granted: int) -> None:
        with self._changed:
            receiver.credits = min(MOST_CREDITS, receiver.credits + granted)
            receiver.heard_at = time.monotonic()
        self._wake()

    def held_by(self, row_id: str, job_id: str, attempt: int) -> AnyJob | None:
        """The job, if it was sent from here and is not settled."""
        with self._changed:
            receiver = self._receivers.get(row_id)
            job = None if receiver is None else receiver.job(job_id)
            return job if job is not None and job.attempt == attempt else None

    def extend(self, row_id: str, job: AnyJob, seconds: float | None = None) -> bool:
        """Hold it for so long from now, more or less than before; None: for its job_timeout."""
        with self._changed:
            receiver = self._receivers.get(row_id)
            if receiver is None or job.id not in receiver.held:
                return False
            receiver.hold([job], seconds)
        self._wake()  # it may be over before what the thread waits for
        return True

    def _settled_in_sql(self, job_id: str) -> None:
        """The receiver that holds it said so to the store itself: its copy here is dropped."""
        with self._changed:
            for receiver in self._receivers.values():
                receiver.drop(job_id)

    def settle(self, pairs: Sequence[Settlement], done: Done) -> None:
        """Apply these with the next round, together.

        `done` is called by `deliver`: for each, whether it was applied, or is stale.
        """
        if pairs:
            with self._changed:
                self._settlements.append((list(pairs), done))
            self._wake()

    def receivers(self) -> list[tuple[WorkerRow, int, int]]:
        """Those that are connected here: rows, credits, and how many jobs they hold."""
        with self._changed:
            return [(each.row, each.credits, len(each.held)) for each in self._receivers.values()]

    def stop(self) -> None:
        self._stopped = True
        with self._changed:
            self._stir = True
            self._changed.notify_all()

    # The threads

    def _wake(self) -> None:
        with self._changed:
            self._stir = True
            self._changed.notify_all()
            if self._stopped:
                return
            if self._thread is None and (self._receivers or self._settlements):
                self._thread = threading.Thread(
                    target=self._run, name="penstock-dispatch", daemon=True
                )
                self._thread.start()
            if self._ear is None and self._receivers:
                self._ear = threading.Thread(
                    target=self._hear, name="penstock-dispatch-hints", daemon=True
                )
                self._ear.start()

    def _hear(self) -> None:
        while True:
            with self._changed:
                if not self._receivers or self._stopped:
                    self._ear = None
                    return
            try:
                if self._broker.wait(None, POLL_SECONDS):
                    self._wake()
            except PenstockError as error:
                log.debug("no hints: %s", error)
                time.sleep(_AGAIN_SECONDS)

    def _run(self) -> None:
        wait = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stir, wait)
                self._stir = False
                left = self._settlements or (not self._stopped and self._receivers)
                if not left:
                    self._thread = None
                    return
            try:
                wait = self._round()
                continue
            except PenstockError as error:
                log.warning("the store does not answer, trying again: %s", error)
            except Exception:
                log.exception("handing out jobs failed; trying again")
            if self._stopped:
                return  # whoever waits for an answer asks another manager
            self.counters.failed_rounds += 1
            wait = 0.0
            time.sleep(_AGAIN_SECONDS)

    def _round(self) -> float:
        """Settle, renew, claim, send; returns how long to wait at most for the next round."""
        with self._changed:
            self._end_overdue()
            taken = self._take_settlements()
            asked = self._asked()
            wanted = [Wanted(each.row, number, each.row.queues) for each, number in asked]
        self.next_at = None
        if wanted or taken:
            version = self._version.number()
            claimed = self._claim(wanted, taken)
            self.next_at = claimed.next_at
            self._learn(asked, claimed)
            calls = self._answers(taken, claimed.accepted)
            try:
                unsent = self._hand_out(asked, claimed.jobs, version, calls)
                if unsent:
                    self._broker.settle([(job, put_back("not sent")) for job in unsent])
            except BaseException:  # the store holds jobs for receivers that were sent none
                with self._changed:
                    self._stir = True
                    self._stray.update(each.row.id for each, _ in asked)
                raise
            finally:
                self._deliver(calls)  # what was settled is told, whatever came after it
        self._renew()
        return self._seconds_to_next()

    def _take_settlements(self) -> list[tuple[list[Settlement], Done]]:
        number = calls = 0
        for pairs, _ in self._settlements:
            if number and number + len(pairs) > MOST_SETTLED:
                break
            number, calls = number + len(pairs), calls + 1
        taken = self._settlements[:calls]
        del self._settlements[:calls]
        return taken

    def _asked(self) -> list[tuple[Receiver, int]]:
        """Whom to ask for in this round, and for how many jobs: of each group the least busy."""
        groups: dict[Any, list[Receiver]] = {}
        for receiver in () if self._stopped else self._receivers.values():
            if receiver.credits > 0 and not receiver.behind():
                groups.setdefault(receiver.group, []).append(receiver)
        asked: list[tuple[Receiver, int]] = []
        for group, receivers in groups.items():
            if len(receivers) == 1:
                asked.append((receivers[0], receivers[0].credits))
                continue
            number = self._asking.get(group, 1)
            chosen = nsmallest(number, receivers, key=self._rank)
            share = -(-number // len(chosen))
            asked += [(each, min(each.credits, share)) for each in chosen]
        return asked

    def _rank(self, receiver: Receiver) -> tuple[float, float]:
        """Between two that are as busy, the one that was heard of last: it is alive."""
        if self._choice == "random":
            return random.random(), 0.0  # noqa: S311  no secret
        return len(receiver.held), -receiver.heard_at

    def _claim(
        self, wanted: Sequence[Wanted], taken: Sequence[tuple[list[Settlement], Done]]
    ) -> Claimed:
        self.counters.claims += 1
        try:
            return self._broker.claim(wanted, [pair for pairs, _ in taken for pair in pairs])
        except BaseException:
            with self._changed:
                self._settlements[:0] = taken  # they are sent again, and are stale if they arrived
                self._stir = True
                self._stray.update(each.worker.id for each in wanted)
            raise

    def _learn(self, asked: Sequence[tuple[Receiver, int]], claimed: Claimed) -> None:
        """How many to ask for next time; and whether there may be more at once."""
        sums: dict[Any, tuple[int, int]] = {}
        for (receiver, number), jobs in zip(asked, claimed.jobs, strict=True):
            wanted, got = sums.get(receiver.group, (0, 0))
            sums[receiver.group] = (wanted + number, got + len(jobs))
        if len(self._asking) > MOST_RECEIVERS:
            self._asking.clear()  # groups whose receivers are gone
        for group, (wanted, got) in sums.items():
            more = 2 * self._asking.get(group, 1) if got == wanted else 2 * got
            self._asking[group] = max(1, min(MOST_ASKED, more))
            self._stir = self._stir or got > 0

    def _answers(
        self, taken: Sequence[tuple[list[Settlement], Done]], accepted: Sequence[bool | None]
    ) -> Calls:
        calls: Calls = []
        place = 0
        with self._changed:
            for pairs, done in taken:
                applied = list(accepted[place : place + len(pairs)])
                place += len(pairs)
                for (job, outcome), settled in zip(pairs, applied, strict=True):
                    if settled is None:
                        continue
                    receiver = self._receivers.get(job.worker or "")
                    if receiver is not None:
                        receiver.drop(job.id)
                    self.counters.settled(job, outcome, applied=settled)
                if None in applied:  # the shard of some is away: they are sent again
                    left = [at for at, settled in enumerate(applied) if settled is None]
                    later = done if done is _nobody else partial(_complete, done, applied, left)
                    self._settlements.append(([pairs[at] for at in left], later))
                elif done is not _nobody:
                    calls.append(_call(done, [settled is True for settled in applied]))
        return calls

    def _hand_out(
        self,
        asked: Sequence[tuple[Receiver, int]],
        jobs: Sequence[list[AnyJob]],
        version: int,
        calls: Calls,
    ) -> list[AnyJob]:
        """Sends them with the other calls; returns what must not, or cannot be sent."""
        # A pause that came since the claim is in force: what it covers must not start.
        stands = not any(jobs) or version == self._version.number()
        unsent: list[AnyJob] = []
        with self._changed:
            for (receiver, _), some in zip(asked, jobs, strict=True):
                if not some:
                    continue
                if stands and self._receivers.get(receiver.row.id) is receiver:
                    receiver.credits -= len(some)
                    receiver.hold(some)
                    calls.append(_call(receiver.send, some))
                    self.counters.sent(some)
                else:
                    unsent += some
        self.counters.not_sent(unsent)
        return unsent

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for receiver in self._receivers.values():
            while (first := receiver.overdue()) is not None and first[0] < now:
                job, since, limit = receiver.end_overdue(first[1])
                outcome = lapsed(f"the receiver did not settle it within {limit:g} s")
                ended = replace(outcome, started_at=self._broker.clock.now() - (now - since))
                self._settlements.append(([(job, ended)], _nobody))

    def _renew(self) -> None:
        """Keep the receivers that are connected here alive, and recover those of the dead."""
        now = time.monotonic()
        with self._changed:
            due = now - self._renewed_at >= self._own.lease / _RENEWS
            if not self._receivers or not (due or self._stray):
                return
            self._renewed_at = now
            asked_at = self._broker.clock.now()  # for all of them, whoever it was that was asked
            rows = [
                replace(
                    each.row, running=len(each.held), began=tuple(each.held), claimed_at=asked_at
                )
                for each in self._receivers.values()
            ]
        for row in rows:
            if row.id in self._stray:
                self._broker.renew([row], row.began)
        self._stray.clear()
        self._broker.renew([*rows, replace(self._own, claimed_at=asked_at)])
        self._broker.recover(by=self._own.id)

    def _seconds_to_next(self) -> float:
        with self._changed:
            if self._stir:
                return 0.0
            waits = [POLL_SECONDS]
            if self.next_at is not None:
                waits.append(self.next_at - self._broker.clock.now())
            overdue = [each.overdue() for each in self._receivers.values()]
            waits += [first[0] - time.monotonic() for first in overdue if first is not None]
            return max(0.0, min(waits))


def _nobody(applied: list[bool]) -> None:
    """Nobody waits for the answer."""


def _complete(
    done: Done, before: Sequence[bool | None], left: Sequence[int], applied: Sequence[bool]
) -> None:
    """Some were applied before: answer all of them together."""
    answers = [settled is True for settled in before]
    for at, settled in zip(left, applied, strict=True):
        answers[at] = settled
    done(answers)


def _call(function: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: function(value)


def outcome_at(outcome: Outcome, started_at: float | None, ended_at: float) -> Outcome:
    """The outcome of an attempt that has a history row."""
    return replace(outcome, started_at=started_at or ended_at, ended_at=ended_at)
