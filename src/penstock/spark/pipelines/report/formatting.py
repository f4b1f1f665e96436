"""Numbers as text for people: counts, durations and times, on the page and in the terminal."""

from __future__ import annotations

import math
from datetime import UTC, datetime

# The threshold from which a unit is used, its size and its name: 80 min, not 1.3 h.
_UNITS = (
    (1.5 * 86400, 86400.0, "d"),
    (1.5 * 3600, 3600.0, "h"),
    (90.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (0.0, 0.001, "ms"),
)
_COUNTS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
NONE = "-"
_TICKS = 4  # of an axis, about


def seconds_text(seconds: float | None, like: float | None = None) -> str:
    """A duration, as `350 ms` or `2.1 min`; in the unit of the duration `like`, if given."""
    if seconds is None:
        return NONE
    if seconds == 0:
        return "0 s"
    sample = abs(seconds if like is None else like)
    size, unit = next((size, unit) for start, size, unit in _UNITS if sample >= start)
    return f"{_short(seconds / size)} {unit}"


def interval_text(seconds: int) -> str:
    """An interval of whole minutes, hours or days: `1 h`, where `seconds_text` has `60 min`."""
    size, unit = next((size, unit) for _, size, unit in _UNITS if seconds % size == 0)
    return f"{seconds // size:.0f} {unit}"


def count_text(number: float | None) -> str:
    """A number in full: `1,234,567`."""
    return NONE if number is None else f"{round(number):,}"


def brief(number: float) -> str:
    """A number for an axis: `1.5 M`."""
    size, unit = next((unit for unit in _COUNTS if abs(number) >= unit[0]), (1.0, ""))
    return f"{_short(number / size)} {unit}".strip()


def share_text(part: float, whole: float) -> str:
    """A percentage: `1.2 %`."""
    return NONE if not whole else f"{_short(100 * part / whole)} %"


def moment_text(at: float | None) -> str:
    """A time in UTC, to the minute."""
    return NONE if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def ticks(most: float, *, seconds: bool = False) -> list[float]:
    """Round numbers for an axis from 0 to at least `most`."""
    if most <= 0:
        return [0.0, 1.0]
    # An axis in minutes is divided in minutes: ticks at 120 s, not 100.
    unit = next(size for start, size, _ in _UNITS if most >= start) if seconds else 1.0
    step = _round_step(most / unit / _TICKS) * unit
    if not seconds:
        step = max(step, 1.0)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * n for n in (1, 2, 2.5, 5, 10) if step <= power * n * (1 + 1e-9))


def _short(number: float) -> str:
    """About three digits."""
    if abs(number) >= 100 or number == int(number):
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2g}"
