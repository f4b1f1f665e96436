"""Datasets on pages and over REST: where each partition stands, why, and making a range."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any

import msgspec
import pytest

from penstock import App
from penstock.operate.audit import AuditQuery, read_audit
from penstock.spark.datasets.run import fill
from penstock.testing import Clock
from penstock.web.access import Role
from penstock.web.routes import ROUTES
from tests.arrow_session import frame
from tests.test_datasets import DAYS, UNTIL, Shop
from tests.web.conftest import Web
from tests.web.test_pages import text_of

ONE = "/datasets/one"
API = "/api/v1/datasets"
RANGE = {"since": "2026-01-01", "until": "2026-01-05"}


@pytest.fixture
def shop(tmp_path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def web(shop, serve) -> Any:
    """A shop in which three days are made, and a fourth is broken."""
    with shop.app.testing(clock=Clock(datetime(2026, 2, 1, tzinfo=UTC).timestamp())) as t:
        fill(shop.app, ["busy"], until=UNTIL)
        t.drain()
        shop.rows = lambda: frame(v=[0])
        day = datetime(2026, 1, 4, tzinfo=UTC).timestamp()
        fill(shop.app, ["rides"], since=day, until=day + 86400)
        t.drain()
        shop.rows = None
        yield serve(shop.app)


def cells(page: str) -> dict[str, str]:
    return dict(re.findall(r'<span class="sr">(\S+) (\w+)</span>', page))


def test_the_graph_and_what_each_dataset_lacks(web: Web):
    page = web.client(Role.VIEW).get("/datasets").text

    said = text_of(page)
    assert "3 of 31 days 1 failed" in said  # in the drawing
    assert "rides day UTC 3 1 failed , 27 missing 27" in said
    assert "busy day UTC 3 28 missing 0 3 rides" in said
    assert page.count('class="edge') == 1
    assert "penstock pipeline plan" in said


def test_the_grid_has_every_partition_with_its_state_rows_and_checks(web: Web):
    page = web.client(Role.VIEW).get(ONE, params={"name": "rides", **RANGE}).text

    assert cells(page) == {
        **dict.fromkeys(DAYS, "current"),
        "2026-01-04": "failed",
        "2026-01-05": "missing",
    }
    assert re.search(r"2026-01-03 current 2 \d+ ms 1 passed 1-\w+", text_of(page))
    assert page.count("late<") > 1


def test_a_partition_says_why_and_what_made_it(web: Web):
    client = web.client(Role.VIEW)

    busy = client.get("/datasets/partition", params={"name": "busy", "partition": "2026-01-05"})
    made = client.get("/datasets/partition", params={"name": "rides", "partition": DAYS[0]})

    assert "rides 2026-01-04 failed (job" in text_of(busy.text)
    assert "CheckFailed: rides 2026-01-04 is not committed" in text_of(busy.text)
    assert "None: it was never made" in text_of(busy.text)
    assert "no_zeros 0 0 passed" in text_of(made.text)
    assert re.search(r"current .*attempt 1 rows 2, \d+ bytes", text_of(made.text))


def test_a_range_is_previewed_made_and_recorded_with_its_reason(web: Web, shop):
    browser = web.browser(Role.OPERATE)

    preview = text_of(browser.get("/datasets/run", params={"name": "busy", **RANGE}).text)
    before = list(shop.calls)
    done = browser.post(
        "/datasets/run",
        data={"name": "busy", **RANGE, "reason": "data came", "max_running": "2"},
    )

    assert "1 run is enqueued now 1 that failed is tried again 0 have jobs already 2" in preview
    assert "Nothing was changed yet" in preview
    assert shop.calls == before
    assert done.status_code == 303
    shown = cells(browser.get(ONE, params={"name": "rides", **RANGE}).text)
    assert (shown["2026-01-04"], shown["2026-01-05"]) == ("enqueued", "enqueued")
    [row] = [each for each in read_audit(shop.app.broker, AuditQuery()).entries if each.reason][:1]
    assert (row.author, row.reason) == ("otto", "data came")


def test_current_partitions_are_made_again_only_when_asked(web: Web, shop):
    browser = web.browser(Role.OPERATE)
    day = {"name": "rides", "since": DAYS[0], "until": DAYS[0]}

    idle = text_of(browser.get("/datasets/run", params=day).text)
    again = text_of(browser.get("/datasets/run", params={**day, "again": "yes"}).text)
    browser.post("/datasets/run", data={**day, "again": "yes"})

    assert "Nothing is to be made" in idle
    assert "1 of rides" in again
    assert shop.states("rides")[DAYS[0]] == "current"
    [queued] = [each for each in shop.app.broker.count() if each.ready]
    assert queued.ready == 1


def test_rest_says_the_same(web: Web):
    viewer, operator = web.client(Role.VIEW), web.client(Role.OPERATE)

    [rides, busy] = viewer.get(API).json()["datasets"]
    plan = viewer.get(f"{API}/plan", params={"dataset": "busy", **RANGE}).json()
    grid = viewer.get(f"{API}/one", params={"dataset": "rides", **RANGE}).json()
    why = viewer.get(f"{API}/why", params={"dataset": "busy", "partition": "2026-01-05"}).json()
    asked = {"datasets": ["busy"], **RANGE}
    foreseen = operator.post(f"{API}/run", json={**asked, "dry_run": True}).json()
    done = operator.post(f"{API}/run", json=asked).json()

    assert (rides["dataset"], busy["inputs"]) == ("rides", ["rides"])
    assert plan["counts"]["busy"] == {"current": 3, "missing": 2}
    assert [each["state"] for each in grid["partitions"]][2:] == ["current", "failed", "missing"]
    assert grid["partitions"][0]["checks"][0]["bad"] == 0
    assert why["waits_for"][0][0] == {"dataset": "rides", "partition": "2026-01-04"}
    assert foreseen == done
    assert done["enqueued"] == {"rides": 1}


@pytest.mark.parametrize("name", ["datasets", "plan", "dataset", "why partition"])
def test_rest_gives_what_openapi_says(web: Web, name):
    [route] = [each for each in ROUTES if each.name == name]
    asked = {
        "plan": {"dataset": "busy", **RANGE},
        "dataset": {"dataset": "rides", **RANGE},
        "why partition": {"dataset": "busy", "partition": "2026-01-05"},
    }

    answer = web.client(Role.VIEW).get(route.path, params=asked.get(name, {})).content

    msgspec.json.decode(answer, type=route.gives, strict=True)


def test_a_viewer_makes_nothing(web: Web, shop):
    viewer = web.browser(Role.VIEW)

    assert viewer.post("/datasets/run", data={"name": "rides"}).status_code == 403
    assert viewer.get("/datasets/run", params={"name": "rides"}).status_code == 403
    assert web.client(Role.VIEW).post(f"{API}/run", json={}).status_code == 403
    assert "/datasets/run" not in viewer.get(ONE, params={"name": "rides"}).text


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        (ONE, {"name": "ride"}, 404, "there is no dataset ride; there are rides, busy"),
        (ONE, {}, 404, "No dataset was named"),
        (ONE, {"name": "rides", "since": "soon"}, 422, "'soon' names no day"),
        ("/datasets/partition", {"name": "rides", "partition": "x"}, 422, "'x' names no day"),
    ],
)
def test_what_cannot_be_meant_is_refused(web: Web, path, query, status, says):
    answer = web.client(Role.VIEW).get(path, params=query)

    assert (answer.status_code, says in text_of(answer.text)) == (status, True), answer.text


def test_without_an_app_or_datasets_the_page_says_how_to_have_some(
    serve, memory_web: Web, memory_broker
):
    bare = memory_web.client(Role.VIEW)
    with_app = serve(App(broker=memory_broker)).client(Role.VIEW)

    assert "penstock dashboard trips:app" in text_of(bare.get("/datasets").text)
    assert "The app of this dashboard has no datasets" in text_of(with_app.get("/datasets").text)
    assert bare.get(f"{API}/plan").status_code == 422
    assert with_app.get(API).status_code == 422


def test_partitions_by_name_have_no_range_and_a_dataset_without_a_start_says_so(serve, tmp_path):
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    app.dataset(name="regions", partition=["north", "south"], table=tmp_path / "regions")(
        lambda spark, partition: None
    )
    app.dataset(name="endless", partition="day", table=tmp_path / "endless")(
        lambda spark, day: None
    )
    client = serve(app).client(Role.OPERATE)

    page = client.get(ONE, params={"name": "regions"})
    listed = text_of(client.get("/datasets").text)
    of_one = client.get("/datasets/partition", params={"name": "regions", "partition": "north"})

    assert cells(page.text) == {"north": "missing", "south": "missing"}
    assert "does not say with which day it begins" in listed
    assert "since=" not in of_one.text
    refused = client.get(ONE, params={"name": "regions", "since": str(date(2026, 1, 1))})
    assert "the partitions of regions are names" in text_of(refused.text)
    app.close()
