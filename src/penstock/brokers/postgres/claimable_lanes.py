"""What there is to claim: the lanes with work, best first, and where this worker is in each.

A worker goes on from where it was (the floor): what is dead before it, because some snapshot is
open, costs it nothing. It looks around when it hears of a lane that it does not know; and from the
bottom, which finds whatever was committed late or in another lane, when there was nothing and every
50 ms, less often where that takes long.
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

FRESH_SECONDS = 0.05
_SHARE = 100  # looking from the bottom takes at most a hundredth of the time
_LONGEST_SECONDS = 1.0  # one that was slow once must not hide other lanes for long
AT_ONCE = 8  # lanes offered to one claim
_LOWEST = bytes(16)
_ENDS = 10_000  # lanes whose end is remembered


class PostgresLaneOffer:
    """One lane, as far as this worker knows it."""

    __slots__ = (
        "floor",
        "hash",
        "head",
        "lane",
        "loose",
        "packed",
        "per_parcel",
        "policy",
        "row_floor",
    )

    def __init__(self, number: int, lane: Lane) -> None:
        self.hash = number
        self.lane = lane
        self.head = 0.0  # when its oldest job was due
        self.packed = False  # it has parcels
        self.loose = False  # and rows of its own
        self.floor = _LOWEST
        self.row_floor = 0.0
        self.per_parcel = 1.0
        self.policy: str | None = None  # its queue is handed out by key

    def guess(self, want: int) -> int:
        """How many parcels hold so many jobs."""
        return int(want / self.per_parcel) + 1

    def rank(self, now: float) -> tuple[float, float, int]:
        # Ageing: a minute of waiting is worth one step of priority. The least is the best.
        return -(self.lane.priority + max(0.0, now - self.head) / 60), self.head, self.hash


class PostgresClaimableLanes:
    """The lanes that have work."""

    def __init__(self) -> None:
        self.lanes: dict[int, PostgresLaneOffer] = {}
        self.next_due: float | None = None  # when the earliest job that waits for its time is due
        self._stale = True
        self._looked = -1.0
        self._bottom_at = -1.0  # when to look from the bottom again
        self._floors: dict[int, tuple[bytes, float]] = {}  # of lanes that had work lately
        self._ends: dict[int, tuple[bytes, float]] = {}  # and of those where nothing was left
        self._heard: set[int] = set()
        self._lock = threading.Lock()  # threads of one broker may claim at the same time

    def forget(self, lanes: Iterable[int] = ()) -> None:
        """There may be something new, in these lanes if that is known."""
        with self._lock:
            self._stale = True
            self._heard.update(lanes)

    def hear(self, lanes: Iterable[int] | None) -> None:
        """Something came into these lanes, or anywhere; of those known here that is no news."""
        unknown = () if lanes is None else set(lanes).difference(self.lanes)
        if lanes is None or unknown:
            self.forget(unknown)

    def free_at(self, at: float) -> None:
        """A limit lets more start then."""
        with self._lock:
            self.next_due = at if self.next_due is None else min(at, self.next_due)

    def exhausted(self, offer: PostgresLaneOffer) -> None:
        """Nothing more was found in there."""
        with self._lock:
            if self.lanes.get(offer.hash) is offer:
                del self.lanes[offer.hash]
                if len(self._ends) >= _ENDS:
                    self._ends.clear()
                self._ends[offer.hash] = offer.floor, offer.row_floor

    def fresh(self, now: float) -> bool:
        # `now` may be a test's; the other is not, so that a clock that stands still is no excuse.
        return self._looked <= now and not self._stale and not self.bottom()

    def bottom(self) -> bool:
        """Whether it is time to look from the bottom."""
        return time.monotonic() >= self._bottom_at

    def floors(self) -> tuple[list[int], list[bytes], list[float]]:
        """The known lanes, and from where to look at each."""
        with self._lock:
            for offer in self.lanes.values():
                self._floors[offer.hash] = offer.floor, offer.row_floor
            while self._heard:
                number = self._heard.pop()
                # What comes next comes after what was taken; all that is dead before is passed by.
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
        """Take over what a look found, and how long that took."""
        known, found = self.lanes, dict[int, PostgresLaneOffer]()
        next_due: float | None = None
        for lane, first, jobs, run_at, news in rows:
            if lane is None:
                continue
            number = to_int(lane)
            offer = found.get(number)
            if offer is None:
                offer = found[number] = PostgresLaneOffer(number, lane_of(number))
                offer.head = float("inf")
            offer.policy = news.decode() if news else None
            before = known.get(number)
            if first is not None:
                offer.packed = True
                offer.floor = first
                offer.head = min(offer.head, made_at(first))
                offer.per_parcel = before.per_parcel if before else to_int(jobs or b"\x01")
            elif run_at is not None:
                [due] = struct.unpack(">d", run_at)
                offer.loose = True
                offer.row_floor = due
                offer.head = min(offer.head, due)
                if due > now and (next_due is None or due < next_due):
                    next_due = due
        moment = time.monotonic()
        with self._lock:
            self.lanes, self.next_due, self._looked = found, next_due, now
            self._stale = False
            if bottom:
                until = max(FRESH_SECONDS, seconds * _SHARE)
                self._bottom_at = moment + min(until, _LONGEST_SECONDS)
                self._floors = {}
                self._heard.clear()

    def best(
        self,
        worker: WorkerRow,
        queues: Collection[str] | None,
        sizes: Mapping[str, int] | None,
        now: float,
    ) -> list[PostgresLaneOffer]:
        """The lanes to try next."""
        with self._lock:
            known = list(self.lanes.values())
        offers = [
            offer
            for offer in known
            if (offer.packed or offer.row_floor <= now)
            and can_run(worker, queues, offer.lane)
            and (sizes is None or sizes.get(offer.lane.task, 1) > 0)
        ]
        offers.sort(key=lambda offer: offer.rank(now))
        policies = {offer.lane.queue: offer.policy for offer in offers if offer.policy}
        if policies:
            offers = in_turn(offers, policies, lambda offer: offer.lane)
        return offers[:AT_ONCE]
