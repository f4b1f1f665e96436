"""The report of a lake in a browser: on a phone, too, whatever the names are."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Browser

from penstock.spark.pipelines.report.page import page
from penstock.spark.pipelines.report.queries import ReportData
from tests.browser.conftest import HOSTILE

pytestmark = pytest.mark.browser

LONG = "/data/" + "x" * 200


def _answers(name: str) -> ReportData:
    row: dict[str, Any] = {"tag": name, "value": name, "jobs": 1, "wait_p95": None, "run_p95": 0.0}
    opened = {"ready": 3, "scheduled": 1, "waiting": 2, "running": 1, "oldest": 77.0, "at": 0.0}
    return ReportData(
        source="lake",
        where=f"{LONG} {name}",
        tags=[{**row, "busy": 1.0, "failed": 0}],
        open_jobs=[{"queue": name, **opened}],
        depth=[{"queue": name, "at": 0.0, "ready": 5, "running": 2, "oldest": 3.0}],
    )


# REQUIREMENTS S23
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", [*HOSTILE, LONG], ids=range(len(HOSTILE) + 1))
def test_nobody_scrolls_sideways_and_nothing_of_a_name_runs(browser: Browser, width, name):
    context = browser.new_context(viewport={"width": width, "height": 800})
    opened = context.new_page()
    asked: list[str] = []
    opened.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    opened.on("request", lambda request: asked.append(request.url))

    opened.set_content(page(_answers(name)))

    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.locator(".plot svg").count() == 2
    # A plot that is wider than the screen shows its newest end.
    left, wide = opened.evaluate(
        "(() => { const p = document.querySelector('.plot'), s = p.firstElementChild;"
        " return [s.getBoundingClientRect().right - p.getBoundingClientRect().right,"
        " s.scrollWidth > p.clientWidth]; })()"
    )
    assert abs(left) < 1
    assert wide is (width < 760)
    assert asked == []
    context.close()
