"""What to ask the store for next, and how to cut what it gave into chunks.

Kinds of request, so that one cannot take another's place: `ahead` for tasks whose jobs are
quick (many at once, for hands that will be free in a moment), `hands` for all others (as many as
there are free hands), `slots` for those on the event loop. While nothing runs one request, `any`,
stands for the last two. A fourth kind, `batches`, is for jobs that are gathered before they start.
Knows numbers and chunks, no store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.job import Job
from penstock.worker.batch_gathering import BatchSize, Gathering
from penstock.worker.chunk import Chunk, Lease
from penstock.worker.claim_size import ClaimSize

START_SECONDS = 1.0  # a job that has not begun so long after its claim is put back
_PATIENCE_SECONDS = 0.05
_POLL_FIRST = 0.05


class Kind:
    """One kind of request, and when it is worth making again."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.due_at = 0.0
        self.poll = _POLL_FIRST
        self.short = True  # the last one brought less than it asked for

    def answered(self, now: float, taken: int, limit: int) -> None:
        self.short = taken < limit
        if taken:
            self.poll = _POLL_FIRST
        self.due_at = now + self.poll if self.short else now

    def back_off(self, longest: float) -> None:
        """Nothing happens here: look more rarely."""
        self.poll = min(longest, self.poll * 2)

    def hear(self, at: float) -> None:
        """There may be something at this time; who says so once may not say so again soon."""
        self.due_at = min(self.due_at, at)
        self.poll = _POLL_FIRST


class Want(NamedTuple):
    """A request: at most `limit` jobs, and of each task at most so many."""

    kind: Kind
    limit: int
    sizes: Mapping[str, int] | None


class ClaimPlan:
    """The worker's view of what it holds and what it could take."""

    def __init__(self, threads: int, async_slots: int, *, processes: bool, apart: bool) -> None:
        self.kinds = [Kind("hands"), Kind("slots"), Kind("ahead"), Kind("any"), Kind("batches")]
        self.live: dict[int, Chunk] = {}  # chunks that the store has not answered for
        self.held: Counter[str] = Counter()  # jobs per task that have not ended
        self.busy = 0  # chunks that hands have, or are about to take
        self.flying = 0  # jobs on the event loop, or about to be
        self.gathering = Gathering()
        self._modes: Mapping[str, str] = {}
        self._processes = processes  # a job can have one of its own
        self._leases = 2 if apart else 1  # of quick jobs: one that runs while one is on its way
        self._threads = threads
        self._async_slots = async_slots
        self._paces: dict[str, ClaimSize] = {}
        self._wait_until = 0.0

    def know(
        self, modes: Mapping[str, str], batches: Mapping[str, BatchSize] | None = None
    ) -> None:
        """The tasks there are, each with its mode, and those that take many jobs at once."""
        self._modes = modes
        self.gathering.sizes = batches or {}

    def wants(self, now: float) -> list[Want]:
        """The requests that are worth making, those for free hands first."""
        if self.patient_until(now):
            return []
        hands, slots, ahead, any_kind, batches = self.kinds
        free = {"hands": self._threads - self.busy, "slots": self._async_slots - self.flying}
        quick = {
            task: min(pace.size, self._leases * pace.size - self.held[task])
            for task, pace in self._paces.items()
            if pace.size > pace.first
            and self.held[task] <= self._leases * pace.size - (pace.size + 1) // 2
        }
        wants: list[Want] = []
        for kind in (hands, slots):
            names = self._names(kind, quick=False)
            if names and free[kind.name] > 0:
                sizes = (
                    None if len(names) == len(self._modes) else self._sizes(names, free[kind.name])
                )
                wants.append(Want(kind, free[kind.name], sizes))
        rooms = self._rooms(free) if self.gathering.sizes else {}
        if len(wants) + bool(wants and rooms) >= 2 and not self.live and not quick:
            # A look costs the store the same whatever it is for.
            return [Want(any_kind, min(want.limit for want in wants), None)]
        if quick:
            sizes = dict.fromkeys(self._modes, 0) | quick
            wants.append(Want(ahead, sum(quick.values()), sizes))
        if rooms:
            sizes = dict.fromkeys(self._modes, 0) | rooms
            wants.append(Want(batches, sum(rooms.values()), sizes))
        return wants

    def _rooms(self, free: Mapping[str, int]) -> dict[str, int]:
        """How many jobs of each batch task could be gathered; one call of them takes one hand."""
        rooms = self.gathering.rooms()
        return {
            task: room
            for task, room in rooms.items()
            if room > 0 and free["slots" if self._modes[task] == "async" else "hands"] > 0
        }

    def _names(self, kind: Kind, *, quick: bool) -> list[str]:
        slow = self._paces
        return [
            name
            for name, mode in self._modes.items()
            if (mode == "async") == (kind.name == "slots")
            and name not in self.gathering.sizes
            and (name not in slow or (slow[name].size > slow[name].first) == quick)
        ]

    def _sizes(self, names: Iterable[str], size: int) -> dict[str, int]:
        return dict.fromkeys(self._modes, 0) | dict.fromkeys(names, size)

    def patient_until(self, now: float) -> float | None:
        """Until when quick jobs are under way whose end is worth waiting for.

        Where the store works in this process: while a hand runs them it has the interpreter, and a
        transaction beside it would give it up and wait for it at every statement. Taking turns is
        several times faster.
        """
        if self._leases > 1 or not self.busy or now >= self._wait_until:
            return None
        return self._wait_until

    def take(self, jobs: Sequence[Job[Any]], want: Want, rules: int, now: float) -> list[Chunk]:
        """Cut what a request brought into chunks; what is gathered comes when it is `due`."""
        chunks: list[Chunk] = []
        if self.gathering.sizes:
            jobs, chunks = self._gather(jobs, rules, now)
        gathered = len(chunks)
        together: dict[str, list[Job[Any]]] = {}
        alone: list[Job[Any]] = []
        for job in jobs:
            if job.lapses or job.at_most_once:
                alone.append(job)
            elif job.task in together:
                together[job.task].append(job)
            else:
                together[job.task] = [job]
        self._note_absent(want, together)
        for task, group in together.items():
            asked = want.limit if want.sizes is None else want.sizes.get(task, want.limit)
            full = len(group) >= asked and task not in self.gathering.sizes
            lease = Lease(task, len(group), now, full=full)
            chunks += self._cut(lease, group, rules, now)
        for job in alone:
            lease = Lease(job.task, 1, now, full=False)
            [chunk] = self._cut(lease, [job], rules, now)
            if job.lapses and self._processes:
                chunk.alone, chunk.asynchronous = True, False
            chunks.append(chunk)
        for chunk in chunks[gathered:]:
            self.add(chunk)
        return chunks

    def _gather(
        self, jobs: Sequence[Job[Any]], rules: int, now: float
    ) -> tuple[list[Job[Any]], list[Chunk]]:
        """Have batch jobs wait for company: the jobs that are none, and the chunks that are full.

        One that failed or lapsed before is called alone, lest it spoil another call.
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
        return rest, [self._closed(chunk, now) for chunk in chunks]

    def due(self, now: float) -> list[Chunk]:
        """The chunks that were gathered and whose call is to be made."""
        return [self._closed(chunk, now) for chunk in self.gathering.due(now)]

    def _closed(self, chunk: Chunk, now: float) -> Chunk:
        chunk.start_until = now + START_SECONDS
        if chunk.asynchronous:
            self.flying += 1
        else:
            self.busy += 1
        return chunk

    def _note_absent(self, want: Want, came: Mapping[str, Any]) -> None:
        if want.kind.name == "ahead" and want.sizes is not None:
            for task, size in want.sizes.items():
                if size and task not in came:
                    self.pace(task).claimed(size, 0)

    def _cut(self, lease: Lease, jobs: Sequence[Job[Any]], rules: int, now: float) -> list[Chunk]:
        pace, mode = self.pace(lease.task), self._modes.get(lease.task, "thread")
        size = len(jobs)
        if mode != "async":
            size = pace.chunk(len(jobs), self._threads - self.busy) if mode == "thread" else 1
            if pace.quick and len(jobs) > 1:
                expected = 2 * (pace.average or 0.0) * len(jobs)
                self._wait_until = now + min(max(expected, 0.002), _PATIENCE_SECONDS)
        chunks: list[Chunk] = []
        for first in range(0, len(jobs), size):
            part = jobs[first : first + size] if size < len(jobs) else jobs
            chunk = Chunk(lease, part, rules, now + START_SECONDS)
            chunk.asynchronous = mode == "async"
            chunk.alone = mode == "process"
            chunks.append(chunk)
        return chunks

    def split(self, chunk: Chunk) -> list[Chunk]:
        """Chunks of their own for the jobs that a hand has not begun."""
        self.pace(chunk.task).stalled()
        rest = chunk.take_back()
        chunk.left -= len(rest)
        parts: list[Chunk] = []
        for job in rest:
            part = Chunk(chunk.lease, [job], chunk.rules, chunk.start_until)
            part.asynchronous, part.alone = chunk.asynchronous, chunk.alone
            parts.append(part)
            self.live[id(part)] = part
            self.busy += not part.asynchronous
        return parts

    def add(self, chunk: Chunk) -> None:
        self.live[id(chunk)] = chunk
        self.held[chunk.task] += chunk.left
        if chunk.asynchronous:
            self.flying += chunk.left
        else:
            self.busy += 1

    def ended(self, chunk: Chunk, jobs: int, now: float) -> None:
        """So many jobs of this chunk have ended, or were put back."""
        lease = chunk.lease
        self.held[chunk.task] -= jobs
        lease.left -= jobs
        if chunk.asynchronous and not chunk.together:
            self.flying -= jobs
        if jobs and not lease.left:
            self.pace(lease.task).lease_ended(now - lease.began, full=lease.full)

    def put_down(self, chunk: Chunk) -> None:
        """A hand is free again, or a slot that jobs had together."""
        if chunk.asynchronous:
            self.flying -= 1
        else:
            self.busy -= 1
        if chunk.ran:
            self.pace(chunk.task).ran(chunk.ran, chunk.seconds)

    def answered(self, chunk: Chunk, jobs: int) -> None:
        """The store has answered for so many jobs of this chunk."""
        chunk.left -= jobs
        if chunk.left <= 0:
            self.live.pop(id(chunk), None)

    def pace(self, task: str) -> ClaimSize:
        pace = self._paces.get(task)
        if pace is None:
            asynchronous = self._modes.get(task) == "async"
            pace = self._paces[task] = ClaimSize(
                self._async_slots if asynchronous else self._threads
            )
        return pace

    def holding(self) -> set[str]:
        """The ids of all that this worker knows it holds, and some that it no longer does."""
        return {job.id for chunk in self.live.values() for job in chunk.claimed}

    def running(self) -> int:
        return sum(self.held.values())
