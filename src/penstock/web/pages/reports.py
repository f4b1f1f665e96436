"""The page Reports: recent statistics from the store, and the last report of the lake.

The lake's report is HTML made by Spark from untrusted names: it is served in a sandbox without
scripts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.app.private_files import open_below
from penstock.broker.lake_mark import gap_text, place_of
from penstock.errors import Refused
from penstock.operate.recent_stats import QueueDepth, read_recent_stats
from penstock.operate.refusals import NotFound
from penstock.web.request import WebRequest

REPORT = "penstock-report.html"
MOST_TASKS = 50
MOST_PAGE_BYTES = 20 * 1024 * 1024
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)


class Chart(NamedTuple):
    """One plot over time, drawn by the browser."""

    title: str
    says: str  # the same in words, for screen readers
    drawn: str  # JSON for charts.js


def show(request: WebRequest) -> Response:
    recent = read_recent_stats(request.store.history)
    lake = request.site.lake
    made_at = fault = None
    if lake is not None:
        try:
            with _opened(lake) as page:
                made_at = os.fstat(page.fileno()).st_mtime
        except FileNotFoundError:
            pass
        except (OSError, Refused) as error:
            fault = str(error)
    return request.page(
        "reports.html",
        title="Reports",
        cli="penstock pipeline report" + (f" --lake {lake}" if lake is not None else ""),
        recent=recent,
        tasks=recent.tasks[:MOST_TASKS],
        charts=_charts(recent.depths),
        lakes=request.store.lakes(),
        place_of=place_of,
        gap_text=gap_text,
        lake=lake,
        report=made_at,
        fault=fault,
        name_of_report=REPORT,
    )


def lake(request: WebRequest) -> Response:
    """The last report of the lake."""
    request.store.lakes()  # checks the role
    if request.site.lake is None:
        raise NotFound("The dashboard has no report of a lake: start it with --lake.")
    try:
        with _opened(request.site.lake) as page:
            text = page.read(MOST_PAGE_BYTES)
    except OSError:
        raise NotFound("The dashboard has no report of a lake: start it with --lake.") from None
    except Refused as error:
        raise NotFound(str(error)) from None
    return Response(text, media_type="text/html", headers={"content-security-policy": _POLICY})


def _opened(lake: Path) -> BinaryIO:
    """Open the report; others may write to the lake, so links and foreign files are refused."""
    page = os.fdopen(open_below(lake, REPORT), "rb")
    if os.fstat(page.fileno()).st_size > MOST_PAGE_BYTES:
        page.close()
        raise Refused(f"{lake / REPORT} has more than {MOST_PAGE_BYTES:,} bytes and is not shown")
    return page


def _charts(depths: Sequence[QueueDepth]) -> list[Chart]:
    if len(depths) < 2:
        return []
    standing = _chart(
        "Jobs by state",
        depths,
        "jobs",
        ("ready", "--ready", lambda each: each.ready),
        ("held back", "--paused", lambda each: each.held),
        ("running", "--running", lambda each: each.running),
    )
    failed = _chart(
        "Failed jobs",
        depths,
        "jobs",
        ("failed", "--failed", lambda each: each.failed),
    )
    oldest = _chart(
        "Wait of the oldest due job",
        depths,
        "seconds",
        ("oldest", "--accent", lambda each: each.oldest or 0.0),
    )
    return [standing, failed, oldest]


def _chart(
    title: str,
    depths: Sequence[QueueDepth],
    unit: str,
    *lines: tuple[str, str, Callable[[QueueDepth], float]],
) -> Chart:
    series = [
        {"label": label, "colour": colour, "values": [value(each) for each in depths]}
        for label, colour, value in lines
    ]
    summary = (
        f"{label}: {max(map(value, depths)):,.0f} at most, {value(depths[-1]):,.0f} at the end"
        for label, _, value in lines
    )
    drawn = {"at": [each.at for each in depths], "unit": unit, "series": series}
    return Chart(
        title, f"{title}, {unit}. {'; '.join(summary)}", msgspec.json.encode(drawn).decode()
    )
