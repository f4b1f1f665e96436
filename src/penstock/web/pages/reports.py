"""Reports: what the store can tell of the last while, and what the lake's last report says.

The lake's page was made by Spark, out of names that are anybody's: it is served in a sandbox of its
own, where nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from starlette.responses import Response

from penstock.mark import gap_text, place_of
from penstock.recent import Depth, read_recent
from penstock.web.asked import Asked, NotFound

REPORT = "penstock-report.html"
MOST_TASKS = 50
MOST_PAGE_BYTES = 20 * 1024 * 1024
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)


class Line(NamedTuple):
    """A row of depths as an SVG has it: 300 wide, 60 high."""

    title: str
    points: str
    highest: float
    last: float


def show(asked: Asked) -> Response:
    recent = read_recent(asked.verbs.history)
    lake = asked.site.lake
    page = None if lake is None else _page(lake)
    return asked.page(
        "reports.html",
        title="Reports",
        cli="penstock pipeline report" + (f" --lake {lake}" if lake is not None else ""),
        recent=recent,
        tasks=recent.tasks[:MOST_TASKS],
        lines=_lines(recent.depths),
        lakes=asked.verbs.lakes(),
        place_of=place_of,
        gap_text=gap_text,
        lake=lake,
        report=None if page is None else page.stat().st_mtime,
        name_of_report=REPORT,
    )


def lake(asked: Asked) -> Response:
    """The report of the lake, as it was last made."""
    asked.verbs.lakes()  # whoever may not look at those may not look at this
    page = None if asked.site.lake is None else _page(asked.site.lake)
    if page is None:
        raise NotFound("There is no report of a lake here.")
    return Response(
        page.read_bytes(),
        media_type="text/html",
        headers={"content-security-policy": _POLICY},
    )


def _page(lake: Path) -> Path | None:
    page = lake / REPORT
    if not page.is_file() or page.stat().st_size > MOST_PAGE_BYTES:
        return None
    return page


def _lines(depths: Sequence[Depth]) -> list[Line]:
    if len(depths) < 2:
        return []
    wanted: list[tuple[str, Callable[[Depth], float]]] = [
        ("ready", lambda each: each.ready),
        ("running", lambda each: each.running),
        ("failed", lambda each: each.failed),
        ("seconds that the oldest waits", lambda each: each.oldest or 0.0),
    ]
    first, whole = depths[0].at, max(depths[-1].at - depths[0].at, 1.0)
    lines: list[Line] = []
    for title, value in wanted:
        highest = max(value(each) for each in depths)
        points = " ".join(
            f"{300 * (each.at - first) / whole:.1f},{58 - 56 * value(each) / (highest or 1):.1f}"
            for each in depths
        )
        lines.append(Line(title, points, highest, value(depths[-1])))
    return lines
