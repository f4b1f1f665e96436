"""Shards: stores by name, which of them has a bucket, and which of them does not answer.

A shard that was away is left alone for a moment by calls that can do without it, so that the others
go on at their own pace; calls that need it always try.

The map is each shard's own word about what it has, put together. Buckets move while it is in use: a
verb plans with one map from its first step to its last (`Shards.replanned`), a shard whose map is
newer refuses its writes, and the verb is planned anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

from penstock.broker.move import StaleMap, planned
from penstock.broker.protocol import Broker
from penstock.broker.shard_map import ShardMap
from penstock.broker.traits import Traits
from penstock.brokers.sharded.at_once import answers_of
from penstock.enqueue.ids import bucket_of
from penstock.errors import Refused, StoreFull, StoreUnreachable, UnknownOutcome, WrongUrl

T = TypeVar("T")
P = ParamSpec("P")
Opens = Callable[[bool], Broker]  # True: made where there is none

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 5.0
AWAY = (StoreUnreachable, StoreFull, UnknownOutcome)
MOVING_SECONDS = 2.0  # so long a call waits for a bucket that is on its way
_LOOK_SECONDS = 0.01
_HELP_SECONDS = 0.25  # then whoever waits brings it in: its mover may be gone


class OnItsWay(StaleMap):
    """A bucket left one shard, and is not on the other yet."""

    def __init__(self, bucket: int, to: str) -> None:
        super().__init__(
            f"bucket {bucket} is on its way to shard {to}, and has not come: is that shard away, or"
            " its store an older backup?"
        )
        self.bucket = bucket


class Shard:
    """One store of several; opened when it is first needed, and again if it could not be."""

    def __init__(
        self, name: str, opens: Callable[[], Broker], opened: Broker | None = None
    ) -> None:
        self.name = name
        self.away: str | None = None  # what its last call failed with
        self.traits: Traits | None = None  # of all shards: what whoever opened them has set
        self.monotonic = time.monotonic
        self.epoch: Callable[[], int] = lambda: 0  # of its map, as this thread's call is planned
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

    @property
    def apart(self) -> bool:
        """Whether its store is a server, which works while this process asks others."""
        return self._broker is not None and self._broker.traits.apart

    def write(self, verb: Callable[[Broker], T]) -> T:
        """Call a verb about jobs of its buckets: refused if its map is newer than the caller's."""
        with planned(self.epoch()):
            return self.call(verb)

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


class Routes(NamedTuple):
    """What is known of the shards at one moment: each one's own map, and what follows from all."""

    copies: Mapping[str, ShardMap]
    map: ShardMap
    coming: frozenset[int]  # buckets that left one shard, and are not on the other yet

    @classmethod
    def of(cls, copies: Mapping[str, ShardMap], known: ShardMap) -> Routes:
        joined = known
        for copy in copies.values():
            joined = joined.joined(copy)
        coming: set[int] = set()
        for name, copy in copies.items():
            if copy.versions != joined.versions or copy.ranges != joined.ranges:
                both = zip(joined.of_each, copy.of_each, strict=True)
                coming.update(
                    bucket
                    for bucket, ((owner, version), (_, known)) in enumerate(both)
                    if owner == name and known < version
                )
        return cls(copies, joined, frozenset(coming))


class Shards:
    """All shards of one map.

    `more` names the shards that the file names by now; `finish` brings in what is on its way.
    """

    def __init__(
        self,
        shards: Mapping[str, Shard],
        copies: Mapping[str, ShardMap],
        shard_map: ShardMap,
        more: Callable[[ShardMap], Mapping[str, Shard]] = lambda _: {},
    ) -> None:
        self.named: dict[str, Shard] = {}
        self.finish: Callable[[], object] = lambda: None
        self.moving_seconds = MOVING_SECONDS
        self.joins: Callable[[Shard], object] = lambda _: None  # told of a shard that comes later
        self._more = more
        self._plan = Routes.of(copies, shard_map)
        self._own = threading.local()
        self._lock = threading.RLock()
        self._add(shards)

    def _add(self, shards: Mapping[str, Shard]) -> None:
        both = self.named | dict(shards)
        self.named = {name: both[name] for name in sorted(both)}
        for name, shard in shards.items():
            shard.epoch = lambda name=name: self._epoch_of(name)
            self.joins(shard)

    @property
    def plan(self) -> Routes:
        """What this thread's call is planned with; between calls the newest."""
        return getattr(self._own, "plan", None) or self._plan

    @property
    def map(self) -> ShardMap:
        return self.plan.map

    @property
    def newest_plan(self) -> Routes:
        """What the next call is planned with."""
        return self._plan

    @property
    def newest(self) -> ShardMap:
        """The newest map, whatever this thread's call is planned with."""
        return self._plan.map

    def join_named(self) -> None:
        """Have shards join that the file names by now: cheap enough before every claim."""
        if added := self._more(self._plan.map):
            with self._lock:
                self._add(added)

    def _epoch_of(self, name: str) -> int:
        copy = self.plan.copies.get(name)
        # Nothing is known of a shard that was away: it refuses until its own map was read.
        return -1 if copy is None else copy.epoch

    def replanned(self, verb: Callable[P, T]) -> Callable[P, T]:
        """A verb, planned anew where a bucket moved in the middle of it."""

        @wraps(verb)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.patience() as patience:
                while True:
                    try:
                        return verb(*args, **kwargs)
                    except StaleMap as stale:
                        patience(stale)

        return call

    @contextmanager
    def patience(self) -> Generator[Callable[[StaleMap], None]]:
        """Plan with one map within this; what it yields plans anew, or raises once it is enough."""
        before, began = getattr(self._own, "plan", None), time.monotonic()
        self._own.plan = self._plan
        helped = False

        def again(stale: StaleMap) -> None:
            nonlocal helped
            waited = time.monotonic() - began
            self.look_again()
            if isinstance(stale, OnItsWay) and stale.bucket in self._plan.coming:
                if waited >= self.moving_seconds:
                    raise StoreUnreachable(f"{stale}. Nothing was changed: try again") from stale
                if not helped and waited > _HELP_SECONDS:
                    helped = True
                    self.finish()
                time.sleep(_LOOK_SECONDS)
            self._own.plan = self._plan

        try:
            yield again
        finally:
            self._own.plan = before

    def look_again(self, *, at_all: bool = False) -> bool:
        """Read the map of every shard that answers, and the file; whether anything moved.

        With `at_all` one that does not answer is an error.
        """
        with self._lock:
            self.join_named()
            before = self._plan
            copies = dict(before.copies)
            for shard in self.all:
                try:
                    found = shard.call(lambda store: store.records(ShardMap))
                except AWAY:
                    if at_all:
                        raise
                    continue
                if found:
                    copies[shard.name] = found[0]
            if copies == before.copies:
                return False
            self._plan = Routes.of(copies, before.map)
            return self._plan.map != before.map or self._plan.coming != before.coming

    @property
    def all(self) -> list[Shard]:
        return list(self.named.values())

    def of(self, job_id: str) -> Shard:
        """The shard that a job's id leads to; of what is no id, any: its store says so."""
        return self.of_bucket(bucket_in(job_id))

    def of_bucket(self, bucket: int) -> Shard:
        plan = self.plan
        name = plan.map.owner(bucket)
        if bucket in plan.coming:
            raise OnItsWay(bucket, name)
        if name not in self.named:
            self.look_again()
        if name not in self.named:
            raise _unnamed(bucket, name)
        return self.named[name]

    def others(self, shard: Shard) -> list[Shard]:
        return [each for each in self.all if each is not shard]

    def grouped(self, ids: Iterable[str]) -> dict[Shard, list[str]]:
        """These ids by shard."""
        found: dict[Shard, list[str]] = {}
        for job_id in ids:
            found.setdefault(self.of(job_id), []).append(job_id)
        return found

    def reached(self, verb: Callable[[Broker], T]) -> dict[str, T]:
        """The answers of all that answer, by name; the first error if none does."""
        self.join_named()
        return self.reached_by(dict.fromkeys(self.named, verb))

    def reached_by(self, verbs: Mapping[str, Callable[[Broker], T]]) -> dict[str, T]:
        """As `reached`, for a question to each. Stores that are servers are asked at once."""
        known = [self.named[name] for name in verbs]
        # Where all rest, all are asked: somebody has to find out that one is back.
        asked = [each for each in known if not each.resting] or known
        questions = {each.name: partial(each.call, verbs[each.name]) for each in asked}
        heard: dict[str, T | BaseException] = {}
        if len(apart := {each.name: questions.pop(each.name) for each in asked if each.apart}) > 1:
            heard |= answers_of(apart)
        else:
            questions |= apart
        for name, question in questions.items():
            try:
                heard[name] = question()
            except AWAY as error:
                heard[name] = error
        return _heard(heard, [each.name for each in asked])

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
        """The answer of one shard: of what all have that have buckets."""
        errors: list[Exception] = []
        having = self.map.names
        # A new one gets it with its first bucket.
        asked = [shard for shard in self.all if shard.name in having] or self.all
        for shard in sorted(asked, key=lambda shard: shard.resting):
            try:
                return shard.call(verb)
            except AWAY as error:
                errors.append(error)
        raise errors[0]

    def every(self, verb: Callable[[Broker], T], *, fenced: bool = False) -> dict[str, T]:
        """The answers of all shards; an error names the one that did not answer."""
        if not self.named.keys() >= set(self.map.names):
            self.join_named()
            for name, [(first, _), *_] in self.map.buckets().items():
                if name not in self.named:
                    raise _unnamed(first, name)
        return {shard.name: shard.write(verb) if fenced else shard.call(verb) for shard in self.all}

    def missing(self) -> tuple[str, ...]:
        """A sentence for each shard that did not answer when it was last asked."""
        return tuple(f"shard {s.name} is away: {s.away}" for s in self.all if s.away is not None)

    def close(self) -> None:
        for shard in self.all:
            shard.close()


def _unnamed(bucket: int, name: str) -> Refused:
    return Refused(
        f"bucket {bucket} is on shard {name!r} by now, which the file of shards does not name: add "
        "its URL under that name"
    )


def _heard(heard: Mapping[str, T | BaseException], names: Iterable[str]) -> dict[str, T]:
    """The answers without those of shards that are away; another error is raised."""
    answers: dict[str, T] = {}
    errors: list[Exception] = []
    for name in names:
        answer = heard[name]
        if isinstance(answer, AWAY):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            answers[name] = answer
    if not answers:
        raise errors[0]
    return answers


def bucket_in(job_id: str) -> int:
    """The bucket of an id; of what is no id, any."""
    try:
        return bucket_of(job_id)
    except ValueError:
        return 0


def any_of(answers: Mapping[str, Any]) -> Any:
    """One of several answers that are all alike."""
    return next(iter(answers.values()))
