"""Times and durations as people read them; programs get `to_json.iso`."""

from __future__ import annotations

from datetime import UTC, datetime


def duration_text(seconds: float) -> str:
    """A duration in its two largest units: `3 min 20 s`."""
    left = max(round(seconds), 0)
    if left < 1:
        return "less than a second"
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number:
            parts.append(f"{number} {unit}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts)


def time_text(at: float) -> str:
    """A time: `2026-11-15 09:10:00 UTC`."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return f"{at:.0f} s since 1970"


def relative_time(at: float | None, now: float) -> str:
    """A time relative to now: `3 min ago`, `in 2 h`."""
    if at is None:
        return ""
    if abs(now - at) < 1:
        return "now"
    return f"{duration_text(now - at)} ago" if at <= now else f"in {duration_text(at - now)}"
