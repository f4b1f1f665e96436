"""How many jobs of which tasks to claim next, and how to cut what was claimed into chunks.

There are several kinds of request, so that a flood of one sort of job cannot keep out another:

    hands     tasks on threads: as many jobs as there are free hands
    slots     tasks on the event loop: as many jobs as there are free slots
    ahead     quick tasks: many jobs, for hands that will be free in a moment; and as many of other
              tasks as could start then, if quick ones have all the hands
    batches   batch tasks, whose jobs are gathered before they start
    any       instead of `hands` and `slots` while nothing runs: one claim is cheaper than two

Does no I/O: the loop makes the requests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.job import Job
from penstock.worker.batch_gathering import BatchSize, Gathering
from penstock.worker.capacity import Capacity
from penstock.worker.chunk import Chunk, ClaimGroup
from penstock.worker.claim_size import ClaimSize

START_SECONDS = 1.0  # a job that has not started this long after its claim is put back
_HOLD_OFF_SECONDS = 0.05
_POLL_FIRST = 0.05


class RequestKind:
    """One kind of request, and when it is worth making again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.due_at = 0.0
        self.poll = _POLL_FIRST
        self.short = True  # the last one returned less than it asked for
        self._hinted = False

    def record_answer(self, now: float, taken: int, limit: int, longest_poll: float) -> None:
        """Poll soon after a claim that found jobs, and more and more rarely after others."""
        self.short = taken < limit
        self.poll = _POLL_FIRST if taken else min(longest_poll, self.poll * 2)
        pause = _POLL_FIRST if self._hinted else self.poll
        self._hinted = False
        self.due_at = now + pause if self.short else now

    def hint(self, at: float) -> None:
        """The store hinted at jobs: claim at this time, and once more a moment later.

        A store may leave out a hint that would follow another one at once.
        """
        self.due_at = min(self.due_at, at)
        self._hinted = True


class ClaimRequest(NamedTuple):
    """Claim at most `limit` jobs, and of each task at most `sizes[task]`."""

    kind: RequestKind
    limit: int
    sizes: Mapping[str, int] | None


class ClaimPlan:
    """What the worker holds, and what it has room for."""

    def __init__(self, threads: int, async_slots: int, *, processes: bool, apart: bool) -> None:
        self.kinds = [
            RequestKind("hands"),
            RequestKind("slots"),
            RequestKind("ahead"),
            RequestKind("any"),
            RequestKind("batches"),
        ]
        self.live: dict[int, Chunk] = {}  # chunks with jobs that are not settled
        self.held: Counter[str] = Counter()  # jobs per task that have not ended
        self.busy = 0  # chunks that hands have, or are about to take
        self.async_jobs = 0  # jobs on the event loop, or about to start there
        self._calls: Counter[bool] = Counter()  # batches under way, asynchronous or not
        self.gathering = Gathering()
        self._modes: Mapping[str, str] = {}
        self._processes = processes  # a job can run in a process of its own
        self._groups_per_task = 2 if apart else 1  # quick tasks: one runs while one is claimed
        self._threads = threads
        self._async_slots = async_slots
        self._claim_sizes: dict[str, ClaimSize] = {}
        self._wait_until = 0.0
        self._quiet = False

    def set_tasks(
        self, modes: Mapping[str, str], batches: Mapping[str, BatchSize] | None = None
    ) -> None:
        """Set the mode of each task, and which of them are batch tasks."""
        self._modes = modes
        self.gathering.sizes = batches or {}

    def resize(self, capacity: Capacity) -> None:
        """Have room for so many from now on."""
        self._threads, self._async_slots = capacity.threads, capacity.async_slots
        self._quiet = capacity.quiet
        self._claim_sizes.clear()  # learned from another number of hands

    def requests(self, now: float) -> list[ClaimRequest]:
        """The claims worth making now, those for free hands first."""
        if self._quiet or self.hold_off_until(now):
            return []
        hands, slots, ahead, any_kind, batches = self.kinds
        free = {"hands": self._threads - self.busy, "slots": self._async_slots - self.async_jobs}
        quick = {
            task: min(claim_size.size, self._groups_per_task * claim_size.size - self.held[task])
            for task, claim_size in self._claim_sizes.items()
            if claim_size.size > claim_size.first
            and self.held[task]
            <= self._groups_per_task * claim_size.size - (claim_size.size + 1) // 2
        }
        flooded = any(
            claim_size.size > claim_size.first and self.held[task]
            for task, claim_size in self._claim_sizes.items()
        )
        requests: list[ClaimRequest] = []
        others: dict[str, int] = {}
        for kind in (hands, slots):
            names = self._names(kind, quick=False)
            if flooded and free[kind.name] <= 0:
                free[kind.name] = self._free_soon(kind, names)
                others |= dict.fromkeys(names, max(0, free[kind.name]))
            elif names and free[kind.name] > 0:
                sizes = (
                    None if len(names) == len(self._modes) else self._sizes(names, free[kind.name])
                )
                requests.append(ClaimRequest(kind, free[kind.name], sizes))
        room = self._batch_room(free) if self.gathering.sizes else {}
        in_order = any(size.in_order for size in self.gathering.sizes.values())
        several = len(requests) + bool(requests and room) >= 2
        if several and not self.live and not quick and not in_order:
            # A claim costs the store the same, whichever tasks it is for.
            return [ClaimRequest(any_kind, min(request.limit for request in requests), None)]
        if quick:
            sizes = dict.fromkeys(self._modes, 0) | others | quick
            requests.append(ClaimRequest(ahead, sum(quick.values()), sizes))
        if room:
            sizes = dict.fromkeys(self._modes, 0) | room
            requests.append(ClaimRequest(batches, sum(room.values()), sizes))
        return requests

    def _free_soon(self, kind: RequestKind, names: Iterable[str]) -> int:
        """How many hands or slots are free once the quick jobs on them have ended."""
        capacity = self._threads if kind.name == "hands" else self._async_slots
        slow = sum(self.held[name] for name in names)
        return capacity - slow - self._calls[kind.name == "slots"]

    def _batch_room(self, free: Mapping[str, int]) -> dict[str, int]:
        """How many jobs of each batch task could be gathered; one call of them takes one hand."""
        return {
            task: jobs
            for task, jobs in self.gathering.room().items()
            if jobs > 0 and free["slots" if self._modes[task] == "async" else "hands"] > 0
        }

    def _names(self, kind: RequestKind, *, quick: bool) -> list[str]:
        sizes = self._claim_sizes
        return [
            name
            for name, mode in self._modes.items()
            if (mode == "async") == (kind.name == "slots")
            and name not in self.gathering.sizes
            and (name not in sizes or (sizes[name].size > sizes[name].first) == quick)
        ]

    def _sizes(self, names: Iterable[str], size: int) -> dict[str, int]:
        return dict.fromkeys(self._modes, 0) | dict.fromkeys(names, size)

    def hold_off_until(self, now: float) -> float | None:
        """Until when to make no claim, because quick jobs run and will end in a moment.

        Only where the store works in this process (SQLite): a transaction beside a busy hand would
        wait for the interpreter at every statement. Taking turns is several times faster.
        """
        if self._groups_per_task > 1 or not self.busy or now >= self._wait_until:
            return None
        return self._wait_until

    def take(
        self, jobs: Sequence[Job[Any]], request: ClaimRequest, rules: int, now: float
    ) -> list[Chunk]:
        """Cut claimed jobs into chunks; jobs of batch tasks are gathered, and come with `due`."""
        chunks: list[Chunk] = []
        if self.gathering.sizes:
            jobs, chunks = self._gather(jobs, rules, now)
        gathered = len(chunks)
        by_task: dict[str, list[Job[Any]]] = {}
        alone: list[Job[Any]] = []
        for job in jobs:
            if job.lapses or job.at_most_once:
                alone.append(job)
            elif job.task in by_task:
                by_task[job.task].append(job)
            else:
                by_task[job.task] = [job]
        self._shrink_absent(request, by_task)
        for task, jobs_of_task in by_task.items():
            limit = (
                request.limit if request.sizes is None else request.sizes.get(task, request.limit)
            )
            full = len(jobs_of_task) >= limit and task not in self.gathering.sizes
            group = ClaimGroup(task, len(jobs_of_task), now, full=full)
            chunks += self._cut(group, jobs_of_task, rules, now)
        for job in alone:
            group = ClaimGroup(job.task, 1, now, full=False)
            [chunk] = self._cut(group, [job], rules, now)
            if job.lapses and self._processes:
                chunk.own_process, chunk.asynchronous = True, False
            chunks.append(chunk)
        for chunk in chunks[gathered:]:
            self.add(chunk)
        return chunks

    def _gather(
        self, jobs: Sequence[Job[Any]], rules: int, now: float
    ) -> tuple[list[Job[Any]], list[Chunk]]:
        """Gather the jobs of batch tasks. Returns all other jobs, and the chunks that are full.

        A job that failed or lapsed before is called alone, so that it cannot fail others again.
        """
        rest: list[Job[Any]] = []
        batches: dict[str, list[Job[Any]]] = {}
        for job in jobs:
            if job.task in self.gathering.sizes and not (job.lapses or job.failures):
                batches.setdefault(job.task, []).append(job)
            else:
                rest.append(job)
        chunks: list[Chunk] = []
        for task, group in batches.items():
            asynchronous = self._modes.get(task) == "async"
            begun, full = self.gathering.add(group, rules, now, asynchronous=asynchronous)
            self.live.update((id(chunk), chunk) for chunk in begun)
            self.held[task] += len(group)
            chunks += full
        return rest, [self._call_starts(chunk, now) for chunk in chunks]

    def due(self, now: float) -> list[Chunk]:
        """The gathered chunks whose call is due."""
        return [self._call_starts(chunk, now) for chunk in self.gathering.due(now)]

    def _call_starts(self, chunk: Chunk, now: float) -> Chunk:
        chunk.start_until = now + START_SECONDS
        self._calls[chunk.asynchronous] += 1
        if chunk.asynchronous:
            self.async_jobs += 1
        else:
            self.busy += 1
        return chunk

    def _shrink_absent(self, request: ClaimRequest, claimed: Mapping[str, Any]) -> None:
        if request.kind.name == "ahead" and request.sizes is not None:
            for task, size in request.sizes.items():
                if size and task not in claimed:
                    self.claim_size(task).found_none(size)

    def _cut(
        self, group: ClaimGroup, jobs: Sequence[Job[Any]], rules: int, now: float
    ) -> list[Chunk]:
        claim_size, mode = self.claim_size(group.task), self._modes.get(group.task, "thread")
        size = len(jobs)
        if mode != "async":
            size = claim_size.chunk(len(jobs), self._threads - self.busy) if mode == "thread" else 1
            if claim_size.quick and len(jobs) > 1:
                expected = 2 * (claim_size.average or 0.0) * len(jobs)
                self._wait_until = now + min(max(expected, 0.002), _HOLD_OFF_SECONDS)
        chunks: list[Chunk] = []
        for first in range(0, len(jobs), size):
            part = jobs[first : first + size] if size < len(jobs) else jobs
            chunk = Chunk(group, part, rules, now + START_SECONDS)
            chunk.asynchronous = mode == "async"
            chunk.own_process = mode == "process"
            chunks.append(chunk)
        return chunks

    def split(self, chunk: Chunk) -> list[Chunk]:
        """Chunks of one job each for those that the chunk's hand has not started."""
        self.claim_size(chunk.task).stalled()
        rest = chunk.take_back()
        chunk.left -= len(rest)
        parts: list[Chunk] = []
        for job in rest:
            part = Chunk(chunk.group, [job], chunk.rules, chunk.start_until)
            part.asynchronous, part.own_process = chunk.asynchronous, chunk.own_process
            parts.append(part)
            self.live[id(part)] = part
            self.busy += not part.asynchronous
        return parts

    def add(self, chunk: Chunk) -> None:
        self.live[id(chunk)] = chunk
        self.held[chunk.task] += chunk.left
        if chunk.asynchronous:
            self.async_jobs += chunk.left
        else:
            self.busy += 1

    def ended(self, chunk: Chunk, jobs: int, now: float) -> None:
        """This many jobs of the chunk have ended, or were put back."""
        group = chunk.group
        self.held[chunk.task] -= jobs
        group.left -= jobs
        if chunk.asynchronous and not chunk.as_batch:
            self.async_jobs -= jobs
        if jobs and not group.left:
            self.claim_size(group.task).claim_ended(now - group.began, full=group.full)

    def hand_freed(self, chunk: Chunk) -> None:
        """The hand of this chunk is free again, or the slot of its batch."""
        self._calls[chunk.asynchronous] -= chunk.as_batch
        if chunk.asynchronous:
            self.async_jobs -= 1
        else:
            self.busy -= 1
        if chunk.ran:
            self.claim_size(chunk.task).ran(chunk.ran, chunk.seconds)

    def settled(self, chunk: Chunk, jobs: int) -> None:
        """This many jobs of the chunk are settled."""
        chunk.left -= jobs
        if chunk.left <= 0:
            self.live.pop(id(chunk), None)

    def claim_size(self, task: str) -> ClaimSize:
        claim_size = self._claim_sizes.get(task)
        if claim_size is None:
            asynchronous = self._modes.get(task) == "async"
            claim_size = self._claim_sizes[task] = ClaimSize(
                self._async_slots if asynchronous else self._threads
            )
        return claim_size

    def holding(self) -> set[str]:
        """The ids of all jobs that this worker holds; some may be settled already."""
        return {job.id for chunk in self.live.values() for job in chunk.claimed}

    def running(self) -> int:
        return sum(self.held.values())
