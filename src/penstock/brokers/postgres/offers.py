"""What there is to claim: the lanes with work, best first, and where this worker is in each.

A worker goes on from where it was (the floor): what is dead before it, because some snapshot is
open, costs it nothing. It looks from the bottom again when a lane ran short and every 50 ms, which
finds whatever was committed late; looking takes at most a twentieth of its time.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Collection, Mapping

from penstock.broker import WorkerRow
from penstock.brokers.postgres.calls import Answer, to_int
from penstock.brokers.tables.rows import made_at
from penstock.brokers.tables.working import can_run
from penstock.job import Lane

FRESH_SECONDS = 0.05
_SHARE = 20
AT_ONCE = 8  # lanes offered to one claim
_LOWEST = bytes(16)


class Offer:
    """One lane, as far as this worker knows it."""

    __slots__ = ("floor", "hash", "head", "lane", "loose", "packed", "per_parcel", "row_floor")

    def __init__(self, number: int, lane: Lane) -> None:
        self.hash = number
        self.lane = lane
        self.head = 0.0  # when its oldest job was due
        self.packed = False  # it has parcels
        self.loose = False  # and rows of its own
        self.floor = _LOWEST
        self.row_floor = 0.0
        self.per_parcel = 1.0

    def guess(self, want: int) -> int:
        """How many parcels hold so many jobs."""
        return int(want / self.per_parcel) + 1

    def rank(self, now: float) -> tuple[float, float, int]:
        # Ageing: a minute of waiting is worth one step of priority. The least is the best.
        return -(self.lane.priority + max(0.0, now - self.head) / 60), self.head, self.hash


class Offers:
    """The lanes that have work."""

    def __init__(self) -> None:
        self.lanes: dict[int, Offer] = {}
        self.next_due: float | None = None  # when the earliest job that waits for its time is due
        self.looked_at = -1.0
        self._good_until = -1.0
        self._looked = -1.0

    def forget(self) -> None:
        self._good_until = -1.0

    def exhausted(self, offer: Offer) -> None:
        """Nothing more was found in there."""
        if self.lanes.get(offer.hash) is offer:
            del self.lanes[offer.hash]

    def fresh(self, now: float) -> bool:
        # `now` may be a test's; the other is not, so that a clock that stands still is no excuse.
        return self._looked <= now and time.monotonic() < self._good_until

    def learn(self, rows: Answer, lane_of: Callable[[int], Lane], now: float, began: float) -> None:
        """Take over what a look found."""
        known = self.lanes
        self.lanes = {}
        self.next_due = None
        for lane, first, jobs, run_at, _ in rows:
            if lane is None:
                continue
            number = to_int(lane)
            offer = self.lanes.get(number)
            if offer is None:
                offer = self.lanes[number] = Offer(number, lane_of(number))
                offer.head = float("inf")
                if number in known:
                    offer.per_parcel = known[number].per_parcel
            if first is not None:
                offer.packed = True
                offer.floor = first
                offer.head = min(offer.head, made_at(first))
                if number not in known:
                    offer.per_parcel = to_int(jobs or b"\x01")
            elif run_at is not None:
                [due] = struct.unpack(">d", run_at)
                offer.loose = True
                offer.row_floor = due
                offer.head = min(offer.head, due)
                if due > now and (self.next_due is None or due < self.next_due):
                    self.next_due = due
        self._looked = self.looked_at = now
        spent = time.monotonic() - began
        self._good_until = time.monotonic() + max(FRESH_SECONDS, spent * _SHARE)

    def best(
        self,
        worker: WorkerRow,
        queues: Collection[str] | None,
        sizes: Mapping[str, int] | None,
        now: float,
    ) -> list[Offer]:
        """The lanes to try next."""
        offers = [
            offer
            for offer in self.lanes.values()
            if (offer.packed or offer.row_floor <= now)
            and can_run(worker, queues, offer.lane)
            and (sizes is None or sizes.get(offer.lane.task, 1) > 0)
        ]
        offers.sort(key=lambda offer: offer.rank(now))
        return offers[:AT_ONCE]
