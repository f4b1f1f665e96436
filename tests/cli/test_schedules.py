"""schedules: list, show, pause, resume, run now, remove."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from penstock import App
from penstock.cli.schedules import slot_lines
from penstock.job import Job
from penstock.schedules.schedule import Schedule, replaced
from penstock.schedules.status import state_of


@pytest.fixture
def kept(shop):
    """Two schedules in the project's store."""
    app = App(f"sqlite:///{shop.folder / 'penstock.db'}")

    @app.task(name="shop:add")
    def add(a: int, b: int) -> int:
        return a + b

    app.schedules.put("nightly", add, cron="15 2 * * *", zone="Europe/Paris", args=(1, 2))
    app.schedules.put("often", add, every=90, args=(3, 4))
    app.close()
    return shop


def test_they_are_listed_with_their_next_slot(kept):
    listed = kept("schedules").stdout

    assert "nightly" in listed
    assert "15 2 * * * (Europe/Paris)" in listed
    assert "at 02:15 every day" in listed
    assert "every 90 s" in listed
    [nightly, often] = kept.lines("schedules")
    assert (nightly["name"], nightly["task"], nightly["state"]) == ("nightly", "shop:add", "on")
    assert (nightly["cron_in_words"], often["cron_in_words"]) == ("at 02:15 every day", None)
    assert (often["every"], often["from_code"], len(often["next"])) == (90.0, False, 1)


def test_one_shows_its_next_slots_with_the_offset_of_its_zone(kept):
    """D61."""
    shown = kept("schedules", "nightly", "--next", "10").stdout.splitlines()

    assert "at 02:15 every day, in the time zone Europe/Paris" in shown
    slots = [line for line in shown if " 02:15:00+" in line]
    assert len(slots) == 10
    assert all(line.rstrip().endswith(("CET", "CEST")) or "clocks" in line for line in slots)
    assert len(kept.json("schedules", "nightly", "--next", "10")["next"]) == 10


def test_where_the_clocks_are_set_it_is_said():
    paris = ZoneInfo("Europe/Paris")

    lines = slot_lines([datetime(2026, 3, day, 12, tzinfo=paris) for day in (28, 29)])

    assert lines == [
        "  Sat 2026-03-28 12:00:00+0100 CET",
        "  Sun 2026-03-29 12:00:00+0200 CEST   clocks go forward 60 min",
    ]
    back = slot_lines([datetime(2026, 10, day, 12, tzinfo=paris) for day in (24, 25)])
    assert back[1].endswith("CET   clocks go back 60 min")


def test_pause_resume_run_now_and_remove(kept):
    """D61: a pause, and a run on demand that leaves the schedule alone."""
    assert "is paused" in kept("schedules", "often", "--pause", "--reason", "quiet").stdout
    assert kept.lines("schedules")[1]["state"] == "paused"
    assert "next slot" in kept("schedules", "often", "--resume").stdout

    before = kept.json("schedules", "often")
    job = kept.json("schedules", "often", "--run-now")["job"]

    assert kept.json("schedules", "often")["decided_until"] == before["decided_until"]
    [found] = kept.lines("find")
    assert (found["id"], found["tags"]) == (job, {"schedule": "often"})
    assert "is removed" in kept("schedules", "often", "--remove").stdout
    assert [each["name"] for each in kept.lines("schedules")] == ["nightly"]
    said = [line["data"]["says"] for line in kept.lines("history") if line["kind"] == "schedule"]
    assert said == ["put", "put", "paused", "resumed", "run now", "removed"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "there is no schedule nothing; there are: nightly, often"),
        (["nothing", "--remove"], "there is no schedule nothing"),
        (["--pause"], "name the schedule"),
        (["often", "--pause", "--resume"], "give only one of"),
    ],
)
def test_what_makes_no_sense_is_refused(kept, words, sentence):
    assert sentence in kept("schedules", *words, code=2).stderr


def test_one_that_nobody_decides_says_so():
    job = Job(task="shop:add", id="")
    kept = replaced(None, Schedule(name="gone", job=job, every=60.0, from_code=True), 1000.0)

    assert state_of(kept, 1070.0) == "on"
    assert state_of(kept, 1600.0) == "nobody decides it: no worker has its code"
    assert state_of(kept, 100.0) == "decided ahead of the clock, which was wrong"


def test_a_store_without_any_says_so(shop):
    shop("enqueue", "shop:add", "1", "2")

    assert "there are no schedules" in shop("schedules").stderr


def test_the_doctor_names_those_that_make_no_jobs(kept):
    def found():
        findings = kept.json("doctor")["findings"]
        return [row for row in findings if row["name"] == "schedules"]

    assert [row["colour"] for row in found()] == ["green"]

    kept("schedules", "often", "--pause")

    [paused] = found()
    assert (paused["colour"], paused["says"]) == ("yellow", "often: paused")
    assert paused["remedy"] == "penstock schedules often --resume"
