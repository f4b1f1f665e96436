"""Forecast: jobs and slots that each queue needs in the next seven days.

A linear regression over the whole days of history, or their mean if there are fewer than seven. The
peak is the busiest hour of the last seven days, scaled by the same growth. No seasonality; the page
shows how many days a number is based on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from statistics import fmean, linear_regression
from typing import Any

from penstock.spark.pipelines.rollups.tables import DAY, HOUR

USE = 0.7  # of a slot; above that, queueing delay grows steeply
_WEEK = 7


def forecast(hours: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """From rows of a queue and hour `at` with `attempts` and `busy` seconds: a row per queue."""
    attempts: dict[str, Counter[int]] = defaultdict(Counter)
    peaks: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for row in hours:
        queue, day = row["queue"], int(row["at"] // DAY)
        attempts[queue][day] += row["attempts"]
        peaks[queue][day] = max(peaks[queue][day], row["busy"] or 0.0)
    if not hours:
        return
    first, last = min(row["at"] for row in hours) // DAY, max(row["at"] for row in hours) // DAY
    # The last day is incomplete, and left out unless it is the only one. Idle days count as zero.
    days = range(int(first), max(int(last), int(first) + 1))
    for queue, of_day in attempts.items():
        daily = [of_day[day] for day in days]
        coming = mean = fmean(daily)
        if len(days) >= _WEEK:
            slope, intercept = linear_regression(days, daily)
            # The middle of the week that begins after the last whole day.
            coming = max(0.0, intercept + slope * (days[-1] + _WEEK / 2 + 0.5))
        lately = fmean(daily[-_WEEK:])
        growth = coming / lately if lately else 1.0
        peak = max(peaks[queue][day] for day in days[-_WEEK:]) / HOUR
        yield {
            "queue": queue,
            "days": len(days),
            "daily": mean,
            "next_week": coming * _WEEK,
            "growth": growth,
            "peak_at_a_time": peak,
            "slots": max(1, ceil(peak * growth / USE)),
        }
