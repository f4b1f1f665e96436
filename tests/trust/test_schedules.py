"""Slots are decided once: by many at a time, killed in the middle, by clocks that go back."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock import App
from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING
from penstock.schedules.schedule import Decision, Schedule, slot_id, slots_after
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_schedule

PROGRAM = Path(__file__).parent / "programs" / "scheduler.py"
DAY = 86400.0


def start(url: str, begin: float, end: float, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, PROGRAM, url, str(begin), str(end), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )


def all_slots(schedule: Schedule) -> list[float]:
    slots: list[float] = []
    for slot in slots_after(schedule, schedule.starts_at):
        if slot > schedule.decided_until:
            break
        slots.append(slot)
    return slots


@pytest.mark.parametrize(
    "begins",
    [datetime(2026, 3, 27, 12, tzinfo=UTC), datetime(2026, 10, 23, 12, tzinfo=UTC)],
    ids=["clocks go forward", "clocks go back"],
)
def test_each_slot_has_one_job_and_one_decision(store_url, begins):
    """D60: two schedulers and one that is killed again and again, over a change of the clocks."""
    begin = begins.timestamp()
    clock = Clock(begin)
    with closing(App(store_url, clock=clock)) as app:

        @app.task(name="report")
        def report(slot: datetime) -> None: ...

        app.schedules.put(
            "often", report, cron="*/10 0-5 * * *", zone="Europe/Paris", missed="all", window=DAY
        )
        app.schedules.put("hourly", report, cron="5 * * * *", zone="America/New_York")
        steady = [start(store_url, begin, begin + 4 * DAY, seed) for seed in (1, 2)]
        killed = 0
        while any(each.poll() is None for each in steady):
            victim = start(store_url, begin, begin + 4 * DAY, 100 + killed)
            assert victim.stdout is not None
            victim.stdout.readline()
            time.sleep(0.05 * (killed % 5))
            victim.kill()
            victim.communicate()
            killed += 1
        for each in steady:
            assert each.communicate()[0].splitlines() == ["begun", "done"]
            assert each.returncode == 0

        broker = app.broker
        rows = []
        while page := broker.history(after=rows[-1].position if rows else BEGINNING, limit=1000):
            rows += page
        said = [(row, json.loads(row.data)) for row in rows if row.kind == "schedule"]
        jobs = {job.id for job in _all_jobs(broker)}
        for schedule in broker.records(Schedule):
            slots = all_slots(schedule)
            own = [(row, data) for row, data in said if data["schedule"] == schedule.name]
            own = [(row, data) for row, data in own if "slot" in data]
            assert sum(data.get("slots", 1) for _, data in own) == len(slots)
            moments = [datetime.fromisoformat(data["slot"]).timestamp() for _, data in own]
            assert moments == sorted(set(moments))
            made = [row.job for row, data in own if data["says"] == "enqueued"]
            assert len(set(made)) == len(made)
            assert set(made) <= jobs
            assert set(made) <= {slot_id(schedule.name, slot) for slot in slots}
            if schedule.name == "often":
                assert len(made) == len(slots) > 100
        assert len(jobs) == sum(data["says"] == "enqueued" for _, data in said)
        print(f"{len(jobs)} jobs, {len(said)} decisions, {killed} kills")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"name": 7}', '{"name":"a","job":{}}'])
def test_one_that_is_damaged_is_left_out_until_it_is_put_again(stored, clock, damage):
    good, bad = stored.put(a_schedule("good")), stored.put(a_schedule("bad"))
    table = "penstock.schedule" if "Postgres" in type(stored).__name__ else "penstock_schedule"
    mark = "%s" if "." in table else "?"
    with stored.store.writing() as db:
        db.execute(f"update {table} set declared = {mark} where name = 'bad'", (damage,))

    assert stored.records(Schedule) == [good]
    assert stored.decide_schedule(bad, [Decision(says="paused")]) is False

    again = stored.put(a_schedule("bad"))

    assert stored.records(Schedule) == [again, good]


def _all_jobs(broker):
    page = broker.find(Filter(), limit=1000)
    yield from page.jobs
    while page.after is not None:
        page = broker.find(Filter(), after=page.after, limit=1000)
        yield from page.jobs
