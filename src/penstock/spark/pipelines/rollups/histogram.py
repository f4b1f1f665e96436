"""Histograms of durations, as rows of a bucket and a count that any engine can add up.

The buckets are those of `broker.histogram`, here for whole columns.
"""

from __future__ import annotations

from math import log
from typing import Any

from penstock.broker.histogram import WIDTH
from penstock.spark.untyped_arrow import arrow, compute

RANKS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def buckets(microseconds: Any) -> Any:
    """The bucket of each duration of an Arrow array; null stays null."""
    some = compute.max_element_wise(microseconds, 1).cast(arrow.float64())
    number = compute.floor(compute.divide(compute.ln(some), log(WIDTH)))
    return compute.if_else(
        compute.less_equal(microseconds, 0),
        arrow.scalar(0, arrow.int16()),
        compute.add(number, 1).cast(arrow.int16()),
    )
