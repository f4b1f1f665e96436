"""The page Reports: trends from the store, and the last report of the lake.

The lake's report is HTML made by Spark from untrusted names: it is served in a sandbox without
scripts.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from starlette.responses import Response

from penstock.app.private_files import open_below
from penstock.broker.lake_mark import gap_text, place_of
from penstock.errors import Refused
from penstock.operate.refusals import NotFound
from penstock.operate.trends import RANGES, Trend, parse_range
from penstock.web.request import WebRequest
from penstock.web.rest.reads import trend_filter

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
    over, only = parse_range(request.word("over")).name, trend_filter(request)
    trend = request.store.trend(over, only)
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
        trend=trend,
        ranges=RANGES,
        only=only,
        tasks=trend.tasks[:MOST_TASKS],
        charts=_charts(trend) if trend.known else [],
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


def _charts(trend: Trend) -> list[Chart]:
    """The charts of a range; one of which nothing is known is left out."""
    charts = [
        _chart(
            trend,
            "Ended attempts",
            "a second",
            ("succeeded", "--succeeded", trend.succeeded),
            ("failed", "--failed", trend.failed),
            ("runs again", "--running", trend.again),
        ),
        _chart(
            trend,
            "Wait until an attempt began",
            "seconds",
            ("average", "--accent", trend.wait),
            ("median", "--ready", trend.wait_p50),
            ("p95", "--paused", trend.wait_p95),
        ),
        _chart(
            trend,
            "Run time of attempts",
            "seconds",
            ("average", "--accent", trend.run),
            ("median", "--ready", trend.run_p50),
            ("p95", "--paused", trend.run_p95),
        ),
        _chart(
            trend,
            "Jobs by state, at most",
            "jobs",
            ("ready", "--ready", trend.ready),
            ("running", "--running", trend.running),
            ("held back", "--paused", trend.held),
            ("failed", "--failed", trend.kept_failed),
        ),
        _chart(
            trend, "Wait of the oldest due job", "seconds", ("oldest", "--accent", trend.oldest)
        ),
    ]
    return [each for each in charts if each is not None]


def _chart(
    trend: Trend, title: str, unit: str, *lines: tuple[str, str, list[float | None]]
) -> Chart | None:
    lines = tuple(line for line in lines if any(value is not None for value in line[2]))
    if not lines:
        return None
    series = [
        {"label": label, "colour": colour, "values": values} for label, colour, values in lines
    ]
    summary = (
        f"{label}: {max(value for value in values if value is not None):,.3g} at most"
        for label, _, values in lines
    )
    drawn = {
        "at": trend.at,
        "unit": unit,
        "step": trend.step,
        "series": series,
        "marks": [{"at": mark.at, "kind": mark.kind} for mark in trend.marks],
    }
    return Chart(
        title, f"{title}, {unit}. {'; '.join(summary)}", msgspec.json.encode(drawn).decode()
    )
