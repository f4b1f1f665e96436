"""Verbs as one change each: tried again where another was quicker, then under a short lock."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.app.clock import AnyClock
from penstock.broker.call_deadline import call_seconds
from penstock.broker.traits import Traits
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.core import LastTurns, RedisCore
from penstock.brokers.redis.scripts import Script
from penstock.brokers.redis.store import RedisStore
from penstock.errors import PenstockError, StoreUnreachable
from penstock.rules.queue_turns import QueueTurns

P = ParamSpec("P")
R = TypeVar("R")

UNLOCK = Script("unlock")
FREE_TRIES = 3  # then under the lock
LOCK_MS = 5000  # how long the lock outlives whoever holds it
_MOST_SECONDS = 60.0
_PAUSE = 0.002


class Changes:
    """Makes a core for each try of a verb, and commits what it did."""

    def __init__(self, server: ServerCalls, clock: AnyClock, traits: Traits) -> None:
        self._server = server
        self._clock = clock
        self._traits = traits
        self.turns = LastTurns({}, QueueTurns())

    def atomic(self, verb: Callable[Concatenate[RedisCore, P], R]) -> Callable[P, R]:
        """A verb of the core as one of the broker."""

        @wraps(verb)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return self.run(lambda core: verb(core, *args, **kwargs))

        return call

    def run(self, decide: Callable[[RedisCore], R]) -> R:
        """Read, decide and write as one; again until nobody else came between."""
        until = time.monotonic() + call_seconds(_MOST_SECONDS)
        tries = 0
        while time.monotonic() < until or tries == 0:
            tries += 1
            if tries <= FREE_TRIES:
                done, answer = self._try(decide, "")
            else:
                done, answer = self._try_locked(decide, until)
            if done:
                return answer
            time.sleep(random.uniform(0, _PAUSE) * min(tries, 10))  # noqa: S311  only spreads tries
        raise StoreUnreachable(
            f"the store {self._server.where}: others change the same jobs without a pause; nothing "
            "was written. Try again"
        )

    def _try_locked(self, decide: Callable[[RedisCore], R], until: float) -> tuple[bool, R]:
        token = os.urandom(8).hex()
        key = f"{self._server.prefix}lock"
        while not self._server.call("SET", key, token, "NX", "PX", LOCK_MS):
            if time.monotonic() > until:
                raise StoreUnreachable(
                    f"the store {self._server.where} is locked by another; nothing was written"
                )
            time.sleep(random.uniform(_PAUSE, 4 * _PAUSE))  # noqa: S311
        try:
            return self._try(decide, token)
        finally:
            self._server.script(UNLOCK, token)

    def _try(self, decide: Callable[[RedisCore], R], token: str) -> tuple[bool, Any]:
        change = RedisChange(self._server, token, self._clock.now())
        core = RedisCore(self._clock, RedisStore(self._clock, change), self._traits, self.turns)
        try:
            answer = decide(core)
        except StoreUnreachable:
            raise
        except Exception as error:
            # Reads at several moments may disagree: then the decision was about nothing.
            if change.holds():
                raise
            if isinstance(error, PenstockError | LookupError | ValueError | AssertionError):
                return False, None
            raise
        if not change.commit():
            return False, None
        for act in change.after:
            act()
        return True, answer
