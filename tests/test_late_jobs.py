"""A16: options(late=True): no job is there before its time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from penstock import App, Refused, State
from penstock.broker.filter import Filter
from penstock.schedules.schedule import LATE, Schedule


@pytest.fixture
def app() -> App:
    app = App("memory:")

    @app.task(name="nightly", queue="heavy")
    def nightly(day: str) -> str:
        return f"did {day}"

    return app


def seen(t) -> list[str]:
    """What is found and counted."""
    found = [job.id for job in t.broker.find(Filter()).jobs]
    assert bool(found) == bool(t.broker.count())
    return found


@pytest.mark.parametrize("when", ["delay", "at", "async"])
def test_it_is_not_there_before_its_time_and_runs_then(app, when):
    nightly = app.tasks["nightly"]
    with app.testing() as t:
        moment = datetime.fromtimestamp(t.clock.now() + 3600, UTC)
        time = {"at": moment} if when == "at" else {"delay": 3600}
        late = nightly.options(late=True, key="year", tags={"of": "ada"}, **time)
        if when == "async":
            handle = asyncio.run(late.enqueue_async("2026"))
        else:
            handle = late.enqueue("2026")
        t.drain()
        assert (seen(t), t.broker.get(handle.id)) == ([], None)
        [kept] = t.broker.records(Schedule)
        assert kept.name.startswith(LATE)

        t.clock.advance(seconds=3601)
        t.drain()

        assert handle.result(timeout=0) == "did 2026"
        job = t.broker.get(handle.id)
        assert (job.key, job.tags["of"], job.queue) == ("year", "ada", "heavy")
        t.clock.advance(seconds=60)
        t.drain()
        assert t.broker.records(Schedule) == []
        attempts = [row.job for row in t.broker.history() if row.kind == "attempt"]
        assert attempts == [handle.id]


def test_it_can_be_taken_back(app):
    with app.testing() as t:
        app.tasks["nightly"].options(late=True, delay=60).enqueue("2026")
        [kept] = app.schedules.all()
        assert app.schedules.remove(kept.name)
        t.clock.advance(seconds=120)
        t.drain()
        assert seen(t) == []


def test_what_is_due_at_once_is_a_job_at_once(app):
    with app.testing() as t:
        handle = app.tasks["nightly"].options(late=True, delay=1).enqueue("2026")
        assert handle.state() is State.READY
        assert t.broker.records(Schedule) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"late": True}, "give delay=... or at=..."),
        ({"late": "yes", "delay": 60}, "late='yes': True or False"),
        ({"late": True, "delay": 60, "unique": "x"}, "takes no unique key"),
    ],
)
def test_what_it_cannot_be_is_refused(app, options, says):
    with pytest.raises(Refused, match=says):
        app.tasks["nightly"].options(**options).enqueue("2026")


def test_a_value_cannot_be_late(app):
    late = app.tasks["nightly"].options(late=True, delay=60)
    for call in (lambda: late.job("2026"), lambda: late.enqueue_many([("2026",)])):
        with pytest.raises(Refused, match="is for enqueue"):
            call()
