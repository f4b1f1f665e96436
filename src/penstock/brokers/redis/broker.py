"""RedisBroker: each verb as one change of the store, and those that need none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from penstock.app.clock import AnyClock
from penstock.broker.records import Record
from penstock.broker.traits import ONE_PLACE, Traits
from penstock.broker.values import Batch, Enqueued
from penstock.brokers.redis.address import parse_address
from penstock.brokers.redis.atomic import Changes
from penstock.brokers.redis.change import RedisChange
from penstock.brokers.redis.clock import lease_clock, server_clock
from penstock.brokers.redis.connection import ServerCalls
from penstock.brokers.redis.core import RedisCore
from penstock.brokers.redis.counting import queue_bytes
from penstock.brokers.redis.durability import check_durability, places_of
from penstock.brokers.redis.errors import Unanswered
from penstock.brokers.redis.hot import HotPaths
from penstock.brokers.redis.rules_version import FRESH_SECONDS, RulesVersion
from penstock.brokers.redis.scripts import Script
from penstock.brokers.redis.store import RedisStore
from penstock.brokers.redis.waiting import Hints
from penstock.errors import PenstockError, UnknownOutcome, WrongUrl
from penstock.flows.flow import Flow
from penstock.job import Job, Parcel
from penstock.rules.rule import Rule

R = TypeVar("R", bound=Record)

POLL_SECONDS = 2.0
TOUCH = Script("touch")


class RedisBroker:
    """A Broker over the keys of one prefix in a Redis or Valkey server."""

    def __init__(self, url: str, clock: AnyClock | None = None, *, create: bool = True) -> None:
        address = parse_address(url)
        self.server = server = ServerCalls(address)
        check_durability(server)
        if not create and not server.call("EXISTS", f"{server.prefix}meta"):
            raise WrongUrl(
                f"the store {address.where} does not exist: a worker or the first enqueue makes it"
            )
        self.clock = clock or server_clock(server)
        self._hints = hints = Hints(server)
        # On a clock of a test's own nothing takes time.
        fresh_seconds = FRESH_SECONDS if clock is None else 0.0
        self._rules_version = RulesVersion(server, fresh_seconds=fresh_seconds)
        self.traits = Traits(
            name="the Redis store",
            capabilities=frozenset({*ONE_PLACE - {"scan as one look"}, "quotas"}),
            apart=True,
            retention=address.retention,
            poll_seconds=lambda: POLL_SECONDS,
            rules_version=self._rules_version,
            sealed_apps=self._sealed_apps,
            mark_sealed=self._mark_sealed,
            places=lambda: places_of(server),
            queue_bytes=lambda: queue_bytes(RedisChange(server), self.clock.now()),
        )
        self._changes = changes = Changes(server, lease_clock(self.clock), self.traits)
        if create:
            self._look().id  # noqa: B018  the first one makes it

        # Core
        self._hot = hot = HotPaths(
            server,
            lease_clock(self.clock),
            self.traits,
            enqueue=changes.atomic(RedisCore.enqueue),
            claim=changes.atomic(RedisCore.claim),
            settle=changes.atomic(RedisCore.settle),
            turns=changes.turns.queues,
        )
        self.claim = hot.claim
        self.settle = hot.settle
        self.renew = changes.atomic(RedisCore.renew)
        self.note = changes.atomic(RedisCore.note)
        self.wait = hints.wait
        self.wake = hints.wake
        self.recover = changes.atomic(RedisCore.recover)
        self.gauge = changes.atomic(RedisCore.gauge)
        self.get = changes.atomic(RedisCore.get)
        self.get_many = changes.atomic(RedisCore.get_many)
        self.count = changes.atomic(RedisCore.count)
        self.history = changes.atomic(RedisCore.history)
        self.why = changes.atomic(RedisCore.why)

        # Control
        self.act = changes.atomic(RedisCore.act)
        self.signal = changes.atomic(RedisCore.signal)
        self._put = changes.atomic(RedisCore.put)
        self._clear = changes.atomic(RedisCore.clear)
        self.decide_schedule = changes.atomic(RedisCore.decide_schedule)
        self.audit = changes.atomic(RedisCore.audit)

        # Look
        self.find = changes.atomic(RedisCore.find)
        self.notes = changes.atomic(RedisCore.notes)
        self.flow = changes.atomic(RedisCore.flow)
        self.flows = changes.atomic(RedisCore.flows)
        self.outputs = changes.atomic(RedisCore.outputs)
        self.records = changes.atomic(RedisCore.records)
        self.workers = changes.atomic(RedisCore.workers)

        # Bulk
        self.stage = changes.atomic(RedisCore.stage)
        self.commit_write = changes.atomic(RedisCore.commit_write)
        self.discard = changes.atomic(RedisCore.discard)
        self.reach = changes.atomic(RedisCore.reach)
        self.slices = changes.atomic(RedisCore.slices)
        self.scan = changes.atomic(RedisCore.scan)

        # Capabilities
        self.limit_uses = changes.atomic(RedisCore.limit_uses)

    def enqueue(
        self,
        jobs: Sequence[Job[Any] | Parcel],
        *,
        batch: Batch | None = None,
        connection: Any = None,
        flow: Flow | None = None,
    ) -> Enqueued:
        def send() -> Enqueued:
            answer = self._hot.enqueue(jobs, batch=batch, connection=connection, flow=flow)
            if self.server.address.replicas and (answer.known or not jobs):
                self.server.script(TOUCH)  # nothing was written now, but perhaps just before
            return answer

        try:
            # A batch counts: sent again, it would be refused.
            return send() if batch is not None else _sent_again(send)
        except Unanswered as error:
            raise UnknownOutcome(
                f"{error}. Whether these jobs are stored is not known; to send them again is safe",
                jobs,
            ) from error

    def prune(self, before: float) -> int:
        """In parts: a script holds up everybody else for as long as it runs."""
        rows = 0
        while True:
            deleted, unfinished = self._changes.run(partial(_prune_part, before=before))
            rows += deleted
            if not unfinished:
                return rows

    def put(self, record: R, author: str = "", reason: str = "") -> R:
        kept: R = self._put(record, author, reason)
        if isinstance(record, Rule):
            self._rules_version.wait_until_known()
        return kept

    def clear(self, kind: type[Record], record_id: str, author: str = "", reason: str = "") -> bool:
        return self._clear(kind, record_id, author, reason)

    def close(self) -> None:
        self._hints.close()
        self.server.close()

    def _look(self) -> RedisStore:
        return RedisStore(self.clock, RedisChange(self.server))

    def _sealed_apps(self) -> frozenset[str]:
        names = self.server.call("HKEYS", f"{self.server.prefix}sealed")
        return frozenset(name.decode() for name in names)

    def _mark_sealed(self, app: str) -> None:
        self._changes.run(partial(_mark_sealed, app=app))


def _mark_sealed(core: RedisCore, app: str) -> None:
    core.stored.mark_sealed(app)


def _prune_part(core: RedisCore, before: float) -> tuple[int, bool]:
    return core.prune(before), core.stored.past.unfinished


def _sent_again(send: Callable[[], Enqueued]) -> Enqueued:
    """Send jobs; if the answer is lost, once more: what was stored the first time is known."""
    try:
        return send()
    except Unanswered:
        pass
    try:
        return send()
    except PenstockError as error:  # any: the first call may have stored them
        raise Unanswered(str(error)) from error
