"""Shards: stores by name, which of them has a bucket, and which of them does not answer.

A shard that was away is left alone for a moment by calls that can do without it, so that the others
go on at their own pace; calls that need it always try.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from penstock.broker.protocol import Broker
from penstock.broker.shard_map import ShardMap
from penstock.broker.traits import Traits
from penstock.enqueue.ids import bucket_of
from penstock.errors import StoreFull, StoreUnreachable, UnknownOutcome, WrongUrl

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
AWAY = (StoreUnreachable, StoreFull, UnknownOutcome)


class Shard:
    """One store of several; opened when it is first needed, and again if it could not be."""

    def __init__(
        self, name: str, opens: Callable[[], Broker], opened: Broker | None = None
    ) -> None:
        self.name = name
        self.away: str | None = None  # what its last call failed with
        self.traits: Traits | None = None  # of all shards: what whoever opened them has set
        self.monotonic = time.monotonic
        self._opens = opens
        self._broker = opened
        self._lock = threading.Lock()
        self._ask_at = 0.0
        self._pause = _FIRST_PAUSE

    def broker(self) -> Broker:
        """The open store; whether it is the right one was looked at."""
        with self._lock:
            if self._broker is None:
                self._broker = self._opens()
            return self._broker

    @property
    def opened(self) -> Broker | None:
        return self._broker

    @property
    def resting(self) -> bool:
        """Whether it did not answer a moment ago."""
        return self.away is not None and self.monotonic() < self._ask_at

    def call(self, verb: Callable[[Broker], T]) -> T:
        """Call a verb of this store; an error that is the store's says which shard it is."""
        try:
            store = self.broker()
            if self.traits is not None:
                store.traits.relaxed = self.traits.relaxed
                store.traits.ended = self.traits.ended
            answer = verb(store)
        except UnknownOutcome as error:
            self._failed(error)
            raise UnknownOutcome(f"shard {self.name}: {error}", error.jobs) from error
        except AWAY as error:
            self._failed(error)
            kinds = (StoreFull, WrongUrl)
            kind = next((each for each in kinds if isinstance(error, each)), StoreUnreachable)
            raise kind(f"shard {self.name}: {error}") from error
        if self.away is not None:
            self.away, self._pause = None, _FIRST_PAUSE
        return answer

    def _failed(self, error: Exception) -> None:
        self.away = str(error)
        self._ask_at = self.monotonic() + self._pause
        self._pause = min(_LONGEST_PAUSE, self._pause * 2)

    def close(self) -> None:
        with self._lock:
            broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()


class Shards:
    """All shards of one map."""

    def __init__(self, shards: Mapping[str, Shard], shard_map: ShardMap) -> None:
        self.named = {name: shards[name] for name in sorted(shards)}
        self.map = shard_map

    @property
    def all(self) -> list[Shard]:
        return list(self.named.values())

    def of(self, job_id: str) -> Shard:
        """The shard that a job's id leads to; of what is no id, any: its store says so."""
        try:
            bucket = bucket_of(job_id)
        except ValueError:
            bucket = 0
        return self.of_bucket(bucket)

    def of_bucket(self, bucket: int) -> Shard:
        return self.named[self.map.owner(bucket)]

    def grouped(self, ids: Iterable[str]) -> dict[Shard, list[str]]:
        """These ids by shard."""
        found: dict[Shard, list[str]] = {}
        for job_id in ids:
            found.setdefault(self.of(job_id), []).append(job_id)
        return found

    def reached(self, verb: Callable[[Broker], T]) -> dict[str, T]:
        """The answers of all that answer, by name; the first error if none does."""
        answers: dict[str, T] = {}
        errors: list[Exception] = []
        # Where all rest, all are asked: somebody has to find out that one is back.
        asked = [shard for shard in self.all if not shard.resting] or self.all
        for shard in asked:
            try:
                answers[shard.name] = shard.call(verb)
            except AWAY as error:
                errors.append(error)
        if not answers:
            raise errors[0]
        return answers

    def skips(self, shard: Shard) -> bool:
        """Whether a call that can do without this shard leaves it alone for now."""
        return shard.resting and not all(each.resting for each in self.all)

    def unless_away(self, shard: Shard, verb: Callable[[Broker], T], otherwise: T) -> T:
        """The answer of a shard; if it is away something else, unless all are."""
        try:
            return shard.call(verb)
        except AWAY:
            if all(each.away is not None for each in self.all):
                raise
            return otherwise

    def first(self, verb: Callable[[Broker], T]) -> T:
        """The answer of one shard, any: of what all have."""
        errors: list[Exception] = []
        for shard in sorted(self.all, key=lambda shard: shard.resting):
            try:
                return shard.call(verb)
            except AWAY as error:
                errors.append(error)
        raise errors[0]

    def every(self, verb: Callable[[Broker], T]) -> dict[str, T]:
        """The answers of all shards; an error names the one that did not answer."""
        return {shard.name: shard.call(verb) for shard in self.all}

    def missing(self) -> tuple[str, ...]:
        """A sentence for each shard that did not answer when it was last asked."""
        return tuple(f"shard {s.name} is away: {s.away}" for s in self.all if s.away is not None)

    def close(self) -> None:
        for shard in self.all:
            shard.close()


def any_of(answers: Mapping[str, Any]) -> Any:
    """One of several answers that are all alike."""
    return next(iter(answers.values()))
