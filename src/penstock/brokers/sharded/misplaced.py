"""What cannot be kept in one place: refused before anything is written.

A unique key holds within the shard of its own bucket, and so does the order of a key and a limit
per key. A job that is elsewhere, because its flow is, or because it has both a unique key and a
key, would go round them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.broker.move import key_matters
from penstock.brokers.sharded.shards import Shards, bucket_in
from penstock.enqueue.ids import bucket_for
from penstock.errors import Refused
from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel
from penstock.rules.rule import Rule


class Misplaced:
    """Looks at jobs that are about to be stored."""

    def __init__(self, shards: Shards, rules: Callable[[], Sequence[Rule]]) -> None:
        self._shards = shards
        self._rules = rules

    def check(self, jobs: Iterable[Job[Any] | Parcel], flow: Flow | None = None) -> None:
        """Refuse jobs that are not where their key, or their flow, is."""
        for job in jobs:
            if flow is not None and bucket_in(job.id) != bucket_in(flow.id):
                home, here = self._shards.of(flow.id), self._shards.of(job.id)
                raise Refused(
                    f"flow {flow.id} is on shard {home.name}, in bucket {bucket_in(flow.id)}, and "
                    f"its job {job.id} on {here.name}, in bucket {bucket_in(job.id)}: all jobs of "
                    "a flow have ids of one bucket"
                )
            if isinstance(job, Job):
                self._check_keys(job)

    def check_spawned(self, job: Job[Any], outcome: Outcome) -> None:
        """What a job spawned is stored with its end, and so in its place."""
        here = self._shards.of(job.id)
        for spawned in outcome.spawned:
            apart = outcome.flow is not None and bucket_in(spawned.id) != bucket_in(job.id)
            if apart or self._shards.of(spawned.id) is not here:
                raise Refused(
                    f"job {spawned.id} is of another shard than {job.id}, which spawned it: give "
                    "it an id of the same bucket"
                )
            if not isinstance(spawned, Parcel):
                self._check_keys(spawned)

    def _check_keys(self, job: Job[Any]) -> None:
        if job.unique is not None:
            self._check_key(job, "unique key", job.unique.key)
        if job.key is not None and self._of_elsewhere(job, job.key) and self._matters(job):
            self._check_key(job, "key", job.key)

    def _check_key(self, job: Job[Any], word: str, key: str) -> None:
        if self._of_elsewhere(job, key):
            here, there = self._shards.of(job.id), self._shards.of_bucket(bucket_for(key))
            raise Refused(
                f"job {job.id} is on shard {here.name}, where its flow or its unique key is, and "
                f"its {word} {key!r} holds on shard {there.name}: leave out one of them"
            )

    def _of_elsewhere(self, job: Job[Any], key: str) -> bool:
        return self._shards.of_bucket(bucket_for(key)) is not self._shards.of(job.id)

    def _matters(self, job: Job[Any]) -> bool:
        """Whether a rule looks at the key of this job."""
        return key_matters(job, self._rules())
