"""The jobs that a child runs at this moment, in memory that it shares with its supervisor.

A child that was killed, or whose interpreter is held by a job, cannot be asked; this memory can be
read. Written before every start, so `hold` must stay cheap (0.15 us).

    header   pulse · last claim · last answer · last reached · settled · stale · memory · running ·
             flags
    slot     attempt (0: free) · at most once · deadline (monotonic, 0: none) · job id
    extra    as a slot, for the further jobs of a batch

There is no lock: the supervisor acts on a slot only when the child is dead or has no pulse.
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
_REST = struct.Struct("<dddQQQII")  # the header without the pulse
_SLOT = struct.Struct("<IId36s")
_ATTEMPT = struct.Struct("<I")
_STRIDE = 64
_EXTRA_SLOTS = 8192  # untouched pages cost no memory


def _size(count: int) -> int:
    return _STRIDE * (1 + count + _EXTRA_SLOTS)


class Flag(IntFlag):
    """What a child reports about itself."""

    READY = 1  # it has loaded the app and claims jobs
    RETIRING = 2  # it is about to exit, and should be replaced now
    DRAINED = 4  # it exits because no job is left


class HeldJob(NamedTuple):
    """A job that a child runs."""

    id: str
    attempt: int
    deadline: float  # monotonic; 0: none
    at_most_once: bool


class Vitals(NamedTuple):
    """How a child is doing."""

    pulse: int = 0
    claimed_at: float = 0.0  # seconds since the epoch; 0: not yet
    answered_at: float = 0.0  # monotonic: when a claim last succeeded
    reached_at: float = 0.0  # monotonic: when any call to the store last succeeded
    settled: int = 0
    stale: int = 0
    memory: int = 0  # bytes
    running: int = 0
    flags: int = 0


class RunningSlots:
    """`count` slots and a header; `make` allocates the memory, a child maps its descriptor."""

    def __init__(self, count: int, descriptor: int | None = None) -> None:
        self.count = count
        self.descriptor = descriptor
        self._extra = deque(range(count, count + _EXTRA_SLOTS))
        size = _size(count)
        # Without a descriptor the memory is private: a worker without a supervisor.
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)

    @classmethod
    def make(cls, count: int) -> RunningSlots:
        """Allocate memory whose descriptor a child can inherit."""
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("penstock-slots")
        else:
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, _size(count))
        return cls(count, descriptor)

    def hold(self, index: int, job: Job[Any], deadline: float) -> None:
        """Record that this job starts now."""
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

    def hold_extra(self, jobs: Sequence[Job[Any]], deadline: float) -> list[int]:
        """Record that these jobs of a batch start too; returns a slot for each.

        Fewer if no more are free: the remaining jobs must not start.
        """
        slots: list[int] = []
        for job in jobs:
            try:
                slot = self._extra.popleft()
            except IndexError:
                break
            self.hold(slot, job, deadline)
            slots.append(slot)
        return slots

    def free_extra(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.free(slot)
        self._extra.extend(slots)

    def held(self) -> list[HeldJob]:
        """The jobs that run now, or that ran when the child died."""
        jobs: list[HeldJob] = []
        for index in range(self.count + _EXTRA_SLOTS):
            attempt, once, deadline, job_id = _SLOT.unpack_from(
                self._memory, _STRIDE + index * _STRIDE
            )
            if attempt:
                jobs.append(
                    HeldJob(job_id.decode("ascii", "replace"), attempt, deadline, bool(once))
                )
        return jobs

    @property
    def vitals(self) -> Vitals:
        try:
            return Vitals(self.pulse, *_REST.unpack_from(self._memory, _PULSE.size))
        except ValueError:  # closed by the supervisor's other thread: the child has ended
            return Vitals()

    def publish(self, vitals: Vitals) -> None:
        """Write the header, without the pulse."""
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
