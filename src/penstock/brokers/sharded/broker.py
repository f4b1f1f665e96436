"""ShardedBroker: its parts, and which of them does each verb.

A verb about one job or flow goes to the shard that its id leads to. Looks are merged, rules are
put on all shards, claims go round. Each shard keeps every promise of a store within its buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from penstock.app.clock import AnyClock
from penstock.broker.checks import check_action
from penstock.broker.protocol import Broker
from penstock.broker.quota import holds_quotas
from penstock.broker.traits import Capability, Traits
from penstock.broker.values import Action
from penstock.brokers.sharded.bulk import ShardedScans
from penstock.brokers.sharded.claiming import ShardedClaims
from penstock.brokers.sharded.enqueuing import ShardedIntake
from penstock.brokers.sharded.looks import ShardedLooks
from penstock.brokers.sharded.misplaced import Misplaced
from penstock.brokers.sharded.moving import ShardedMoves
from penstock.brokers.sharded.quotas import LOOK_SECONDS, Quotas
from penstock.brokers.sharded.records import ShardedRecords
from penstock.brokers.sharded.shards import AWAY, Shard, Shards, bucket_in
from penstock.brokers.sharded.staging import ShardedStaging
from penstock.brokers.sharded.waiting import ShardedWaiting
from penstock.errors import StoreUnreachable
from penstock.rules.rule import Rule

# What shards can do as far as each of them can.
_OVER_SHARDS: frozenset[Capability] = frozenset({"bulk", "scan as one look"})


class ShardedBroker:
    """A Broker over several stores."""

    def __init__(
        self,
        shards: Shards,
        clock: AnyClock | None = None,
        claim_from: frozenset[str] | None = None,
    ) -> None:
        self.shards = shards
        opened = [broker for shard in shards.all if (broker := shard.opened) is not None]
        self.clock = clock or opened[0].clock
        self._key: bytes | None = None
        self._waiting = ShardedWaiting(shards)
        # On a clock of a test's own nothing takes time.
        look_seconds = LOOK_SECONDS if clock is None else 0.0
        self.quotas = quotas = Quotas(shards, self.clock.now, self._rules_version, look_seconds)
        records = ShardedRecords(shards, quotas, self.clock.now)
        misplaced = Misplaced(shards, lambda: records.rules(self._rules_version()))
        looks = ShardedLooks(shards, quotas, self.clock.now)
        claims = ShardedClaims(shards, misplaced, quotas, self.clock.monotonic, claim_from)
        self.traits = Traits(
            name=f"the shards {', '.join(shards.named)}",
            capabilities=_capabilities(opened),
            apart=any(broker.traits.apart for broker in opened),
            retention=min(broker.traits.retention for broker in opened),
            poll_seconds=self._poll_seconds,
            digest_key=self._digest_key,
            sealed_apps=self._sealed_apps,
            mark_sealed=self._mark_sealed,
            rules_version=self._rules_version,
            places=self._places,
            missing=shards.missing,
            place_of=lambda job_id: shards.of(job_id).name,
        )
        shards.joins = self._join
        for shard in shards.all:
            self._join(shard)
        self.moves = ShardedMoves(shards, quotas)
        shards.finish = self.moves.finish
        self._intake = intake = ShardedIntake(shards, misplaced, self.traits, self.clock.now)
        self._staging = staging = ShardedStaging(shards, misplaced, self.clock.now)
        scans = ShardedScans(shards)
        self._recover = claims.recover
        anew = shards.replanned

        # Core
        self.enqueue = anew(intake.enqueue)
        self.claim = claims.claim
        self.settle = claims.settle
        self.renew = claims.renew
        self.note = anew(claims.note)
        self.wait = self._waiting.wait
        self.wake = self._waiting.wake
        self.get = anew(looks.get)
        self.get_many = anew(looks.get_many)
        self.count = looks.count
        self.history = looks.history
        self.act = anew(self._act)
        self.signal = anew(self._signal)
        self.why = anew(looks.why)

        # Control
        self.put = anew(records.put)
        self.clear = anew(records.clear)
        self.decide_schedule = anew(records.decide_schedule)

        # Look
        self.find = looks.find
        self.notes = anew(looks.notes)
        self.flow = anew(looks.flow)
        self.flows = looks.flows
        self.outputs = anew(looks.outputs)
        self.records = records.records
        self.workers = looks.workers

        # Bulk
        self.stage = anew(staging.stage)
        self.commit_write = staging.commit_write
        self.discard = staging.discard
        self.reach, self.slices, self.scan = scans.reach, scans.slices, scans.scan

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        if dead is None:
            self.moves.finish()
            self._intake.finish()
            self._staging.finish()
        recovered = self._recover(by, dead, started)
        if dead is None:
            self.quotas.deal_fairly()
        return recovered

    def prune(self, before: float) -> int:
        self._staging.finish()  # what nobody commits for a day is forgotten
        return sum(self.shards.reached(lambda store: store.prune(before)).values())

    def gauge(self) -> int:
        return sum(self.shards.reached(lambda store: store.gauge()).values())

    def _act(
        self,
        action: Action,
        ids: Sequence[str] = (),
        author: str = "",
        reason: str = "",
        *,
        flow: str | None = None,
        part_of: str | None = None,
        secrets: Mapping[str, Any] | None = None,
    ) -> list[str]:
        """One transaction on each shard; where one is away the others are done, and it is named."""
        check_action(action)
        words: dict[str, Any] = {"part_of": part_of, "secrets": secrets}
        if flow is not None:
            home = self.shards.of(flow)
            return home.write(
                lambda store: store.act(action, ids, author, reason, flow=flow, **words)
            )
        done: list[str] = []
        errors: list[Exception] = []
        for shard, some in self.shards.grouped(ids).items():
            try:
                done += shard.write(_acting(action, some, (author, reason), words))
                if action == "delete":  # jobs that succeeded stayed where that was written
                    done += self._forget_elsewhere(shard, some, done, (author, reason), words)
            except AWAY as error:
                errors.append(error)
        if errors:
            raise StoreUnreachable(
                f"{errors[0]}. Of {len(ids)} jobs {len(done)} were changed; asked again, the rest "
                "follows"
            ) from errors[0]
        return done

    def _signal(self, name: str, value: bytes, author: str = "", reason: str = "") -> list[str]:
        """Whoever waits on any shard hears; refused while one is away, which may have some."""
        self.shards.every(lambda store: store.records(Rule))
        for bucket in sorted(self.shards.plan.coming)[:1]:
            self.shards.of_bucket(bucket)  # what is on its way hears nothing: wait for it
        heard = self.shards.every(
            lambda store: store.signal(name, value, author, reason), fenced=True
        )
        return [job_id for ids in heard.values() for job_id in ids]

    def _forget_elsewhere(
        self,
        shard: Shard,
        ids: Sequence[str],
        done: Sequence[str],
        said: tuple[str, str],
        words: Mapping[str, Any],
    ) -> list[str]:
        left = [
            job_id
            for job_id in ids
            if job_id not in done and self.shards.map.version(bucket_in(job_id))
        ]
        found: list[str] = []
        for other in self.shards.others(shard) if left else []:
            found += other.call(_acting("delete", left, said, words))
        return list(dict.fromkeys(found))

    def audit(
        self, kind: str, author: str, reason: str = "", data: Mapping[str, Any] | None = None
    ) -> None:
        self.shards.first(lambda store: store.audit(kind, author, reason, data))

    def close(self) -> None:
        self._waiting.close()
        self.shards.close()

    # Traits

    def _join(self, shard: Shard) -> None:
        shard.traits, shard.monotonic = self.traits, self.clock.monotonic
        self._waiting.listen_to(shard)

    def _poll_seconds(self) -> float:
        return min(store.traits.poll_seconds() for store in self._opened())

    def _rules_version(self) -> int:
        """Rules are on all shards: that one is away hides none."""
        versions: list[tuple[str, int]] = []
        error: Exception | None = None
        for shard in self.shards.all:
            if (store := shard.opened) is not None:
                try:
                    versions.append((shard.name, store.traits.rules_version()))
                except AWAY as away:
                    error = away
        if error is not None and not versions:
            raise error
        return hash(tuple(versions))

    def _digest_key(self) -> bytes:
        if self._key is None:
            first = self.shards.all[0]
            self._key = first.call(lambda store: store.traits.digest_key())
        return self._key

    def _sealed_apps(self) -> frozenset[str]:
        found = self.shards.reached(lambda store: store.traits.sealed_apps())
        return frozenset(app for apps in found.values() for app in apps)

    def _mark_sealed(self, app: str) -> None:
        self.shards.every(lambda store: store.traits.mark_sealed(app))

    def _places(self) -> dict[str, tuple[str, ...]]:
        found = self.shards.reached(lambda store: store.traits.places().get("", ()))
        return {name: ids for name, ids in found.items() if ids}

    def _opened(self) -> list[Broker]:
        return [store for shard in self.shards.all if (store := shard.opened) is not None]


def _capabilities(opened: Sequence[Broker]) -> frozenset[Capability]:
    can = _OVER_SHARDS.intersection(*(store.traits.capabilities for store in opened))
    limits: frozenset[Capability] = frozenset({"limits across buckets"})
    return can | limits if all(map(holds_quotas, opened)) else can


def _acting(
    action: Action, ids: Sequence[str], said: tuple[str, str], words: Mapping[str, Any]
) -> Callable[[Broker], list[str]]:
    return lambda store: store.act(action, ids, *said, **words)
