"""Which lanes have work, best first, and how far this process has read in each.

A process goes on from its floor in a lane: rows below it that are dead, and kept by somebody's open
snapshot, are not read again. Notified of a lane, a process that knows of no other work claims from
it at once; else it looks around. Every 50 ms (less often where that takes long), and before it says
that there is nothing, it looks from the bottom: that finds what was committed late, and lanes that
nobody announced.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.broker.views import WorkerRow
from penstock.broker.worker_lease import can_run
from penstock.brokers.postgres.function_calls import Answer, to_int
from penstock.brokers.tables.rows import made_at
from penstock.job import Lane
from penstock.rules.key_order import in_turn
from penstock.rules.queue_turns import QueueTurns, Shared

FRESH_SECONDS = 0.05
_SHARE = 100  # looks from the bottom take at most a hundredth of the time
_LONGEST_SECONDS = 1.0  # but one slow look must not hide other lanes for long
_UNSEEN_SECONDS = 2.5  # so long notified lanes go first; a little more than an idle worker's poll
LANES_PER_CLAIM = 8
_LOWEST = bytes(16)
_MOST_ENDS = 10_000  # exhausted lanes whose floor is remembered


class PostgresCandidateLane:
    """A lane that has work, as far as this process knows it."""

    __slots__ = (
        "floor",
        "hash",
        "head",
        "lane",
        "loose",
        "packed",
        "per_parcel",
        "policy",
        "row_due",
        "row_floor",
        "worth",
    )

    def __init__(self, number: int, lane: Lane) -> None:
        self.hash = number
        self.lane = lane
        self.head = 0.0  # when its oldest job was due
        self.worth = 0.0  # set by each claim, which sorts by it
        self.packed = False  # it has parcels
        self.loose = False  # it has rows
        self.floor = _LOWEST
        self.row_floor = 0.0
        self.row_due = 0.0  # when its earliest row is due
        self.per_parcel = 1.0  # jobs in a parcel, on average
        self.policy: str | None = None  # its queue is handed out by key

    def guess(self, jobs: int) -> int:
        """How many parcels hold so many jobs."""
        return int(jobs / self.per_parcel) + 1

    def rank(self, now: float) -> tuple[float, float, int]:
        """Sort key, best first; a minute of waiting is worth one step of priority."""
        self.worth = self.lane.priority + max(0.0, now - self.head) / 60
        return -self.worth, self.head, self.hash


class PostgresClaimableLanes:
    """The lanes that have work; shared by all threads that claim from one broker."""

    def __init__(self) -> None:
        self.lanes: dict[int, PostgresCandidateLane] = {}
        self._next_due: dict[int, tuple[Lane, float]] = {}  # when the next row of a lane is due
        self._free_at: float | None = None  # when a limit lets more jobs start, or a rule ends
        self._stale = True
        self._looked_at = -1.0
        self._bottom_at = -1.0  # monotonic: when to look from the bottom again
        self._floors: dict[int, tuple[bytes, float]] = {}  # of lanes that had work lately
        self._ends: dict[int, tuple[bytes, float]] = {}  # floors of lanes that were exhausted
        self._announced: set[int] = set()
        self._anywhere = True  # there may be work that no lane was announced of
        self._looked_from_bottom_at = -_UNSEEN_SECONDS  # monotonic
        self.turns = QueueTurns()
        self._lock = threading.Lock()

    def forget(self, lanes: Collection[int] = ()) -> None:
        """Look again before the next claim: there may be new work, in these lanes if known."""
        with self._lock:
            self._stale = True
            self._announced.update(lanes)
            self._anywhere = self._anywhere or not lanes

    def look_again(self) -> None:
        """All lanes that were known are exhausted: what is new is not known."""
        with self._lock:
            self._stale = True

    def held_back(self) -> None:
        """A limit or an order held jobs back, in lanes that nobody announces when it lets go."""
        with self._lock:
            self._anywhere = True

    def start_from_bottom(self) -> None:
        """Jobs came back that are older than those taken since: floors would skip them."""
        with self._lock:
            self._bottom_at = -1.0
            self._anywhere = True

    def take_announced(self, lanes: Mapping[int, Lane], now: float) -> bool:
        """Take the announced lanes for those that have work, without a look; whether it did.

        Not if there may be other work, which a look would find.
        """
        with self._lock:
            if self._anywhere or self.lanes or not 0 < len(self._announced) <= LANES_PER_CLAIM:
                return False
            if time.monotonic() - self._looked_from_bottom_at > _UNSEEN_SECONDS:
                return False
            if any(at <= now for _, at in self._next_due.values()):
                return False
            if not all(number in lanes for number in self._announced):
                return False
            for number in self._announced:
                candidate = self.lanes[number] = PostgresCandidateLane(number, lanes[number])
                candidate.floor, candidate.row_floor = self._ends.get(number, (_LOWEST, 0.0))
                candidate.packed = candidate.loose = True
                candidate.head = now
            self._announced.clear()
            self._stale = False
            return True

    def on_notification(self, lanes: Iterable[int] | None) -> None:
        """Others stored jobs in these lanes, or in any; known lanes need no new look."""
        unknown = () if lanes is None else set(lanes).difference(self.lanes)
        if lanes is None or unknown:
            self.forget(unknown)

    def limit_frees_at(self, at: float) -> None:
        """A rate limit lets more jobs start at this time, or a rule ends."""
        with self._lock:
            self._free_at = at if self._free_at is None else min(at, self._free_at)

    def next_at(
        self, worker: WorkerRow, queues: Collection[str] | None, now: float
    ) -> float | None:
        """When time alone gives this worker more to claim, as far as the last look knew."""
        with self._lock:
            later, free_at = list(self._next_due.values()), self._free_at
        times = [at for lane, at in later if at > now and can_run(worker, queues, lane)]
        if free_at is not None and free_at > now:
            times.append(free_at)
        return min(times, default=None)

    def exhausted(self, candidate: PostgresCandidateLane) -> None:
        """A claim found nothing more in this lane."""
        with self._lock:
            if self.lanes.get(candidate.hash) is candidate:
                del self.lanes[candidate.hash]
                if len(self._ends) >= _MOST_ENDS:
                    self._ends.clear()
                self._ends[candidate.hash] = candidate.floor, candidate.row_floor

    def fresh(self, now: float) -> bool:
        # `now` may be a test's clock that stands still; bottom_due always goes by real time.
        return self._looked_at <= now and not self._stale and not self.bottom_due()

    def bottom_due(self) -> bool:
        """Whether it is time to look from the bottom."""
        return time.monotonic() >= self._bottom_at

    def floors(self) -> tuple[list[int], list[bytes], list[float]]:
        """The known lanes, and from where to look at each."""
        with self._lock:
            for candidate in self.lanes.values():
                self._floors[candidate.hash] = candidate.floor, candidate.row_floor
            while self._announced:
                number = self._announced.pop()
                # New jobs come after those that were taken, which may be dead rows by now.
                self._floors.setdefault(number, self._ends.get(number, (_LOWEST, 0.0)))
            known = list(self._floors.items())
        return (
            [number for number, _ in known],
            [floor for _, (floor, _) in known],
            [row_floor for _, (_, row_floor) in known],
        )

    def learn(
        self,
        rows: Answer,
        lane_of: Callable[[int], Lane],
        now: float,
        *,
        seconds: float,
        bottom: bool,
    ) -> None:
        """Take over what a look found; `seconds` is how long it took."""
        known, found = self.lanes, dict[int, PostgresCandidateLane]()
        next_due: dict[int, tuple[Lane, float]] = {}
        for lane, first, jobs, run_at, policy in rows:
            if lane is None:
                continue
            number = to_int(lane)
            candidate = found.get(number)
            if candidate is None:
                candidate = found[number] = PostgresCandidateLane(number, lane_of(number))
                candidate.head = float("inf")
            candidate.policy = policy.decode() if policy else None
            before = known.get(number)
            if first is not None:
                candidate.packed = True
                candidate.floor = first
                candidate.head = min(candidate.head, made_at(first))
                candidate.per_parcel = before.per_parcel if before else to_int(jobs or b"\x01")
            elif run_at is not None:
                [due] = struct.unpack(">d", run_at)
                if due > now:
                    next_due[number] = candidate.lane, due
                if not candidate.loose:  # else it was the lane's first row, and this is the next
                    candidate.loose = True
                    candidate.row_due = due
                    # A floor skips what is gone, and nothing that is still to come.
                    candidate.row_floor = min(due, now)
                    candidate.head = min(candidate.head, due)
        with self._lock:
            self.lanes, self._free_at, self._looked_at = found, None, now
            self._stale = False
            self._next_due = next_due if bottom else self._next_due | next_due
            if bottom:
                pause = min(max(FRESH_SECONDS, seconds * _SHARE), _LONGEST_SECONDS)
                self._looked_from_bottom_at = time.monotonic()
                self._bottom_at = self._looked_from_bottom_at + pause
                self._anywhere = False
                self._floors = {}
                self._announced.clear()

    def best(
        self,
        worker: WorkerRow,
        queues: Collection[str] | None,
        sizes: Mapping[str, int] | None,
        now: float,
    ) -> Shared[PostgresCandidateLane]:
        """The lanes to claim from next, and the queues among them that share the claim."""
        with self._lock:
            known = list(self.lanes.values())
        candidates = [
            candidate
            for candidate in known
            if (candidate.packed or candidate.row_due <= now)
            and can_run(worker, queues, candidate.lane)
            and (sizes is None or sizes.get(candidate.lane.task, 1) > 0)
        ]
        candidates.sort(key=lambda candidate: candidate.rank(now))
        policies = {lane.lane.queue: lane.policy for lane in candidates if lane.policy}
        if policies:
            candidates = in_turn(candidates, policies, lambda candidate: candidate.lane)
        return self.turns.first(worker.id, candidates, LANES_PER_CLAIM)
