"""Stores in memory that can be away, lose an answer, or see their caller killed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.app.clock import AnyClock
from penstock.broker.protocol import Broker
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded import ShardedBroker, open_sharded
from penstock.enqueue.ids import in_bucket
from penstock.errors import StoreUnreachable, UnknownOutcome
from penstock.job import Job
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_job

IN_A, IN_B = 0, 1023  # buckets of the first shard and of the last
VERBS = (
    *("enqueue", "claim", "settle", "renew", "recover", "prune", "gauge", "get", "count"),
    *("history", "act", "signal", "put", "clear", "records", "find", "workers", "audit"),
    *("stage", "commit_write", "discard", "reach", "slices"),
    *("take_out", "bring_in", "limit_uses"),
)


class Killed(BaseException):
    """The process that called is gone."""


class Unplugged(MemoryBroker):
    """A store in memory; `away` and the other switches make its next calls fail."""

    def __init__(self, clock: AnyClock) -> None:
        super().__init__(clock)
        self.away = False
        self.lose = ""  # this verb is carried out, and its answer is lost
        self.cursed = False  # no outcome can be stored
        self.calls: list[str] = []
        self.kill_at: int | None = None  # the caller is killed after so many calls
        self.meanwhile: Callable[[], object] | None = None  # done by others before the next call
        for verb in VERBS:
            setattr(self, verb, partial(self._called, verb, getattr(self, verb)))

    def _called(self, verb: str, carry_out: Any, *args: Any, **named: Any) -> Any:
        if self.away:
            raise StoreUnreachable("nobody answers")
        if self.kill_at is not None:
            if self.kill_at <= 0:
                raise Killed
            self.kill_at -= 1
        if self.meanwhile is not None:
            others, self.meanwhile = self.meanwhile, None
            others()
        self.calls.append(verb)
        if self.cursed and (verb == "settle" or (verb == "claim" and len(args) > 1 and args[1])):
            raise ValueError("this result cannot be stored")
        answer = carry_out(*args, **named)
        if self.lose == verb:
            self.lose = ""
            if verb == "enqueue":  # as a store says it
                raise UnknownOutcome("the answer was lost", args[0])
            raise StoreUnreachable("the answer was lost")
        return answer


def sharded(
    clock: AnyClock, *stores: Broker, claim_from: frozenset[str] | None = None
) -> ShardedBroker:
    """These stores as shards a, b and so on."""
    opens = {name: partial(_same, store) for name, store in zip("abcd", stores, strict=False)}
    return open_sharded(opens, clock, claim_from=claim_from)


def _same(store: Broker, create: bool) -> Broker:
    del create
    if getattr(store, "away", False):
        raise StoreUnreachable("nobody answers")
    return store


def job_in(clock: Clock, bucket: int, **fields: Any) -> Job[Any]:
    job = a_job(clock, **fields)
    return Job(task=job.task, id=in_bucket(job.id, bucket), **fields)


def ids_in(store: Broker, jobs: Sequence[Job[Any]]) -> list[str]:
    """Which of these jobs this store has."""
    return [job.id for job in jobs if store.get_many([job.id])]
