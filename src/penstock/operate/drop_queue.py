"""Drop a queue: its jobs, its rules and its options go; its history stays.

The queue is paused first, so that nothing starts, and stays paused until it is gone. Interrupted,
or given up because a job does not end, it is dropped again: what is left goes then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Literal

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.protocol import Broker
from penstock.broker.queue_options import QueueOptions, queue_id
from penstock.errors import Refused
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind

Running = Literal["refuse", "cancel"]
DROP_SECONDS = 30.0  # for the jobs that run to end
_LOOK_SECONDS = 0.1
_PAGE = 1000


class Dropped(msgspec.Struct, frozen=True):
    """What a dropped queue had."""

    cancelled: int
    deleted: int
    rules: int


class QueueDrop:
    """One queue of one program, about to be dropped by somebody."""

    def __init__(self, broker: Broker, queue: str, app: str, author: str, reason: str) -> None:
        self._broker = broker
        self._queue = queue
        self._app = app
        self._by = (author, reason)
        self._jobs = Filter(queue=(queue,), app=(app,))

    def run(self, running: Running, seconds: float = DROP_SECONDS) -> Dropped:
        """Drop it. Jobs that run are cancelled, and waited for; or they refuse it."""
        self._check_alone()
        rules = [rule for rule in self._broker.records(Rule) if rule.queue == self._queue]
        self._pause(rules, running)
        cancelled = self._cancel(seconds)
        deleted = self._delete()
        self._clear()
        return Dropped(cancelled, deleted, len(rules))

    def _check_alone(self) -> None:
        counts = [count for count in self._broker.count() if count.queue == self._queue]
        if others := sorted({count.app for count in counts} - {self._app}):
            named = ", ".join(name or "without a name" for name in others)
            raise Refused(
                f"queue {self._queue} also has jobs of other programs ({named}), for which its"
                " rules hold, too: delete this one's with `penstock delete`"
            )

    def _pause(self, rules: list[Rule], running: Running) -> None:
        pause = Rule(RuleKind.PAUSE, self._queue, reason="the queue is being dropped")
        paused = any(rule.id == pause.id for rule in rules)
        if not paused:
            self._broker.put(pause, *self._by)
        # After the pause: nothing more can start.
        held = sum(c.running for c in self._broker.count() if c.queue == self._queue)
        if held and running == "refuse":
            if not paused:
                self._broker.clear(Rule, pause.id, *self._by)
            raise Refused(
                f"queue {self._queue}: {held:,} of its jobs run; wait for them, or drop it with"
                " --cancel-running, which cancels them"
            )

    def _cancel(self, seconds: float) -> int:
        open_states = (State.WAITING, State.READY, State.RUNNING)
        unended = msgspec.structs.replace(self._jobs, state=open_states)
        cancelled, until = 0, time.monotonic() + seconds
        while True:
            for ids in self._pages(unended):
                cancelled += len(self._broker.act("cancel", ids, *self._by))
            left = next(self._pages(unended), None)
            if not left:
                return cancelled
            if time.monotonic() >= until:
                raise Refused(
                    f"queue {self._queue}: {len(left):,} of its jobs have not ended {seconds:g} s"
                    " after they were cancelled; it stays paused: drop it again when they have"
                )
            time.sleep(_LOOK_SECONDS)

    def _delete(self) -> int:
        deleted = 0
        while ids := next(self._pages(self._jobs), None):
            done = len(self._broker.act("delete", ids, *self._by))
            deleted += done
            if not done:
                break
        return deleted

    def _clear(self) -> None:
        broker, queue = self._broker, self._queue
        broker.put(QueueOptions(queue=queue, app=self._app), *self._by)  # so that it can be told
        broker.clear(QueueOptions, queue_id(queue, self._app), *self._by)
        for rule in broker.records(Rule):
            if rule.queue == queue:
                broker.clear(Rule, rule.id, *self._by)

    def _pages(self, wanted: Filter) -> Iterator[list[str]]:
        after = None
        while True:
            page = self._broker.find(wanted, after, _PAGE)
            if page.jobs:
                yield [job.id for job in page.jobs]
            after = page.after
            if after is None:
                return
