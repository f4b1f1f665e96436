"""What a prune and a delete forget; the containers are those of the store.

None of it locks; the broker holds its one lock around every verb.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, MutableMapping
from typing import Any

import msgspec

from penstock.app.clock import AnyClock
from penstock.broker.values import UNNAMED
from penstock.broker.views import Event, Note
from penstock.brokers.memory.containers import PublishedWrite
from penstock.brokers.memory.flows import MemoryFlows
from penstock.enqueue.ids import is_lasting
from penstock.enqueue.secrets import secrets_until, without_kept_secrets
from penstock.job import ENDED, Job, State


class MemoryForgetting(ABC):
    """Whoever inherits has the containers."""

    clock: AnyClock
    jobs: MutableMapping[str, Job[Any]]
    flows: MemoryFlows
    history: list[Event]
    notes: MutableMapping[str, MutableMapping[tuple[str, str], Note]]
    sent: MutableMapping[str, float]
    batches: MutableMapping[str, tuple[int, float]]
    published: MutableMapping[str, PublishedWrite]
    given_up: MutableMapping[str, float]
    sealed_apps: MutableMapping[str, float]

    @abstractmethod
    def give_up(self, gone: Iterable[Job[Any]]) -> None: ...

    def forget_ended(self, before: float, held: Callable[[Event, float], bool]) -> None:
        """Forget what ended before this time; some jobs say themselves how long they stay.

        Rows of the history that are `held` stay, too, and so do the jobs that succeeded in them.
        """
        now = self.clock.now()
        kept = {
            event.job for event in self.history if event.body is not None and held(event, before)
        }
        over: set[str] = set()
        gone: list[Job[Any]] = []
        for job in list(self.jobs.values()):
            if job.keep_until is not None and job.keep_until <= now:
                over.add(job.id)
                gone.append(self.jobs.pop(job.id))
            elif job.state is State.SUCCEEDED and job.id in kept:
                continue
            elif job.keep_until is None and job.ended_at is not None and job.ended_at < before:
                gone.append(self.jobs.pop(job.id))
        not_done = [job for job in gone if job.state is not State.SUCCEEDED]
        self.give_up(not_done)
        self.forget_lasting(not_done)
        self.flows.forget_ended(before)
        self.forget_history(before, held, over)

    def rows_before(self, before: float) -> Iterable[Event]:
        """The rows of the history from before this time."""
        return [event for event in self.history if event.at < before]

    def forget_history(
        self, before: float, held: Callable[[Event, float], bool], over: Collection[str]
    ) -> None:
        """Forget rows from before this time; of jobs that are `over` without body and result."""
        self.history = [
            msgspec.structs.replace(event, body=None, result=None) if event.job in over else event
            for event in self.history
            if event.at >= before or self.stays(event) or held(event, before)
        ]

    def forget_lasting(self, gone: Iterable[Job[Any]]) -> None:
        """Lasting ids of jobs that are gone and were not done: they may come again."""
        for job in gone:
            if is_lasting(job.id) and job.state is not State.SUCCEEDED:
                self.sent.pop(job.id, None)

    def forget_kept_secrets(self) -> None:
        """Forget the secrets of ended jobs whose time to keep them is over."""
        now = self.clock.now()
        for job in self.jobs.values():
            if job.state in ENDED and (secrets_until(job.body) or now + 1) <= now:
                body = without_kept_secrets(job.body)
                self.jobs[job.id] = msgspec.structs.replace(job, body=body)

    def mark_sealed(self, app: str) -> None:
        self.sealed_apps[app] = self.clock.now()

    def forget_old(self, before: float) -> None:
        """Forget what is only a name and a time, and older than this."""
        for times in (self.sealed_apps, self.given_up):
            for name in [name for name, at in times.items() if at < before]:
                del times[name]
        for batch in [batch for batch, (_, at) in self.batches.items() if at < before]:
            del self.batches[batch]
        for write in [name for name, row in self.published.items() if row.at < before]:
            if write.startswith(UNNAMED):  # nobody can ask for it again
                del self.published[write]

    def forget_sent(self, before: float) -> None:
        """Forget ids of jobs that are gone, but those that are remembered for ever."""
        for job_id in self.sent.keys() - self.jobs.keys():
            if self.sent[job_id] < before and not is_lasting(job_id):
                del self.sent[job_id]

    def forget_notes(self) -> None:
        """Forget notes that neither a job nor the history has use for any more."""
        told_of = {event.job for event in self.history}
        for job_id in self.notes.keys() - self.jobs.keys() - told_of:
            del self.notes[job_id]

    def wipe(self, gone: Collection[str]) -> None:
        """Forget what the history knows of the bodies and results of these jobs."""
        for place, event in enumerate(self.history):
            if event.job in gone:
                self.history[place] = msgspec.structs.replace(event, body=None, result=None)

    def stays(self, event: Event) -> bool:
        """Whether the job of this row says itself that it is kept for longer."""
        job = self.jobs.get(event.job or "")
        if job is None or job.keep_until is None or event.body is None:
            return False
        return job.keep_until > self.clock.now()
