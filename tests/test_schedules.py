"""The schedules of an app: in its code, at run time, and under test."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from penstock import App, Repeat, Retry
from penstock.broker.filter import Filter
from penstock.brokers.memory import MemoryBroker
from penstock.errors import Refused
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Schedule
from penstock.schedules.timetable import Timetable
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def clock():
    return Clock(START.timestamp())


@pytest.fixture
def app(clock):
    return App(broker=MemoryBroker(clock))


@pytest.fixture
def ran():
    """What tasks were called with."""
    return []


def a_timetable(app, worker=""):
    return Timetable(app.broker, app.clock, app.schedules.declared, worker)


def said(app):
    rows = [json.loads(row.data) for row in app.broker.history() if row.kind == "schedule"]
    return [(row["schedule"], row["says"], row.get("slots", 1)) for row in rows if "slot" in row]


def test_a_turn_without_patience_leaves_the_rest_for_the_next(app, clock):
    """A worker with many due schedules goes on claiming and renewing in between."""

    @app.task(name="task")
    def task() -> None: ...

    for name in ("first", "second", "third"):
        app.schedules.put(name, task, every=timedelta(hours=6))
    timetable = a_timetable(app)
    timetable.turn()
    clock.advance(hours=7)

    assert [timetable.turn(patience=-1.0) for _ in range(4)] == [1, 1, 1, 0]


# In the code


def test_above_and_below_the_task(app, clock, ran):
    """D10, G32: a due one is a job that a worker runs; its nominal time is handed over."""

    @app.schedule("30 2 * * *", zone="Europe/Paris")
    @app.task(name="above")
    def above(slot: datetime) -> None:
        ran.append(("above", slot.isoformat()))

    @app.task(name="below")
    @app.schedule(every=timedelta(hours=6), kwargs={"n": 7})
    def below(n: int) -> None:
        ran.append(("below", n))

    with app.testing(clock=clock) as t:
        clock.advance(hours=13)  # over the hour that is left out
        t.drain()

    assert sorted(ran) == [("above", "2026-03-29T03:00:00+02:00"), ("below", 7)]


def test_a_task_has_several_schedules_with_names(app):
    @app.schedule("0 1 * * *", name="early", kwargs={"n": 1})
    @app.schedule("0 2 * * *", name="late", args=(2,))
    @app.task(name="report")
    def report(n: int) -> None: ...

    assert sorted(app.schedules.declared()) == ["early", "late"]


def test_two_of_one_name_are_refused(app):
    @app.schedule("0 1 * * *")
    @app.task(name="report")
    def report() -> None: ...

    with pytest.raises(Refused, match="two schedules are called report"):
        app.schedule("0 2 * * *")(report)


def test_a_module_that_is_imported_again_says_the_same(app):
    for _ in range(2):

        @app.schedule("0 1 * * *")
        @app.task(name="report")
        def report() -> None: ...

    assert list(app.schedules.declared()) == ["report"]


def test_over_what_is_no_task_it_is_refused_when_a_worker_starts(app):
    @app.schedule("0 1 * * *")
    def report() -> None: ...

    with pytest.raises(Refused, match="report: it is not a task"):
        app.schedules.declared()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"every": 60}, "missing a required argument: 'n'"),
        ({"every": 60, "kwargs": {"n": "x"}}, "n: Expected `int`"),
        ({"every": 60, "at": START, "args": (1,)}, "give one of"),
        ({"at": datetime(2026, 1, 1), "args": (1,)}, "has no time zone"),  # noqa: DTZ001
    ],
)
def test_a_call_that_cannot_be_made_is_refused_when_a_worker_starts(app, options, sentence):
    @app.schedule(**options)
    @app.task(name="report")
    def report(n: int) -> None: ...

    with pytest.raises(Refused, match=sentence):
        app.schedules.declared()


def test_options_that_say_when_are_refused(app):
    @app.task(name="report")
    def report() -> None: ...

    for options in ({"delay": 5}, {"unique": "one"}):
        with pytest.raises(Refused, match="leave out delay, at and unique"):
            app.schedules.put("nightly", report.options(**options), every=60)


def test_a_schedule_that_vanished_from_the_code_is_due_no_more(clock):
    """Only workers whose code has it decide it: the last one that goes takes it along."""
    broker = MemoryBroker(clock)
    old, new = App(broker=broker), App(broker=broker)

    @old.schedule(every=60)
    @old.task(name="report")
    def report() -> None: ...

    before, after = a_timetable(old), a_timetable(new)
    before.turn()
    clock.advance(seconds=60)
    assert (after.turn(), before.turn()) == (0, 1)

    clock.advance(hours=5)  # the old workers are gone
    assert after.turn() == 0

    a_timetable(old).turn()  # it came back: as after an outage
    assert said(new)[-2:] == [("report", "skipped: missed", 299), ("report", "enqueued", 1)]


def test_in_a_deploy_the_last_words_stand_while_whoever_put_them_is_alive(clock):
    broker = MemoryBroker(clock)
    old, new = App(broker=broker), App(broker=broker)
    for app, every in ((old, 60), (new, 90)):

        @app.schedule(every=every)
        @app.task(name="report")
        def report() -> None: ...

    def turn(*timetables: Timetable) -> float | None:
        for timetable in timetables * 2:
            timetable.turn()
        clock.advance(seconds=16)
        return broker.records(Schedule)[0].every

    broker.renew([a_worker(name, lease=600.0) for name in ("old", "new", "old again")])
    before, after = a_timetable(old, "old"), a_timetable(new, "new")
    assert turn(before) == 60
    assert turn(before, after) == 90
    assert turn(before, after) == 90

    late = a_timetable(old, "old again")  # a child of the old release that was replaced
    assert turn(late, before, after) == 60
    broker.recover(dead="old again")

    assert turn(after) == 90
    assert turn(after) == 90


def test_one_of_the_code_that_is_removed_comes_back_as_new(app, clock):
    """Also when the whole store was replaced under the worker."""

    @app.schedule(every=60)
    @app.task(name="report")
    def report() -> None: ...

    timetable = a_timetable(app)
    timetable.turn()
    clock.advance(seconds=50)
    app.schedules.remove("report")
    clock.advance(seconds=20)

    for _ in range(2):
        timetable.turn()
    [again] = app.schedules.all()
    assert again.created_at == clock.now()
    clock.advance(seconds=60)

    assert timetable.turn() == 1


def test_one_made_at_run_time_is_decided_by_every_worker(clock):
    broker = MemoryBroker(clock)
    app, other = App(broker=broker), App(broker=broker)

    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("nightly", report, every=60)
    clock.advance(seconds=60)

    assert a_timetable(other).turn() == 1


# At run time


def test_it_is_put_listed_and_removed(app, clock):
    """A42: scheduled and unscheduled by name."""

    @app.task(name="report")
    def report(kind: str, slot: datetime) -> None: ...

    put = app.schedules.put(
        "nightly", report, cron="15 2 * * *", zone="Europe/Paris", kwargs={"kind": "full"}
    )

    assert app.schedules.all() == [put]
    assert [f"{slot:%d %H:%M%z}" for slot in app.schedules.next("nightly", 3)] == [
        "29 03:00+0200",
        "30 02:15+0200",
        "31 02:15+0200",
    ]
    assert app.schedules.remove("nightly") is True
    assert app.schedules.remove("nightly") is False
    with pytest.raises(Refused, match="there is no schedule nightly"):
        app.schedules.next("nightly")


def test_slots_beyond_the_calendar_are_not_shown(app):
    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("rare", report, every=timedelta(days=365 * 900))

    assert len(app.schedules.next("rare", 20)) == 8


def test_one_that_is_in_the_code_is_changed_there(app):
    @app.schedule(every=60)
    @app.task(name="report")
    def report() -> None: ...

    with pytest.raises(Refused, match="is in the code"):
        app.schedules.put("report", report, every=30)


def test_a_moment_that_has_passed_is_refused(app, clock):
    @app.task(name="report")
    def report() -> None: ...

    with pytest.raises(Refused, match="that is over"):
        app.schedules.put("once", report, at=START - timedelta(hours=1))

    app.schedules.put("once", report, at=START + timedelta(hours=1))
    clock.advance(hours=2)
    assert a_timetable(app).turn() == 1
    clock.advance(hours=2)
    assert a_timetable(app).turn() == 0


def test_what_is_due_of_the_one_before_is_decided_before_it_is_replaced(app, clock):
    """No gap when the times are changed a moment after a slot."""

    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("s", report, every=60)
    clock.advance(seconds=61)
    app.schedules.put("s", report, every=3600)

    assert said(app) == [("s", "enqueued", 1)]


def test_a_paused_one_makes_nothing_and_goes_on_with_the_next_slot(app, clock):
    """D61."""

    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("s", report, every=60)
    timetable = a_timetable(app)
    timetable.turn()
    app.schedules.pause("s", author="ada")
    clock.advance(minutes=10)
    assert timetable.turn() == 0
    clock.advance(minutes=10)  # and no worker looks

    app.schedules.resume("s")
    assert timetable.turn() == 0
    clock.advance(minutes=1)

    assert timetable.turn() == 1
    assert said(app) == [
        ("s", "skipped: paused", 10),
        ("s", "skipped: paused", 10),
        ("s", "enqueued", 1),
    ]


def test_a_frozen_store_decides_no_slot_and_goes_on_as_each_schedule_says(app, clock):
    """D66."""

    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("s", report, every=60)
    timetable = a_timetable(app)
    timetable.turn()
    freeze = app.broker.put(Rule(RuleKind.BLOCK, author="ada"))
    clock.advance(minutes=10)

    assert timetable.turn() == 0
    assert timetable.seconds_left() > 0  # it does not look again and again
    assert said(app) == []

    app.broker.clear(Rule, freeze.id)
    assert timetable.turn() == 1


def test_nothing_starts_once_a_pause_returned_not_even_what_was_due(app, clock):
    @app.task(name="report")
    def report() -> None: ...

    app.schedules.put("s", report, every=60)
    clock.advance(minutes=10)
    app.schedules.pause("s")

    assert a_timetable(app).turn() == 0
    assert app.broker.count() == []


def test_a_run_on_demand_leaves_the_schedule_alone(app, clock, ran):
    """D61."""

    @app.task(name="report")
    def report(slot: datetime) -> None:
        ran.append(slot.timestamp())

    with app.testing(clock=clock) as t:
        before = app.schedules.put("s", report, every=3600, overlap="skip")
        clock.advance(minutes=10)
        handle = app.schedules.run_now("s", author="ada", reason="auditors")
        [after] = app.schedules.all()
        assert (after.decided_until, after.last_job) == (before.decided_until, None)
        t.drain()
        assert handle.state() is State.SUCCEEDED
        clock.advance(minutes=50)
        t.drain()

    start = START.timestamp()
    assert ran == [start + 600, start + 3600]


# The timetable


def test_the_timetable_knows_when_to_come_again(app, clock):
    @app.task(name="report")
    def report() -> None: ...

    timetable = a_timetable(app)
    timetable.turn()
    assert timetable.seconds_left() == 5.0

    app.schedules.put("s", report, every=7)
    clock.advance(seconds=5)
    timetable.turn()
    assert 2.0 <= timetable.seconds_left() <= 2.2

    clock.advance(seconds=2)
    assert timetable.turn() == 1


def test_one_that_cannot_be_read_here_stops_no_other(app, clock, caplog):
    @app.task(name="report")
    def report() -> None: ...

    good = app.schedules.put("good", report, every=60)
    fields = {"name": "bad", "every": None, "cron": "0 0 * * *", "zone": "Mars/Olympus"}
    app.broker.put(msgspec.structs.replace(good, **fields))
    clock.advance(days=2)

    timetable = a_timetable(app)
    assert timetable.turn() == 1
    timetable.turn()

    assert caplog.text.count("schedule bad is not decided here") == 1


def test_one_that_is_damaged_is_set_aside_until_it_is_changed(app, clock, caplog):
    @app.task(name="report")
    def report(slot: datetime) -> None: ...

    good = app.schedules.put("good", report, every=60)
    broken = msgspec.structs.replace(good.job, body=b"[]")
    app.broker.put(msgspec.structs.replace(good, name="bad", job=broken))
    timetable = a_timetable(app)
    for _ in range(3):
        clock.advance(minutes=1)
        assert timetable.turn() == 1
    assert caplog.text.count("schedule bad cannot be decided") == 1

    app.broker.put(msgspec.structs.replace(good, name="bad"))
    clock.advance(minutes=1)

    assert timetable.turn() == 2


def test_overlap_is_judged_by_the_last_job(app, clock):
    """D61."""

    @app.task(name="slow")
    def slow() -> None: ...

    app.schedules.put("skip", slow.options(queue="a"), every=60, overlap="skip")
    app.schedules.put("cancel", slow.options(queue="b"), every=60, overlap="cancel")
    timetable = a_timetable(app)
    for _ in range(3):
        clock.advance(seconds=60)
        timetable.turn()

    states = {"a": [], "b": []}
    for job in sorted(app.broker.find(Filter()).jobs, key=lambda job: job.run_at):
        states[job.queue].append(job.state)
    assert states == {
        "a": [State.READY],
        "b": [State.CANCELLED, State.CANCELLED, State.READY],
    }


# Tasks that start themselves again


def test_a_task_that_repeats_itself_survives_its_errors(app, clock, ran):
    """B22, B23: the error strategy is applied, the error told, and the next run is due."""

    @app.task(name="beat", on_success=Repeat(delay=4), on_error=Repeat(delay=4))
    def beat() -> None:
        ran.append(clock.now() - START.timestamp())
        if len(ran) % 3 == 0:
            raise RuntimeError("a bad beat")

    @app.task(name="other")
    def other() -> None: ...

    with app.testing(clock=clock) as t:
        handle = beat.enqueue()
        for _ in range(10):
            other.enqueue()
            t.drain()
            clock.advance(seconds=4)
        events = t.broker.history(job=handle.id)
        others = t.jobs("other", State.SUCCEEDED)

    assert ran == [4.0 * turn for turn in range(10)]
    failed = [event for event in events if event.error]
    assert len(failed) == 3
    assert all("a bad beat" in event.error for event in failed)
    assert len(others) == 10


def test_a_task_that_repeats_itself_backs_off_by_its_retry(app, clock, ran):
    """B24: delays double."""

    @app.task(name="beat", retry=Retry(limit=5, delay=1, factor=2))
    def beat() -> None:
        ran.append(clock.now() - START.timestamp())
        raise RuntimeError

    with app.testing(clock=clock) as t:
        beat.enqueue()
        for _ in range(40):
            t.drain()
            clock.advance(seconds=1)

    assert ran == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
