"""What a child runs at this moment, in memory that it shares with its supervisor.

A child that was killed, or that never lets go of the interpreter, cannot be asked; this is what it
left behind. Written before every start, so `hold` must stay cheap (0.15 us).

    header   pulse · last claim · last answer · settled · stale · memory · running · flags
    slot     attempt (0: free) · at most once · deadline (monotonic, 0: none) · job id
    place    as a slot, for a job of a batch beside the first

There is no lock: the supervisor acts on a slot only when the child is gone or stands still.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections import deque
from collections.abc import Sequence
from enum import IntFlag
from typing import Any, NamedTuple

from penstock.job import Job

_PULSE = struct.Struct("<Q")
_REST = struct.Struct("<ddQQQII")  # of the header: the pulse is another thread's
_SLOT = struct.Struct("<IId36s")
_ATTEMPT = struct.Struct("<I")
_STRIDE = 64
_PLACES = 8192  # memory that no batch has touched costs nothing


def _size(count: int) -> int:
    return _STRIDE * (1 + count + _PLACES)


class Flag(IntFlag):
    """What a child says about itself."""

    READY = 1  # it has loaded the app and claims
    RETIRING = 2  # it will end, and wants to be replaced now
    DRAINED = 4  # it ends because nothing is left to do


class HeldJob(NamedTuple):
    """One job that runs."""

    id: str
    attempt: int
    deadline: float  # monotonic; 0: none
    at_most_once: bool


class Vitals(NamedTuple):
    """How a child is doing."""

    pulse: int = 0
    claimed_at: float = 0.0  # seconds since the epoch; 0: not yet
    answered_at: float = 0.0  # monotonic: when the store last did what it was asked
    settled: int = 0
    stale: int = 0
    memory: int = 0  # bytes
    running: int = 0
    flags: int = 0


class RunningSlots:
    """`count` slots and a header, in memory made by `make` and found again through its number."""

    def __init__(self, count: int, descriptor: int | None = None) -> None:
        self.count = count
        self.descriptor = descriptor
        self._places = deque(range(count, count + _PLACES))
        size = _size(count)
        # Without a descriptor nobody else looks: a worker without a supervisor.
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)

    @classmethod
    def make(cls, count: int) -> RunningSlots:
        """Memory that a child can be handed by its descriptor."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("penstock-slots")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _size(count))
        return cls(count, descriptor)

    def hold(self, index: int, job: Job[Any], deadline: float) -> None:
        """Say that this job starts now."""
        _SLOT.pack_into(
            self._memory,
            _STRIDE + index * _STRIDE,
            job.attempt,
            job.at_most_once,
            deadline,
            job.id.encode(),
        )

    def free(self, index: int) -> None:
        _ATTEMPT.pack_into(self._memory, _STRIDE + index * _STRIDE, 0)

    def hold_beside(self, jobs: Sequence[Job[Any]], deadline: float) -> list[int]:
        """Say that these start, too, in the same call; the places that they have, one for each.

        Fewer when there is no more room: the rest must not start.
        """
        places: list[int] = []
        for job in jobs:
            try:
                place = self._places.popleft()
            except IndexError:
                break
            self.hold(place, job, deadline)
            places.append(place)
        return places

    def free_beside(self, places: Sequence[int]) -> None:
        for place in places:
            self.free(place)
        self._places.extend(places)

    def held(self) -> list[HeldJob]:
        """What runs now, or ran when the child died."""
        found: list[HeldJob] = []
        for index in range(self.count + _PLACES):
            attempt, once, deadline, job_id = _SLOT.unpack_from(
                self._memory, _STRIDE + index * _STRIDE
            )
            if attempt:
                found.append(
                    HeldJob(job_id.decode("ascii", "replace"), attempt, deadline, bool(once))
                )
        return found

    @property
    def vitals(self) -> Vitals:
        try:
            return Vitals(self.pulse, *_REST.unpack_from(self._memory, _PULSE.size))
        except ValueError:  # closed, by another thread of the supervisor that has just buried it
            return Vitals()

    def publish(self, vitals: Vitals) -> None:
        """Everything but the pulse."""
        _REST.pack_into(self._memory, _PULSE.size, *vitals[1:])

    @property
    def pulse(self) -> int:
        return _PULSE.unpack_from(self._memory)[0]

    def beat(self) -> None:
        _PULSE.pack_into(self._memory, 0, self.pulse + 1)

    def close(self) -> None:
        self._memory.close()
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
