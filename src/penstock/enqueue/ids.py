"""Job ids: UUIDs that sort by time, made by the caller.

    tttttttt-tttt-7sss-bbbr-rrrrrrrrrooo     t milliseconds, s fraction of one, r random, o offset
                       b: 800 and the bucket, 0 to 1023

Ids made one after the other for the same lane differ only in their last 12 bits, so that jobs
made together travel in one parcel whose key is the first of them. A run of such ids lasts for
`MOST_IN_PARCEL` jobs or a millisecond, whichever is less, and is of one bucket. Derived ids
(UUIDv8, first byte ff) are hashes: the same parts give the same id, whoever makes it. Lasting ids
are those from ff80 on: a store remembers for ever that their jobs were done.

The **bucket** is what jobs have in common that must be kept in one place: those of a flow, else of
a unique key, else of a key. It is the hash of that text, or random where there is none.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import threading
import uuid
from collections.abc import Hashable

from penstock.app.clock import SYSTEM_CLOCK, AnyClock
from penstock.errors import Refused

MOST_IN_PARCEL = 128
TICKS = 4_096_000  # in a second
_RUN_TICKS = 4096  # a run of ids lasts a millisecond; a tick is 1/4096 of one
_PAUSE_TICKS = 400  # a tenth of a millisecond: nobody makes jobs in a loop that slowly
_SET_BACK_TICKS = 30_000 * 4096  # half a minute; what is further back was not a late thread
OFFSETS = [f"{offset:03x}" for offset in range(4096)]
BUCKETS = 1024
_BYTES = 16
_PREFIX = 33  # of the 36 characters, all but the offset
FIRST_LASTING = b"\xff\x80"  # as bytes, lasting ids are from here on
_LASTING = tuple(f"ff{digit}" for digit in "89abcdef")


class Ids:
    """Makes ids from one clock; safe between threads, and after a fork."""

    def __init__(self, clock: AnyClock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self._lock = threading.Lock()
        self._last = 0
        self._runs: dict[Hashable, tuple[int, str, int, int, int | None]] = {}
        os.register_at_fork(after_in_child=self._forget)

    def next(self, lane: Hashable = None, bucket: int | None = None) -> str:
        """One id; neighbours of a lane follow on from one another. None: any bucket."""
        with self._lock:
            tick = self._tick()
            run = self._runs.get(lane)
            if (
                run is None
                or run[2] >= MOST_IN_PARCEL
                or not 0 <= tick - run[0] < _RUN_TICKS
                or tick - run[3] > _PAUSE_TICKS
                or run[4] != bucket
            ):
                if len(self._runs) > 1000:  # forget old lanes, whichever
                    self._runs.clear()
                tick = self._last = max(tick, self._last + 1)
                prefix = f"{time_text(tick)}-{_random_part(bucket)}"
                run = (tick, prefix, 0, tick, bucket)
            self._runs[lane] = (run[0], run[1], run[2] + 1, tick, bucket)
            return f"{run[1]}{run[2]:03x}"

    def first(self, bucket: int | None = None) -> str:
        """The first id of a parcel that nobody else adds to. None: any bucket."""
        with self._lock:
            tick = self._last = max(self._tick(), self._last + 1)
            # Jobs that travel alone go by their ids, whichever way each was made: the next of them
            # must not go on in a run of before this one.
            self._runs.pop(None, None)
            return f"{time_text(tick)}-{_random_part(bucket)}000"

    def _tick(self) -> int:
        tick = int(self.clock.now() * TICKS)
        if tick < self._last - _SET_BACK_TICKS:
            # Going on from the last id would make ids from the future, which stores refuse.
            self._last = tick
        return tick

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._runs = {}


# Seeded by the system, in every process anew: ids must differ, not be secret.
_random = random.Random()  # noqa: S311
os.register_at_fork(after_in_child=_random.seed)


def tick_of(seconds: float) -> int:
    return int(seconds * TICKS)


def time_text(tick: int) -> str:
    """How the ids of a tick begin."""
    milliseconds, fraction = divmod(tick, 4096)
    time = f"{milliseconds:012x}"
    return f"{time[:8]}-{time[8:]}-7{fraction:03x}"


def _random_part(bucket: int | None) -> str:
    """What stands between an id's time and its offset: the bucket, None is any, and noise."""
    noise = _random.getrandbits(50)
    if bucket is not None:
        noise = bucket << 40 | noise & 0xFFFFFFFFFF
    high, low = noise >> 36, noise & 0xFFFFFFFFF
    return f"{0x8000 | high:04x}-{low:09x}"


def bucket_of(job_id: str) -> int:
    """The bucket that an id names, derived ones too."""
    return int(job_id[19:22], 16) & 0x3FF


def bucket_for(text: str) -> int:
    """The bucket of all jobs that this text decides for."""
    # As it is, also where it is no text: the store refuses that in a sentence.
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return digest[0] << 2 | digest[1] >> 6


def bucket_by(unique: str | None, key: str | None) -> int | None:
    """The bucket of a job with this unique key and this key; None: any."""
    text = key if unique is None else unique
    return None if text is None else bucket_for(text)


def in_bucket(job_id: str, bucket: int) -> str:
    """The id as if it had been made for this bucket."""
    return f"{job_id[:19]}{0x800 | bucket:03x}{job_id[22:]}"


def prefix_of(job_id: str) -> str:
    return job_id[:_PREFIX]


def offset_of(job_id: str) -> int:
    return int(job_id[_PREFIX:], 16)


def is_derived(job_id: str) -> bool:
    return job_id.startswith("ff")


def time_of(job_id: str) -> float | None:
    """When the id was made, in seconds since the epoch; None for a derived one."""
    if is_derived(job_id):
        return None
    return int(job_id[:8] + job_id[9:13], 16) / 1000 + int(job_id[15:18], 16) / TICKS


def moved_id(job_id: str, seconds: float) -> str:
    """The id as if it had been made so much later; a derived one holds no time, and stays."""
    if is_derived(job_id):
        return job_id
    tick = int(job_id[:8] + job_id[9:13], 16) * 4096 + int(job_id[15:18], 16)
    return f"{time_text(tick + tick_of(seconds))}{job_id[18:]}"


def derived_id(*parts: str, bucket: str | None = None) -> str:
    """The id that these parts always lead to.

    `bucket` is the text that decides its bucket: unique key, else key, else the schedule's name;
    None: all of the parts.
    """
    return _derived_id(parts, bucket, 0x00)


def lasting_id(*parts: str, bucket: str | None = None) -> str:
    """As `derived_id`; once its job has succeeded, no store ever forgets the id."""
    return _derived_id(parts, bucket, 0x80)


def is_lasting(job_id: str) -> bool:
    return job_id.startswith(_LASTING)


def _derived_id(parts: tuple[str, ...], bucket: str | None, lasting: int) -> str:
    name = "\x00".join(parts)
    digest = bytearray(hashlib.sha256(name.encode()).digest()[:16])
    digest[0] = 0xFF
    digest[1] = lasting | (digest[1] & 0x7F)
    digest[6] = 0x80 | (digest[6] & 0x0F)
    digest[8] = 0x80 | (digest[8] & 0x3F)
    return in_bucket(from_bytes(bytes(digest)), bucket_for(name if bucket is None else bucket))


def to_bytes(job_id: str) -> bytes:
    try:
        raw = bytes.fromhex(job_id.replace("-", ""))
    except ValueError:
        raw = b""
    if len(raw) != _BYTES:
        raise Refused(f"{job_id!r} is not a job id")
    return raw


def from_bytes(raw: bytes) -> str:
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_AN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def parse_id(text: str) -> str:
    """The id in the form used here, from any spelling of a UUID."""
    if isinstance(text, str) and _AN_ID.fullmatch(text):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        return text
    try:
        return str(uuid.UUID(text.strip()))
    except (AttributeError, ValueError):
        message = f"{text!r} is not a job id: 32 hexadecimal digits, as `penstock find` shows them"
        raise Refused(message) from None


_ids = Ids()
next_id = _ids.next
