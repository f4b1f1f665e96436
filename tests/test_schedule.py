"""Schedules, pure: which slots there are, and what becomes of each."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import Refused
from penstock.job import Job
from penstock.schedules.schedule import (
    MOST_JOBS,
    MOST_SLOTS,
    Decision,
    Schedule,
    check_schedule,
    decided,
    event_data,
    holds,
    in_words,
    job_for,
    plan,
    replaced,
    slot_id,
    slots_after,
    zone_named,
)

PARIS, NEW_YORK = "Europe/Paris", "America/New_York"
CRONS = [
    *("* * * * *", "*/15 * * * *", "0 * * * *", "30 2 * * *", "0,30 1-3 * * *", "*/20 2 * * *"),
    *("0 */6 * * *", "0 0 * * 1", "15 2 1 * *", "59 23 31 12 *", "0 9-17 * * 1-5", "@daily"),
]
ZONES = [PARIS, NEW_YORK, "UTC", "Australia/Lord_Howe", "America/Santiago", "Asia/Kolkata"]


def a_schedule(**fields):
    job = Job(task="mail:sweep", id="")
    return Schedule(name="s", job=job, **fields)


def at(text, zone=UTC):
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def shown(cron, zone, start, count):
    """The slots that follow, as the zone shows them."""
    schedule = a_schedule(cron=cron, zone=zone)
    found = islice(slots_after(schedule, at(start, zone_named(zone))), count)
    return [f"{schedule.moment(slot):%d %H:%M%z}" for slot in found]


def words(decisions):
    return [(decision.says, decision.slots) for decision in decisions]


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("30 6 * * 1-5", "at 06:30 on Monday through Friday"),
        ("  30  6 * * mon ", "at 06:30 on Monday"),
        ("*/5 * * * *", "every fifth minute of every hour"),
        ("@hourly", "at the start of every hour"),
        ("@Daily", "at 00:00 every day"),
        ("@monthly", "at 00:00 on the first day of every month"),
        ("0 0 L * *", "at 00:00 on the last day of every month"),
        ("0 9 * * MON#2", "at 09:00 on the second Monday of the month"),
        (
            "0 0 11,21,22,23 * *",
            "at 00:00 on the 11th, the 21st, the 22nd, and the 23rd day of month",
        ),
    ],
)
def test_a_cron_can_be_read_in_words(cron, words):
    assert in_words(cron) == words


# Slots


@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        # Forward: 02:00 is followed by 03:00; what is due in between runs at 03:00, once.
        ("30 2 * * *", PARIS, "2026-03-28T12:00", ["29 03:00+0200", "30 02:30+0200"]),
        ("30 2 * * *", NEW_YORK, "2026-03-07T12:00", ["08 03:00-0400", "09 02:30-0400"]),
        ("*/20 2 * * *", PARIS, "2026-03-28T12:00", ["29 03:00+0200", "30 02:00+0200"]),
        ("0 2,3 * * *", PARIS, "2026-03-28T12:00", ["29 03:00+0200", "30 02:00+0200"]),
        # Back: 02:59 is followed by 02:00 again; what is due in between runs the first time.
        ("30 2 * * *", PARIS, "2026-10-24T12:00", ["25 02:30+0200", "26 02:30+0100"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31T12:00", ["01 01:30-0400", "02 01:30-0500"]),
        ("*/30 2 * * *", PARIS, "2026-10-25T00:00", ["25 02:00+0200", "25 02:30+0200"]),
        # Every hour goes by time that has passed: 60 minutes are 60 minutes.
        ("0 * * * *", PARIS, "2026-03-29T00:30", ["29 01:00+0100", "29 03:00+0200"]),
        ("0 * * * *", PARIS, "2026-10-25T01:30", ["25 02:00+0200", "25 02:00+0100"]),
        ("0 0-23 * * *", NEW_YORK, "2026-11-01T00:30", ["01 01:00-0400", "01 01:00-0500"]),
    ],
)
def test_when_the_clocks_are_set_a_slot_runs_once(cron, zone, start, expected):
    assert shown(cron, zone, start, 2) == expected


def test_whoever_begins_in_the_hour_that_comes_twice_is_given_nothing_from_its_first_time():
    paris = zone_named(PARIS)
    second = datetime(2026, 10, 25, 2, 10, fold=1, tzinfo=paris).timestamp()
    schedule = a_schedule(cron="30 2 * * *", zone=PARIS)

    first = next(slots_after(schedule, second))

    assert f"{schedule.moment(first):%d %H:%M%z}" == "26 02:30+0100"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CRONS),
    st.sampled_from(ZONES),
    st.floats(min_value=at("2025-01-01"), max_value=at("2028-01-01")),
    st.integers(min_value=1, max_value=20),
)
def test_slots_follow_one_another_wherever_one_begins(cron, zone, start, count):
    """From any slot on, the next ones are the same: who looks when makes no difference."""
    schedule = a_schedule(cron=cron, zone=zone)

    slots = list(islice(slots_after(schedule, start), count + 1))

    assert all(earlier < later for earlier, later in pairwise([start, *slots]))
    for place, slot in enumerate(slots[:-1]):
        assert next(slots_after(schedule, slot)) == slots[place + 1]
        assert next(slots_after(schedule, slot + 0.5)) == slots[place + 1]


@settings(deadline=None)
@given(
    st.floats(min_value=1.0, max_value=1e6),
    st.floats(min_value=0, max_value=2e9),
    st.floats(min_value=0, max_value=1e7),
)
def test_intervals_count_from_the_beginning_and_never_drift(every, starts_at, passed):
    schedule = a_schedule(every=every, starts_at=starts_at)

    slots = list(islice(slots_after(schedule, starts_at + passed), 3))

    assert all(earlier < later for earlier, later in pairwise([starts_at + passed, *slots]))
    assert slots[0] - (starts_at + passed) <= every * 1.000001 + 1e-6
    assert next(slots_after(schedule, slots[0])) == slots[1]


@pytest.mark.parametrize("every", [60, 3600, 12 * 3600, 86400, 7 * 86400, 14 * 86400])
def test_the_intervals_of_dark(every):
    """D60: a minute, an hour, half a day, a day, a week, a fortnight; the first one at once."""
    schedule = replaced(None, a_schedule(every=float(every), at_once=True), 1000.0)

    decisions = plan(schedule, 1000.0).decisions

    assert words(decisions) == [("enqueued", 1)]
    after = decided(schedule, decisions, 1000.0)
    assert plan(after, 1000.0 + every - 1).decisions == []
    assert [each.slot for each in plan(after, 1000.0 + every).decisions] == [1000.0 + every]


def test_a_one_off_is_due_once():
    """G32."""
    schedule = replaced(None, a_schedule(at=2000.0), 1000.0)

    assert plan(schedule, 1999.0).decisions == []
    decisions = plan(schedule, 2001.0).decisions
    assert words(decisions) == [("enqueued", 1)]
    assert list(slots_after(decided(schedule, decisions, 2001.0), 2000.0)) == []


# What becomes of them


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"missed": "one"}, [("skipped: missed", 23), ("enqueued", 1)]),
        ({"missed": "one", "window": 600.0}, [("skipped: missed", 24)]),
        ({"missed": "skip"}, [("skipped: missed", 24)]),
        ({"missed": "skip", "window": 3600.0}, [("skipped: missed", 23), ("enqueued", 1)]),
        ({"missed": "all"}, [("enqueued", 1)] * 24),
        ({"missed": "all", "window": 7200.0}, [("skipped: missed", 22), *[("enqueued", 1)] * 2]),
        ({"missed": "all", "overlap": "skip"}, [("enqueued", 1), ("skipped: overlap", 23)]),
    ],
)
def test_what_was_missed_in_a_day_without_workers_is_decided_by_the_policy(fields, expected):
    schedule = replaced(None, a_schedule(every=3600.0, **fields), 0.0)

    decisions = plan(schedule, 86400.0 + 3500.0).decisions

    assert words(decisions) == expected
    assert sum(decision.slots for decision in decisions) == 24


@pytest.mark.parametrize("missed", ["one", "skip", "all"])
def test_a_slot_that_is_a_moment_late_is_not_missed(missed):
    """D61: no gap when the workers are deployed anew."""
    schedule = replaced(None, a_schedule(every=3600.0, missed=missed), 0.0)

    assert words(plan(schedule, 3600.0 + 45.0).decisions) == [("enqueued", 1)]


def test_overlap_skip_and_cancel():
    """D61: overlap control."""
    skip = replaced(None, a_schedule(every=60.0, overlap="skip"), 0.0)
    assert words(plan(skip, 60.0, unended=True).decisions) == [("skipped: overlap", 1)]
    assert words(plan(skip, 60.0, unended=False).decisions) == [("enqueued", 1)]

    cancel = replaced(None, a_schedule(every=60.0, overlap="cancel", missed="all"), 0.0)
    cancel = msgspec.structs.replace(cancel, last_job="before")
    skipped, made = plan(cancel, 180.0, unended=True).decisions
    assert (skipped.says, skipped.slots) == ("skipped: overlap", 2)
    assert (made.says, made.cancels, made.slot) == ("enqueued: cancelled old", "before", 180.0)


def test_a_paused_schedule_makes_nothing():
    paused = replaced(None, a_schedule(every=60.0, paused=True), 0.0)

    assert words(plan(paused, 3600.0).decisions) == [("skipped: paused", 60)]


looks = st.lists(st.floats(min_value=-5000, max_value=20000), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(
    looks,
    st.sampled_from(["one", "skip", "all"]),
    st.sampled_from(["allow", "skip", "cancel"]),
    st.sampled_from([{"every": 97.0}, {"cron": "*/7 * * * *"}, {"cron": "0 2 * * *"}]),
    st.booleans(),
)
def test_each_slot_is_decided_once_whatever_the_clock_does(steps, missed, overlap, when, unended):
    """Outages, and a clock that goes back: the slots decided are all slots, once, in order."""
    start = at("2026-03-28T23:00")
    now = start
    schedule = replaced(None, a_schedule(**when, zone=PARIS, missed=missed, overlap=overlap), start)
    covered = 0
    ids: list[str] = []
    for step in steps:
        now += step
        more = True
        while more:
            planned = plan(schedule, now, unended=unended)
            for decision in planned.decisions:
                assert decision.first > schedule.decided_until
                covered += decision.slots
                ids += [decision.job.id] if decision.job else []
            schedule = decided(schedule, planned.decisions, now)
            more = planned.more

    expected = takewhile(lambda slot: slot <= schedule.decided_until, slots_after(schedule, start))
    assert covered == len(list(expected))
    assert len(set(ids)) == len(ids)


def test_a_long_outage_is_worked_off_in_parts():
    schedule = replaced(None, a_schedule(every=1.0), 0.0)

    planned = plan(schedule, 1e9)

    assert planned.more
    assert words(planned.decisions) == [("skipped: missed", MOST_SLOTS)]
    many = replaced(None, a_schedule(every=1.0, missed="all"), 0.0)
    first = plan(many, MOST_JOBS + 10.0)
    assert (len(first.decisions), first.more) == (MOST_JOBS, True)
    rest = plan(decided(many, first.decisions, 0.0), MOST_JOBS + 10.0)
    assert (len(rest.decisions), rest.more) == (10, False)


# The job


def test_the_job_of_a_slot_is_the_same_whoever_makes_it():
    schedule = replaced(None, a_schedule(every=60.0, expires=30.0), 0.0)

    job, again = job_for(schedule, 60.0, 61.0), job_for(schedule, 60.0, 75.5)

    assert job.id == again.id == slot_id("s", 60.0)
    assert (job.run_at, job.expires_at, again.expires_at) == (60.0, 91.0, 105.5)
    assert job_for(schedule, 120.0, 121.0).id != job.id


def test_the_nominal_time_is_handed_over_in_the_schedules_zone():
    schedule = a_schedule(cron="30 2 * * *", zone=PARIS, takes_slot=True)
    job = msgspec.structs.replace(
        schedule.job,
        body=b'{"args":{"a":1,"slot":"1970-01-01T00:00:00Z"},"timeout":5}',
        search={"slot": "1970"},
    )
    schedule = msgspec.structs.replace(schedule, job=job)

    made = job_for(schedule, at("2026-03-29T01:00"), 0.0)

    assert json.loads(made.body) == {
        "args": {"a": 1, "slot": "2026-03-29T03:00:00+02:00"},
        "timeout": 5,
    }
    assert made.search == {"slot": "2026-03-29T03:00:00+02:00"}


# What is refused


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"cron": "* * * *"}, "five fields"),
        ({"cron": "0 * * * * *"}, "every="),
        ({"cron": "61 * * * *"}, "Bad minute"),
        ({"cron": "0 0 30 2 *"}, "Bad day"),
        ({"cron": "* * */20 * 1L"}, "never due"),
        ({"cron": "@often"}, "five fields"),
        ({"cron": f"{'1,' * 300}1 * * * *"}, "609 characters, 500 at most"),
        ({"cron": "0 0 * * *", "zone": "Europe/Pariss"}, "Europe/Pariss"),
        ({"cron": "0 0 * * *", "zone": "../../etc/passwd"}, "time zone database"),
        ({"cron": "0 0 * * *", "every": 5.0}, "give one of"),
        ({"every": 0.5}, "one second or more"),
        ({"every": float("nan")}, "one second or more"),
        ({"every": 60.0, "missed": "some"}, "missed='some'"),
        ({"every": 60.0, "overlap": "some"}, "overlap='some'"),
        ({"every": 60.0, "window": 0.0}, "window"),
        ({"zone": "UTC"}, "give one of"),
    ],
)
def test_what_is_no_time_is_refused_in_a_sentence(fields, sentence):
    with pytest.raises(Refused, match=sentence):
        check_schedule(a_schedule(**fields))


@pytest.mark.parametrize("cron", CRONS)
def test_a_good_one_is_kept(cron):
    schedule = a_schedule(cron=cron, zone=PARIS)

    assert check_schedule(schedule) is schedule


def test_a_year_of_minutes_takes_a_while_and_ends():
    schedule = replaced(None, a_schedule(cron="* * * * *"), at("2026-01-01"))

    planned = plan(schedule, at("2026-01-01") + timedelta(days=365).total_seconds())

    assert (planned.more, planned.decisions[0].slots) == (True, MOST_SLOTS)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cron": "0 9 * * *", "zone": PARIS}, "0 9 * * * (Europe/Paris)"),
        ({"every": 90.0}, "every 90 s"),
        ({"at": 1_000.0}, "once"),
    ],
)
def test_its_times_are_said_as_people_say_them(fields, words):
    assert Schedule(name="sweep", job=Job(task="mail:sweep", id=""), **fields).times == words


def test_a_window_is_longer_than_nothing():
    assert check_schedule(a_schedule(every=60.0, window=0.5)).window == 0.5
    with pytest.raises(Refused, match="window=0"):
        check_schedule(a_schedule(every=60.0, window=0))


def test_a_task_without_a_slot_is_handed_none():
    schedule = a_schedule(every=60.0)

    assert job_for(schedule, 60.0, 61.0).body == schedule.job.body


def test_a_decision_is_fenced_by_what_was_read():
    read = replaced(None, a_schedule(every=60.0), 100.0)
    made_anew = msgspec.structs.replace(read, created_at=200.0)

    assert holds(read, read)
    assert not holds(decided(read, [], 160.0), read)
    assert not holds(made_anew, read)


@pytest.mark.parametrize(("due", "more"), [(MOST_JOBS, False), (MOST_JOBS + 1, True)])
def test_a_plan_says_whether_there_is_more(due, more):
    every = a_schedule(every=1.0, missed="all", overlap="allow")

    planned = plan(every, float(due))

    assert (len(planned.decisions), planned.more) == (MOST_JOBS, more)


@pytest.mark.parametrize(("due", "more"), [(MOST_SLOTS, False), (MOST_SLOTS + 1, True)])
def test_a_plan_of_a_paused_schedule_says_whether_there_is_more(due, more):
    planned = plan(a_schedule(every=1.0, paused=True), float(due))

    assert (words(planned.decisions), planned.more) == ([("skipped: paused", MOST_SLOTS)], more)


def test_each_change_raises_the_revision_by_one():
    first = replaced(None, a_schedule(every=60.0), 100.0)
    second = replaced(first, a_schedule(every=30.0), 200.0)
    third = decided(second, [Decision(says="paused")], 300.0)

    assert [each.revision for each in (first, second, third)] == [1, 2, 3]
    assert holds(second, second)
    assert not holds(third, second)


@pytest.mark.parametrize(
    ("author", "reason", "added"),
    [
        ("", "", {}),
        ("ada", "", {"author": "ada", "reason": ""}),
        ("", "too many", {"author": "", "reason": "too many"}),
    ],
)
def test_the_history_names_whoever_changed_a_schedule_and_why(author, reason, added):
    decision = Decision(says="paused", author=author, reason=reason)

    assert event_data("s", decision, 10.0) == {"schedule": "s", "says": "paused", **added}


def test_the_history_says_which_slots_a_decision_is_about():
    one = Decision(says="enqueued", slot=60.0, first=60.0, slots=1, cancels="a-job")
    some = Decision(says="skipped: missed", slot=120.0, first=60.0, slots=2)

    assert event_data("s", one, 61.5) == {
        "schedule": "s",
        "says": "enqueued",
        "slot": "1970-01-01T00:01:00Z",
        "late": 1.5,
        "cancels": "a-job",
    }
    assert event_data("s", some, 100.0) == {
        "schedule": "s",
        "says": "skipped: missed",
        "slot": "1970-01-01T00:02:00Z",
        "late": 0.0,
        "first": "1970-01-01T00:01:00Z",
        "slots": 2,
    }
