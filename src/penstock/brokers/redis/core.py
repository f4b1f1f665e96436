"""RedisCore: the verbs of the memory broker over the containers of one change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from penstock.app.clock import AnyClock
from penstock.broker.traits import Traits
from penstock.broker.values import Enqueued
from penstock.brokers.redis.reads import RedisReads
from penstock.brokers.redis.staging import RedisStaging
from penstock.brokers.redis.store import RedisStore
from penstock.job import Job, Lane
from penstock.rules.queue_turns import QueueTurns


class LastTurns(NamedTuple):
    """Whose turn was last in the claims of this process."""

    keys: dict[Lane, str]
    queues: QueueTurns


class RedisCore(RedisStaging, RedisReads):
    """Every verb, once; what it did counts when its change is committed."""

    def __init__(
        self, clock: AnyClock, store: RedisStore, traits: Traits, turns: LastTurns
    ) -> None:
        super().__init__(clock, traits.retention, store)
        self.traits = traits
        self.stored = store
        self._turns.last = turns.keys
        self._claims.queue_turns = turns.queues

    def enqueue(self, *args: Any, **kwargs: Any) -> Enqueued:
        self.stored.change.adds = True
        return super().enqueue(*args, **kwargs)

    def _report_end(self, job: Job[Any]) -> None:
        ended: Callable[[Job[Any]], None] | None = self.traits.ended
        if ended is not None:
            self.stored.change.after.append(partial(ended, job))
