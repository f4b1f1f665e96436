"""Turns between queues: a backlog in one does not hold up another that a worker serves as well.

The lanes with due jobs come best first, by what they are worth: their priority, and a step for each
minute that they wait. The priority of the first is the level of a round, and every queue with a
lane worth that much takes part. So waiting lets a low priority in, and never puts another queue of
the same priority behind. The queues of a round share what a claim has room for, the one that was
handed out longest ago first; what one leaves is shared by the others. Within a queue the order of
its lanes stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Generic, NamedTuple, Protocol, TypeVar

from penstock.job import Lane

_MOST_WORKERS = 1000
_MOST_QUEUES = 10_000


class Offer(Protocol):
    """A lane with due jobs."""

    @property
    def lane(self) -> Lane: ...

    @property
    def worth(self) -> float:
        """Its priority, and a step for each minute that its oldest job waits."""
        ...


T = TypeVar("T", bound=Offer)


class Shared(NamedTuple, Generic[T]):
    """The lanes to claim from first."""

    lanes: Sequence[T]
    queues: Sequence[str] = ()  # those that share the claim, in their turn; empty: nobody does


class QueueTurns:
    """Which queues each worker was handed jobs of, and when: hints, kept in the process."""

    def __init__(self) -> None:
        self._times = count(1)
        self._handed_out: dict[str, dict[str, int]] = {}  # worker -> queue -> time

    def hand_out(
        self, worker: str, offers: Sequence[T], room: int, take: Callable[[T, int], int]
    ) -> None:
        """Have `take` hand out as many jobs as there is room for.

        It is given a lane and the most jobs, and answers how many it took. If they are fewer, the
        lane has no more for this claim.
        """
        if len(offers) == 1:  # the hot path: one lane, and nothing to share
            [only] = offers
            self.took(worker, {only.lane.queue: take(only, room)})
            return
        taken: Counter[str] = Counter()
        for group in rounds(offers):
            live = self.by_turn(worker, group)
            while live and room > 0:
                share = max(1, room // len(live))
                for queue in list(live):
                    left = min(share, room)
                    while left > 0 and live[queue]:
                        jobs = take(live[queue][0], left)
                        if jobs < left:
                            del live[queue][0]
                        left, room = left - jobs, room - jobs
                        taken[queue] += jobs
                    if not live[queue]:
                        del live[queue]
        self.took(worker, taken)

    def first(self, worker: str, offers: Sequence[T], most: int) -> Shared[T]:
        """At most so many lanes, of rounds of one queue each, or of one round of several."""
        found: list[T] = []
        for group in rounds(offers):
            live = self.by_turn(worker, group)
            if len(live) == 1:
                found += group
            elif found:
                break
            else:
                chosen = _one_of_each(list(live.values()))[:most]
                return Shared(chosen, list(dict.fromkeys(offer.lane.queue for offer in chosen)))
            if len(found) >= most:
                break
        return Shared(found[:most])

    def by_turn(self, worker: str, group: Sequence[T]) -> dict[str, list[T]]:
        """The lanes of a round by their queue, the one that was handed out longest ago first."""
        live: dict[str, list[T]] = {}
        for offer in group:
            live.setdefault(offer.lane.queue, []).append(offer)
        if len(live) == 1:
            return live
        times = self.times(worker)
        return dict(sorted(live.items(), key=lambda queue: times.get(queue[0], 0)))

    def times(self, worker: str) -> Mapping[str, int]:
        """When each queue was handed out to this worker: a number that counts up; 0 is never."""
        return self._handed_out.get(worker, {})

    def took(self, worker: str, jobs: Mapping[str, int]) -> None:
        """So many jobs of each queue were handed out; who had most has the next turn last."""
        times = self._handed_out.get(worker)
        if times is None or len(times) > _MOST_QUEUES:
            if len(self._handed_out) >= _MOST_WORKERS:
                self._handed_out.clear()
            times = self._handed_out[worker] = {}
        for queue in jobs if len(jobs) == 1 else sorted(jobs, key=jobs.__getitem__):
            if jobs[queue]:
                times[queue] = next(self._times)


def rounds(offers: Sequence[T]) -> Iterator[Sequence[T]]:
    """The lanes that share a claim, then those that share what is left of it, and so on."""
    start = 0
    while start < len(offers):
        level, end = offers[start].lane.priority, start + 1
        while end < len(offers) and offers[end].worth >= level:
            end += 1
        yield offers[start:end]
        start = end


def _one_of_each(queues: Sequence[Sequence[T]]) -> list[T]:
    """The first lane of each queue, then the second of each, and so on."""
    longest = max(map(len, queues))
    return [queue[place] for place in range(longest) for queue in queues if place < len(queue)]
