"""The jobs that a child runs at this moment, in memory that it shares with its supervisor.

A child that was killed, or whose interpreter is held by a job, cannot be asked; this memory can be
read. It is a file of the state folder (`slots_files.py`), so that it outlives both of them: whoever
starts next on this host reads it. Written before every start, so `hold` must stay cheap (0.15 us).

    header   pulse · last claim · last answer · last reached · settled · stale · memory · running ·
             flags
    process  the supervisor's, then the child's: which processes these are, see `ProcessId`
    slot     attempt (0: free) · at most once · deadline (monotonic, 0: none) · job id
    extra    as a slot, for the further jobs of a batch
    counts   JSON: the put-backs, see `put_backs.py`

There is no lock: the supervisor acts on a slot only when the child is dead or has no pulse. Nothing
is synced to the disk: a kill does not touch the memory, and after a power cut the boot id differs.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

import msgspec

from penstock.job import Job
from penstock.worker.detached.processes import ProcessId
from penstock.worker.put_backs import MOST_BYTES, ByQueue, encoded

_PULSE = struct.Struct("<Q")
_64_BITS = (1 << 64) - 1
_REST = struct.Struct("<dddQQQIIQ")  # the header without the pulse
_SLOT = struct.Struct("<IId36s12x")
_ATTEMPT = struct.Struct("<I")
_STRIDE = 64
_PROCESS = 1024  # bytes of JSON, padded with zeros
_SLOTS_AT = _STRIDE + 2 * _PROCESS
_EXTRA_SLOTS = 8192
_MOST_NAMED = 1000


def _counts_at(count: int) -> int:
    return _SLOTS_AT + _STRIDE * (count + _EXTRA_SLOTS)


def _size(count: int) -> int:
    return _counts_at(count) + MOST_BYTES


class Flag(IntFlag):
    """What a child reports about itself."""

    READY = 1  # it has loaded the app and claims jobs
    RETIRING = 2  # it is about to exit, and should be replaced now
    DRAINED = 4  # it exits because no job is left


class SlotsOwner(IntEnum):
    """The two processes that a file of slots belongs to."""

    SUPERVISOR = 0
    CHILD = 1


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
    rules_version: int = 0  # as the child last heard it from the store


class RunningSlots:
    """`count` slots and a header; `make` allocates the memory, a child maps its descriptor."""

    def __init__(self, count: int, descriptor: int | None = None) -> None:
        self.count = count
        self.descriptor = descriptor
        self._extra = deque(range(count, count + _EXTRA_SLOTS))
        size = _size(count)
        # Without a descriptor the memory is private: a worker without a supervisor.
        self._memory = mmap.mmap(-1 if descriptor is None else descriptor, size)
        self._put_backs: ByQueue = {}  # as they were published, or read, last

    @classmethod
    def make(cls, count: int, file: int | None = None) -> RunningSlots:
        """Memory whose descriptor a child can inherit: of this new file, or of no file.

        Takes over the file, also when it raises.
        """
        if file is not None:
            descriptor = file
        elif hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("penstock-slots")
        else:
            with tempfile.TemporaryFile() as unnamed:
                descriptor = os.dup(unnamed.fileno())
        try:
            if file is not None and hasattr(os, "posix_fallocate"):
                # All of it, now: on a full disk, writing to a hole would kill the child by SIGBUS.
                os.posix_fallocate(descriptor, 0, _size(count))
            else:
                os.ftruncate(descriptor, _size(count))
            return cls(count, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def read(cls, descriptor: int) -> RunningSlots | None:
        """The slots in a file that somebody left; None if it is none, or not complete yet."""
        count, odd = divmod(os.fstat(descriptor).st_size - _size(0), _STRIDE)
        if count < 1 or odd:
            os.close(descriptor)
            return None
        return cls(count, descriptor)

    def sign(self, owner: SlotsOwner, process: ProcessId | None = None) -> None:
        """Record which process this is, if none is given."""
        encoded = msgspec.json.encode(process or ProcessId.own())[:_PROCESS]
        place = _STRIDE + owner * _PROCESS
        self._memory[place : place + _PROCESS] = encoded.ljust(_PROCESS, b"\0")

    def signed(self) -> list[ProcessId]:
        """The processes that have signed; one that cannot be read is left out."""
        processes: list[ProcessId] = []
        for owner in SlotsOwner:
            place = _STRIDE + owner * _PROCESS
            encoded = self._memory[place : place + _PROCESS].rstrip(b"\0")
            try:
                processes.append(msgspec.json.decode(encoded, type=ProcessId))
            except msgspec.DecodeError:
                continue
        return processes

    def hold(self, index: int, job: Job[Any], deadline: float) -> None:
        """Record that this job starts now."""
        _SLOT.pack_into(
            self._memory,
            _SLOTS_AT + index * _STRIDE,
            job.attempt,
            job.at_most_once,
            deadline,
            job.id.encode(),
        )

    def free(self, index: int) -> None:
        _ATTEMPT.pack_into(self._memory, _SLOTS_AT + index * _STRIDE, 0)

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

    def take_extra(self) -> int | None:
        """A slot for a further thread, or for a further job of the event loop; None: no more."""
        try:
            return self._extra.popleft()
        except IndexError:
            return None

    def free_extra(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.free(slot)
        self._extra.extend(slots)

    def held(self) -> list[HeldJob]:
        """The jobs that run now, or that ran when the child died."""
        return [
            HeldJob(job_id.decode("ascii", "replace"), attempt, deadline, bool(once))
            for attempt, once, deadline, job_id in _SLOT.iter_unpack(
                self._memory[_SLOTS_AT : _counts_at(self.count)]
            )
            if attempt
        ]

    def began(self) -> tuple[str, ...]:
        """The ids of jobs that run now, as a renewal names them: the first thousand."""
        try:
            return tuple(job.id for job in self.held()[:_MOST_NAMED])
        except ValueError:  # closed by the supervisor's other thread: the child has ended
            return ()

    @property
    def vitals(self) -> Vitals:
        try:
            return Vitals(self.pulse, *_REST.unpack_from(self._memory, _PULSE.size))
        except ValueError:  # closed by the supervisor's other thread: the child has ended
            return Vitals()

    def publish(self, vitals: Vitals) -> None:
        """Write the header, without the pulse."""
        *rest, rules_version = vitals[1:]
        _REST.pack_into(self._memory, _PULSE.size, *rest, rules_version & _64_BITS)

    def publish_put_backs(self, by_queue: ByQueue) -> None:
        """Write how many jobs were put back; nothing if that has not changed."""
        if by_queue is not self._put_backs:
            self._put_backs, at = by_queue, _counts_at(self.count)
            self._memory[at : at + MOST_BYTES] = encoded(by_queue).ljust(MOST_BYTES, b"\0")

    def put_backs(self) -> ByQueue:
        """How many jobs were put back; what was read before while that is being written."""
        at = _counts_at(self.count)
        with suppress(ValueError, msgspec.DecodeError):  # closed; none yet, or half of it
            text = self._memory[at : at + MOST_BYTES].rstrip(b"\0")
            self._put_backs = msgspec.json.decode(text, type=dict[str, dict[str, int]])
        return self._put_backs

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


def job_list(held: Sequence[HeldJob], most: int = 5) -> str:
    """These jobs in a log line."""
    if not held:
        return "no job"
    ids = ", ".join(job.id for job in held[:most])
    more = f" and {len(held) - most} more" if len(held) > most else ""
    return f"{'job' if len(held) == 1 else 'jobs'} {ids}{more}"
