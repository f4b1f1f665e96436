"""Claims and settlements over shards: each shard is asked in turn, each outcome goes to its own.

An outcome whose shard is away is answered with None, and sent again by its worker; the others are
settled. If a shard refuses a call that others had carried out before, what those answered is kept
until the same outcomes are sent again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.move import StaleMap
from penstock.broker.protocol import Broker
from penstock.broker.values import Claimed, Renewed, Settlement, Wanted
from penstock.broker.views import Note, WorkerRow
from penstock.brokers.sharded.misplaced import Misplaced
from penstock.brokers.sharded.quotas import Quotas
from penstock.brokers.sharded.shards import AWAY, OnItsWay, Shard, Shards, bucket_in
from penstock.errors import StoreUnreachable
from penstock.job import Job, unclaimed

_MOST_ANSWERS = 10_000
_MOST_DEALS = 3  # parts of limits that one claim fetches from where they lie idle
Again = Callable[[StaleMap], None]


class ShardedClaims:
    """Claim, settle, renew, note and recover."""

    def __init__(
        self,
        shards: Shards,
        misplaced: Misplaced,
        quotas: Quotas,
        monotonic: Callable[[], float],
        claim_from: frozenset[str] | None,
    ) -> None:
        self._shards = shards
        self._misplaced = misplaced
        self._quotas = quotas
        self._monotonic = monotonic
        self._claim_from = claim_from  # names of shards; None: all
        self._named = None if claim_from is None else tuple(sorted(claim_from))
        self._lock = threading.Lock()
        self._turn = 0
        # Of calls that failed half-way: answers that nobody heard.
        self._answers: dict[tuple[str, int], bool] = {}

    def claim(self, wanted: Sequence[Wanted], settlements: Sequence[Settlement] = ()) -> Claimed:
        self._shards.join_named()
        if self._shards.plan.coming:
            self._shards.look_again()
        if self._named is not None:
            wanted = [
                msgspec.structs.replace(each, worker=self._told(each.worker)) for each in wanted
            ]
        with self._shards.patience() as patience:
            claimed = self._claim(wanted, settlements, patience)
        for _ in range(_MOST_DEALS):
            left = [_less(each, taken) for each, taken in zip(wanted, claimed.jobs, strict=True)]
            spared = any(job.spared for taken in claimed.jobs for job in taken)
            if spared or not any(each.limit > 0 for each in left):
                break
            dealt, look_at = self._quotas.look_for_more(left, self._monotonic())
            claimed = _with_time(claimed, look_at)
            if not dealt:
                break
            claimed = self._claim_more(left, claimed)
        return claimed

    def _claim_more(self, left: Sequence[Wanted], before: Claimed) -> Claimed:
        """What is to be had beside this, now that a shard may let more start."""
        try:
            with self._shards.patience() as patience:
                more = self._claim(left, (), patience)
        except AWAY:
            return before
        except Exception:
            self._undo(before.jobs)
            raise
        jobs = [[*one, *two] for one, two in zip(before.jobs, more.jobs, strict=True)]
        return _with_time(Claimed(jobs, before.accepted, before.next_at), more.next_at)

    def _claim(
        self, wanted: Sequence[Wanted], settlements: Sequence[Settlement], patience: Again
    ) -> Claimed:
        answers = _Answers(settlements, self._heard_before(settlements))
        jobs: list[list[Job[Any]]] = [[] for _ in wanted]
        times: list[float] = []
        errors: list[Exception] = []
        answered = False
        shards = self._in_turn()
        while shards:
            shard = shards.pop(0)
            pairs = self._by_shard(settlements, answers).get(shard, []) if settlements else []
            left = [_less(each, taken) for each, taken in zip(wanted, jobs, strict=True)]
            asked = [at for at, each in enumerate(left) if each.limit > 0 or not answered]
            if not self._asks(shard, jobs):
                asked = []
            left_alone = shard.resting and len(errors) + 1 < len(self._shards.all)
            if left_alone or not (asked or pairs):
                continue
            claims = _claiming([left[at] for at in asked], _of(shard, pairs))
            try:
                try:
                    answer = shard.write(claims) if pairs else shard.call(claims)
                except StaleMap as stale:
                    patience(stale)  # a bucket moved: its outcomes go where it is now
                    shards.insert(0, shard)
                    continue
            except AWAY as error:
                errors.append(error)
                continue
            except Exception:
                self._undo(jobs)
                self._keep(answers)
                raise
            answered = True
            answers.add(pairs, self._checked(shard, pairs, answer.accepted))
            for at, taken in zip(asked, answer.jobs, strict=True):
                jobs[at] += _placed(shard, taken)
            if answer.next_at is not None:
                times.append(answer.next_at)
        if errors and not answered:
            raise errors[0]
        return Claimed(jobs, answers.all(), min(times, default=None))

    def _asks(self, shard: Shard, taken: Iterable[Sequence[Job[Any]]]) -> bool:
        """Whether more jobs are taken from this shard."""
        if self._claim_from is not None and shard.name not in self._claim_from:
            return False
        # What may kill its process comes from one shard at a time.
        return not any(job.spared for jobs in taken for job in jobs)

    def settle(self, pairs: Sequence[Settlement]) -> list[bool | None]:
        with self._shards.patience() as patience:
            answers = _Answers(pairs, self._heard_before(pairs))
            while (stale := self._settle(pairs, answers)) is not None:
                try:
                    patience(stale)
                except StoreUnreachable:
                    break  # what is still on its way is sent again
            return answers.all()

    def _settle(self, pairs: Sequence[Settlement], answers: _Answers) -> StaleMap | None:
        """Settle what has no answer yet; what is refused because a bucket moved is returned."""
        errors: list[Exception] = []
        by_shard = self._by_shard(pairs, answers)
        left = sum(_claim_of(job) not in answers.known for job, _ in pairs)
        stale = self._coming(pairs) if left > sum(map(len, by_shard.values())) else None
        for shard, some in by_shard.items():
            try:
                accepted = shard.write(_settling(_of(shard, some)))
                answers.add(some, self._checked(shard, some, accepted))
            except StaleMap as refused:
                stale = refused
            except AWAY as error:
                errors.append(error)
            except Exception:
                self._keep(answers)
                raise
        if errors and not answers.known and stale is None:
            raise errors[0]
        return stale

    def renew(
        self, workers: Sequence[WorkerRow], holding: Collection[str] | None = None
    ) -> Renewed:
        self._shards.join_named()
        told = [self._told(row) for row in workers]
        heard = self._shards.reached(lambda shard: shard.renew(told, holding)).values()
        return Renewed(
            frozenset(job for each in heard for job in each.cancelled),
            frozenset(worker for each in heard for worker in each.lapsed),
        )

    def _told(self, row: WorkerRow) -> WorkerRow:
        """The worker's row, with the shards that it claims from."""
        if self._named is None:
            return row
        return msgspec.structs.replace(row, shards=self._named)

    def note(self, job: Job[Any], note: Note) -> bool:
        shard = self._shards.of(job.id)
        [(placed, _)] = _of(shard, [(job, unclaimed())])
        accepted = shard.write(lambda store: store.note(placed, note))
        if accepted or not self._came_back(placed):
            return accepted
        return shard.write(lambda store: store.note(_anywhere(placed), note))

    def recover(
        self,
        by: str | None = None,
        dead: str | None = None,
        started: Collection[str] | None = None,
    ) -> int:
        def recover(shard: Broker) -> int:
            return shard.recover(by=by, dead=dead, started=started)

        if dead is None:
            return sum(self._shards.reached(recover).values())
        # All are told that it is gone, and the caller tells those again that were away.
        errors: list[Exception] = []
        jobs = 0
        for shard in self._shards.all:
            try:
                jobs += shard.call(recover)
            except AWAY as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return jobs

    def _in_turn(self) -> list[Shard]:
        """All shards, each first once in a round: none waits until the others are empty."""
        shards = self._shards.all
        with self._lock:
            self._turn = turn = (self._turn + 1) % len(shards)
        return shards[turn:] + shards[:turn]

    def _by_shard(
        self, pairs: Iterable[Settlement], answers: _Answers
    ) -> dict[Shard, list[Settlement]]:
        found: dict[Shard, list[Settlement]] = {}
        for job, outcome in pairs:
            if _claim_of(job) in answers.known:
                continue
            try:
                if outcome.spawned:
                    self._misplaced.check_spawned(job, outcome)
                found.setdefault(self._shards.of(job.id), []).append((job, outcome))
            except OnItsWay:
                continue  # no answer: its worker sends it again
        return found

    def _checked(
        self, shard: Shard, pairs: Sequence[Settlement], accepted: Sequence[bool | None]
    ) -> Sequence[bool | None]:
        """What a shard answered, once more for jobs that may have left it and come back.

        Their claim is not where it was written then, and the shard looks for it.
        """
        again = [
            at
            for at, ((job, _), answer) in enumerate(zip(_of(shard, pairs), accepted, strict=True))
            if answer is False and self._came_back(job)
        ]
        if not again:
            return accepted
        answers = list(accepted)
        looked_for = [(_anywhere(pairs[at][0]), pairs[at][1]) for at in again]
        try:
            found = shard.write(_settling(looked_for))
        except (*AWAY, StaleMap):
            found = [None] * len(again)  # sent again
        for at, answer in zip(again, found, strict=True):
            answers[at] = answer
        return answers

    def _came_back(self, job: Job[Any]) -> bool:
        return job.lease is not None and self._shards.map.version(bucket_in(job.id)) > 0

    def _coming(self, pairs: Iterable[Settlement]) -> StaleMap | None:
        """What the first of these jobs waits for whose bucket is on its way."""
        for job, _ in pairs:
            try:
                self._shards.of(job.id)
            except OnItsWay as coming:
                return coming
        return None

    def _heard_before(self, pairs: Sequence[Settlement]) -> dict[tuple[str, int], bool]:
        """What was answered of these in calls that failed after that."""
        if not self._answers:
            return {}
        with self._lock:
            claims = [claim for job, _ in pairs if (claim := _claim_of(job)) in self._answers]
            return {claim: self._answers.pop(claim) for claim in claims}

    def _keep(self, answers: _Answers) -> None:
        with self._lock:
            self._answers.update(answers.known)
            for old in list(self._answers)[: max(0, len(self._answers) - _MOST_ANSWERS)]:
                del self._answers[old]

    def _undo(self, jobs: Iterable[Sequence[Job[Any]]]) -> None:
        """Give back what other shards handed out in a call that fails."""
        for taken in jobs:
            for job in taken:
                try:
                    shard = self._shards.of(job.id)
                    shard.write(_settling(_of(shard, [(job, unclaimed())])))
                except (*AWAY, StaleMap):
                    continue  # the worker's next comparison with the store puts it back


class _Answers:
    """What shards said about each outcome; None: nothing yet."""

    def __init__(self, pairs: Sequence[Settlement], known: dict[tuple[str, int], bool]) -> None:
        self._pairs = pairs
        self.known = known

    def add(self, pairs: Sequence[Settlement], accepted: Sequence[bool | None]) -> None:
        for (job, _), answer in zip(pairs, accepted, strict=True):
            if answer is not None:
                # Named twice in one call, the first counts, and the second is stale.
                self.known[_claim_of(job)] = answer or self.known.get(_claim_of(job), False)

    def all(self) -> list[bool | None]:
        left: dict[tuple[str, int], deque[bool | None]] = {}
        for job, _ in self._pairs:
            claim = _claim_of(job)
            left.setdefault(claim, deque([self.known.get(claim)]))
        return [_next(left[_claim_of(job)]) for job, _ in self._pairs]


def _next(answers: deque[bool | None]) -> bool | None:
    """The answer of the first that names a claim; whoever names it again is stale, or waits."""
    answer = answers.popleft()
    answers.append(None if answer is None else False)
    return answer


def _claim_of(job: Job[Any]) -> tuple[str, int]:
    return job.id, job.attempt


def _with_time(claimed: Claimed, at: float | None) -> Claimed:
    times = [each for each in (claimed.next_at, at) if each is not None]
    return msgspec.structs.replace(claimed, next_at=min(times, default=None))


def _less(wanted: Wanted, taken: Sequence[Job[Any]]) -> Wanted:
    """What is still wanted after these."""
    if not taken:
        return wanted
    sizes = wanted.sizes
    if sizes:
        counted: Mapping[str, int] = _counted(taken)
        sizes = {task: max(0, most - counted.get(task, 0)) for task, most in sizes.items()}
    return msgspec.structs.replace(wanted, limit=max(0, wanted.limit - len(taken)), sizes=sizes)


def _counted(jobs: Iterable[Job[Any]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in jobs:
        found[job.task] = found.get(job.task, 0) + 1
    return found


def _placed(shard: Shard, jobs: Sequence[Job[Any]]) -> Sequence[Job[Any]]:
    """Claimed jobs: a store's own note of where a claim is written means nothing to another."""
    return [
        job if job.lease is None else msgspec.structs.replace(job, lease=(shard.name, job.lease))
        for job in jobs
    ]


def _of(shard: Shard, pairs: Sequence[Settlement]) -> list[Settlement]:
    """These pairs for a shard: of a job that moved it looks up the claim itself."""
    return [
        (job, outcome)
        if job.lease is None
        else (
            msgspec.structs.replace(
                job, lease=job.lease[1] if job.lease[0] == shard.name else None
            ),
            outcome,
        )
        for job, outcome in pairs
    ]


def _anywhere(job: Job[Any]) -> Job[Any]:
    """A claimed job, without the note of where its claim is."""
    return msgspec.structs.replace(job, lease=None)


def _claiming(wanted: Sequence[Wanted], pairs: Sequence[Settlement]) -> Callable[[Broker], Claimed]:
    return lambda broker: broker.claim(wanted, pairs)


def _settling(pairs: Sequence[Settlement]) -> Callable[[Broker], Sequence[bool | None]]:
    return lambda broker: broker.settle(pairs)
