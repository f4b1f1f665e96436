"""Histograms of durations: a bucket and a count, which anybody can add up.

Bucket 0 is no time at all; bucket n is from 1.02^(n-1) to 1.02^n microseconds. The middle of a
bucket stands for everything in it, and is at most 1 % off. The lake's rollups have the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from math import ceil, floor, log

WIDTH = 1.02
MICROSECOND = 1e-6  # the resolution of stored times
_LOG_WIDTH = log(WIDTH)


def bucket_of_duration(seconds: float) -> int:
    """The bucket of a duration."""
    microseconds = seconds / MICROSECOND
    return 0 if microseconds <= 0 else floor(log(max(microseconds, 1.0)) / _LOG_WIDTH) + 1


def middle(bucket: int) -> float:
    """The seconds that a bucket stands for."""
    return bucket and MICROSECOND * WIDTH ** (bucket - 1) * 2 * WIDTH / (1 + WIDTH)


def percentile(counts: Mapping[int, int], rank: float) -> float | None:
    """Seconds at a rank from 0 to 1, between two durations in proportion; None if there is none."""
    ordered = sorted(counts)
    up_to = list(accumulate(counts[bucket] for bucket in ordered))
    if not up_to:
        return None
    place = rank * (up_to[-1] - 1)
    low, high = (middle(ordered[bisect_right(up_to, n)]) for n in (floor(place), ceil(place)))
    return low + (high - low) * (place % 1)
