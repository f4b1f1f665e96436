"""pipeline plan, run, why and graph: the datasets of an app, without a word about its lake."""

from __future__ import annotations

from textwrap import dedent

import pytest

# Arrow cannot be imported a second time, and the fixture forgets what a test imported.
import penstock.spark.datasets.run

assert penstock.spark.datasets.run

DATASETS = """
    from penstock import App, Interval

    app = App()


    def probes(spark, interval): ...


    @app.dataset(partition="day", table="lake/rides", start="2026-01-01", inputs=[probes])
    def rides(spark, interval: Interval, found): ...


    @app.dataset(partition="month", table="lake/busy", inputs=[rides], after=["previous"])
    def busy(spark, interval: Interval, rides): ...
"""
UNTIL = ("--until", "2026-01-31", "--app", "trips")


@pytest.fixture
def trips(cli):
    (cli.folder / "trips.py").write_text(dedent(DATASETS))
    return cli


def test_what_is_missing_is_planned_enqueued_once_and_explained(trips):
    assert trips.json("pipeline", "plan", *UNTIL)["counts"] == {
        "trips:rides": {"missing": 31},
        "trips:busy": {"missing": 1},
    }
    foreseen = trips.json("pipeline", "run", "busy", "--dry-run", *UNTIL)
    done = trips.json("pipeline", "run", "busy", *UNTIL)
    again = trips.json("pipeline", "run", "busy", *UNTIL)

    assert foreseen == {**done, "dry_run": True}
    assert (done["enqueued"], done["waiting"]) == ({"trips:rides": 31}, 1)
    assert (again["enqueued"], again["open"]) == ({}, 31)
    assert trips.json("pipeline", "plan", *UNTIL)["counts"]["trips:rides"] == {"enqueued": 31}
    why = trips("pipeline", "why", "busy", "2026-01", "--app", "trips").stdout
    assert "trips:busy 2026-01 is missing: it was never made; it waits for trips:rides" in why
    of_day = trips.json("pipeline", "why", "rides", "2026-01-05", "--app", "trips")
    assert (of_day["state"], of_day["made"]) == ("enqueued", None)
    assert of_day["job"] in trips("find", "tag.partition:2026-01-05").stdout


def test_the_graph_says_what_needs_what(trips):
    shown = trips("pipeline", "graph", "--app", "trips").stdout.splitlines()

    assert shown == [
        "trips:rides (day) <- probes()",
        "trips:busy (month) <- trips:rides, after previous",
    ]
    [rides, busy] = trips.json("pipeline", "graph", "--app", "trips")
    assert rides["table"].endswith("/lake/rides")
    assert (busy["inputs"], busy["after"], busy["zone"]) == (["trips:rides"], ["previous"], "UTC")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan",), "name the app that has the datasets: --app myapp:app"),
        (("plan", "ride", "--app", "trips"), "there is no dataset ride; there are trips:rides"),
        (("why", "rides", "--app", "trips"), "name a dataset and one of its partitions"),
        (("why", "rides", "soon", "--app", "trips"), "'soon' names no day"),
        (("plan", "--since", "soon", "--app", "trips"), "--since: 'soon' names no day"),
        (("run", "rides", "--all", "--app", "trips"), "--all and names of datasets both"),
        (("compact", "rides"), "pipeline compact takes no datasets"),
        (("run", "--again"), "those are of pipeline run DATASET..."),
    ],
)
def test_what_cannot_be_meant_is_refused(trips, words, says):
    assert says in trips("pipeline", *words, code=2).stderr
