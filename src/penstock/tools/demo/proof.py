"""The demo's check: the history against a file that the tasks wrote themselves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from penstock.broker.position import BEGINNING
from penstock.broker.protocol import Broker
from penstock.broker.views import Event
from penstock.job import ENDED

PAGE = 10_000


class Proof(msgspec.Struct, frozen=True):
    """What became of the jobs of the demo."""

    enqueued: int
    ended: int  # different jobs that ended
    succeeded: int
    lost: int  # enqueued, but neither ended nor still in the store
    settled_twice: int  # ended more than once, without a retry by hand in between
    started: int  # starts of a task, by their own file
    ran_again: int  # started in the killed process, not settled there, and started again
    retried: int  # attempts that failed and were retried

    @property
    def holds(self) -> bool:
        return self.lost == 0 and self.settled_twice == 0 and self.ended == self.enqueued


def whole_history(broker: Broker) -> list[Event]:
    rows: list[Event] = []
    while page := broker.history(after=rows[-1].position if rows else BEGINNING, limit=PAGE):
        rows += page
    return rows


def prove(broker: Broker, enqueued: int, starts_file: Path, killed: set[int]) -> Proof:
    """Count what became of the jobs; `killed` are the processes that were killed."""
    history = whole_history(broker)
    attempts = [event for event in history if event.kind == "attempt"]
    ends = Counter(event.job for event in attempts if event.state in ENDED)
    by_hand = Counter(event.job for event in history if event.kind == "retry")
    standing = sum(count.total for count in broker.count())
    starts = [line.split() for line in starts_file.read_text(encoding="ascii").splitlines()]
    settled = {
        (event.job, event.attempt)
        for event in attempts
        if event.state in ENDED or event.reason == "error"
    }
    cut_off = {
        job
        for job, attempt, pid in starts
        if int(pid) in killed and (job, int(attempt)) not in settled
    }
    began_elsewhere = {job for job, _, pid in starts if int(pid) not in killed}
    last = {event.job: event.state for event in attempts}
    return Proof(
        enqueued=enqueued,
        ended=len(ends),
        succeeded=sum(1 for state in last.values() if state == "succeeded"),
        lost=enqueued - len(ends) - standing,
        settled_twice=sum(1 for job, times in ends.items() if times > 1 + by_hand[job]),
        started=len(starts),
        ran_again=len(cut_off & began_elsewhere),
        retried=sum(1 for event in attempts if event.state == "ready" and event.reason == "error"),
    )
