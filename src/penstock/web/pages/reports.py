"""Reports: what the store can tell of the last while, and what the lake's last report says.

The lake's page was made by Spark, out of names that are anybody's: it is served in a sandbox of its
own, where nothing runs.
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
from penstock.operate.recent_stats import Depth, read_recent
from penstock.operate.refusals import NotFound
from penstock.web.request import Asked

REPORT = "penstock-report.html"
MOST_TASKS = 50
MOST_PAGE_BYTES = 20 * 1024 * 1024
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; sandbox"
)


class Chart(NamedTuple):
    """One plot over time; what it holds is drawn in the browser, with its axes."""

    title: str
    says: str  # the same in words: for whoever sees no drawing
    drawn: str  # JSON, as charts.js takes it


def show(asked: Asked) -> Response:
    recent = read_recent(asked.verbs.history)
    lake = asked.site.lake
    made_at = fault = None
    if lake is not None:
        try:
            with _opened(lake) as page:
                made_at = os.fstat(page.fileno()).st_mtime
        except FileNotFoundError:
            pass
        except (OSError, Refused) as error:
            fault = str(error)
    return asked.page(
        "reports.html",
        title="Reports",
        cli="penstock pipeline report" + (f" --lake {lake}" if lake is not None else ""),
        recent=recent,
        tasks=recent.tasks[:MOST_TASKS],
        charts=_charts(recent.depths),
        lakes=asked.verbs.lakes(),
        place_of=place_of,
        gap_text=gap_text,
        lake=lake,
        report=made_at,
        fault=fault,
        name_of_report=REPORT,
    )


def lake(asked: Asked) -> Response:
    """The report of the lake, as it was last made."""
    asked.verbs.lakes()  # whoever may not look at those may not look at this
    if asked.site.lake is None:
        raise NotFound("There is no report of a lake here.")
    try:
        with _opened(asked.site.lake) as page:
            text = page.read(MOST_PAGE_BYTES)
    except OSError:
        raise NotFound("There is no report of a lake here.") from None
    except Refused as error:
        raise NotFound(str(error)) from None
    return Response(text, media_type="text/html", headers={"content-security-policy": _POLICY})


def _opened(lake: Path) -> BinaryIO:
    """The report: somebody else may write to the lake, so it is no link, and of no third person."""
    page = os.fdopen(open_below(lake, REPORT), "rb")
    if os.fstat(page.fileno()).st_size > MOST_PAGE_BYTES:
        page.close()
        raise Refused(f"{lake / REPORT} has more than {MOST_PAGE_BYTES:,} bytes, and is not shown")
    return page


def _charts(depths: Sequence[Depth]) -> list[Chart]:
    if len(depths) < 2:
        return []
    standing = _chart(
        "Jobs by where they stand",
        depths,
        "jobs",
        ("ready", "--ready", lambda each: each.ready),
        ("held back", "--paused", lambda each: each.held),
        ("running", "--running", lambda each: each.running),
    )
    failed = _chart(
        "Failed jobs that are kept",
        depths,
        "jobs",
        ("failed", "--failed", lambda each: each.failed),
    )
    oldest = _chart(
        "How long the oldest due job waits",
        depths,
        "seconds",
        ("oldest", "--accent", lambda each: each.oldest or 0.0),
    )
    return [standing, failed, oldest]


def _chart(
    title: str,
    depths: Sequence[Depth],
    unit: str,
    *lines: tuple[str, str, Callable[[Depth], float]],
) -> Chart:
    series = [
        {"label": label, "colour": colour, "values": [value(each) for each in depths]}
        for label, colour, value in lines
    ]
    told = (
        f"{label}: {max(map(value, depths)):,.0f} at most, {value(depths[-1]):,.0f} at the end"
        for label, _, value in lines
    )
    drawn = {"at": [each.at for each in depths], "unit": unit, "series": series}
    return Chart(title, f"{title}, {unit}. {'; '.join(told)}", msgspec.json.encode(drawn).decode())
