"""History: what happened, in the order it was committed; a reader misses nothing."""

from __future__ import annotations

import threading

import pytest

from penstock.broker.position import BEGINNING
from penstock.broker.views import Note
from penstock.errors import Refused
from penstock.job import failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_job,
    a_worker,
    begun,
    claim,
    claim_for,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)


def test_a_new_store_has_no_history(broker, clock):
    """Queued and started leave no rows: one row per ended attempt."""
    enqueue_and_claim(broker, clock)

    assert broker.history() == []


def test_rows_come_in_order_with_rising_positions(broker, clock):
    """I13: append-only."""
    broker.enqueue(some_jobs(clock, 5))
    taken = claim(broker, limit=5)
    for job in reversed(taken):
        settle(broker, job, succeeded())

    rows = broker.history()

    assert [row.job for row in rows] == ids_of(reversed(taken))
    positions = [row.position for row in rows]
    assert all(type(position) is str for position in positions)
    assert positions == sorted(set(positions))
    assert positions[0] > BEGINNING


def test_a_reader_goes_on_from_the_last_position_it_saw(broker, clock):
    broker.enqueue(some_jobs(clock, 7))
    broker.settle([(job, succeeded()) for job in claim(broker, limit=7)])
    whole = broker.history()
    read, after = [], BEGINNING

    while page := broker.history(after=after, limit=3):
        assert len(page) <= 3
        read += page
        after = page[-1].position

    assert read == whole
    assert broker.history(after=whole[-1].position) == []


def test_one_job_s_rows_can_be_asked_for(broker, clock):
    """D63."""
    broker.enqueue(some_jobs(clock, 2))
    first, second = claim(broker, limit=2)
    settle(broker, first, begun(try_again("x", clock.now()), clock.now()))
    settle(broker, second, succeeded())
    [again] = claim(broker)
    settle(broker, again, succeeded())

    rows = broker.history(job=first.id)

    assert [(row.attempt, row.state) for row in rows] == [(1, "ready"), (2, "succeeded")]
    assert broker.history(after=rows[0].position, job=first.id) == rows[1:]
    assert broker.history(job=first.id, limit=1) == rows[:1]
    assert broker.history(job=a_job(clock).id) == []


@pytest.mark.scope(of="bucket")
def test_everything_that_happens_to_a_job_beside_its_attempts_is_there(broker, clock):
    """D59: cancel, retry, delete, rules, progress and events."""
    job = enqueue_and_claim(broker, clock)
    broker.note(job, Note("progress", "half"))
    broker.note(job, Note("event", "sent"))
    broker.act("cancel", [job.id])
    settle(broker, job, failed("x"))
    broker.act("retry", [job.id])
    broker.act("cancel", [job.id])
    broker.act("delete", [job.id])
    broker.put(Rule(RuleKind.PAUSE, queue="mail"))
    broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))

    assert [row.kind for row in broker.history()] == [
        "progress",
        "event",
        "cancel",
        "attempt",
        "retry",
        "cancel",
        "delete",
        "rule",
        "rule",
    ]
    assert [row.job for row in broker.history()][:7] == [job.id] * 7


def test_the_rarer_rows_name_the_task_and_its_queue(broker, clock):
    job = a_job(clock, queue="mail")
    broker.enqueue([job])
    broker.act("cancel", [job.id])

    [row] = broker.history()

    assert (row.queue, row.task, row.at) == ("mail", "mail:send", clock.now())


def test_a_stale_settlement_leaves_no_row(broker, clock):
    job = enqueue_and_claim(broker, clock)
    settle(broker, job, succeeded())
    settle(broker, job, failed("late"))

    assert len(broker.history()) == 1


def test_a_reader_beside_many_writers_misses_nothing(broker, clock):
    """I13: late committers are not skipped."""
    broker.enqueue(some_jobs(clock, 200))
    done = threading.Event()
    read = []

    def reader():
        after = BEGINNING
        while True:
            last = done.is_set()
            page = broker.history(after=after, limit=20)
            read.extend(row.job for row in page)
            after = page[-1].position if page else after
            if last and not page:
                return

    def worker(name):
        while jobs := claim_for(broker, a_worker(name), limit=5):
            broker.settle([(job, succeeded()) for job in jobs])

    following = threading.Thread(target=reader)
    workers = [threading.Thread(target=worker, args=(f"worker-{n}",)) for n in range(5)]
    for thread in (following, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    following.join()

    assert len(read) == len(set(read)) == 200


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_last_rows_are_there_for_people_to_look_at(broker, clock, limit):
    jobs = some_jobs(clock, 7)
    broker.enqueue(jobs)
    for job in claim(broker, limit=7):
        settle(broker, job, begun(succeeded(), clock.now()))
        clock.advance(seconds=1)
    every = broker.history()

    assert broker.history(after=None, limit=limit) == every[-limit:]
    assert broker.history(after=None, limit=limit, job=jobs[3].id) == [every[3]]


def test_of_an_empty_history_there_is_nothing_last(broker):
    assert broker.history(after=None, limit=5) == []


@pytest.mark.scope(of="bucket")  # a row may have another position in another reading
def test_the_last_rows_of_one_kind_are_asked_for_page_by_page(broker, clock):
    broker.enqueue(some_jobs(clock, 12))
    for job in claim(broker, limit=6):
        settle(broker, job, begun(succeeded(), clock.now()))
        broker.put(Rule(RuleKind.PAUSE, "slow", None, "ada", job.id))
        broker.clear(Rule, rule_id(RuleKind.PAUSE, "slow", None), "ada")
    broker.gauge()
    whole = broker.history()

    for kind in ("rule", "attempt", "gauge"):
        wanted = [row for row in whole if row.kind == kind]
        assert wanted
        assert broker.history(None, kind=kind) == wanted
        read, before = [], None
        while page := broker.history(None, 5, kind=kind, before=before):
            assert len(page) <= 5
            read = page + read
            before = page[0].position
        assert read == wanted
    assert broker.history(None, kind="cancel") == []


def test_the_last_rows_before_a_position_are_asked_for(broker, clock):
    broker.enqueue(some_jobs(clock, 5))
    broker.settle([(job, succeeded()) for job in claim(broker, limit=5)])
    whole = broker.history()

    assert broker.history(None, 2, before=whole[3].position) == whole[1:3]
    assert broker.history(None, before=whole[0].position) == []


def test_kind_and_before_are_refused_where_they_would_be_passed_over(broker, clock):
    job = a_job(clock)

    for given in ({"after": BEGINNING}, {"after": None, "job": job.id}):
        with pytest.raises(Refused, match="for the last rows"):
            broker.history(**given, kind="rule")
        with pytest.raises(Refused, match="for the last rows"):
            broker.history(**given, before=BEGINNING)


@pytest.mark.scope(of="bucket")  # a row may have another position in another reading
def test_the_last_rows_of_several_kinds_are_asked_for_page_by_page(broker, clock):
    """An audit reads backwards: in the order of the history, whatever the kinds."""
    jobs = some_jobs(clock, 6)
    broker.enqueue(jobs)
    for job in jobs:
        broker.act("cancel", [job.id], "ada")
        broker.put(Rule(RuleKind.PAUSE, job.id))
        broker.act("retry", [job.id], "ada")
    broker.settle([(job, succeeded()) for job in claim(broker, limit=3)])
    wanted = [row for row in broker.history() if row.kind in {"cancel", "retry", "rule"}]
    kinds = ["rule", "cancel", "retry", "signal"]

    read, before = [], None
    while page := broker.history(None, 5, kind=kinds, before=before):
        assert len(page) <= 5
        read = page + read
        before = page[0].position

    assert len(wanted) == 18
    assert read == wanted
    assert broker.history(None, kind=kinds) == wanted
    with pytest.raises(Refused, match="attempts are a kind to ask for by itself"):
        broker.history(None, kind=["attempt", "rule"])


@pytest.mark.parametrize("wrong", ["", "-1", "one", " 0", "0-"])
def test_what_is_no_position_of_this_store_is_refused(broker, clock, wrong):
    """Positions are opaque: whatever the store cannot have made is a mistake of the reader."""
    job = enqueue_and_claim(broker, clock)

    for asked in ({"after": wrong}, {"after": wrong, "job": job.id}, {"before": wrong}):
        with pytest.raises(Refused) as refused:
            broker.history(**{"after": None, **asked})
        assert repr(wrong) in str(refused.value)
        assert "take it from a row of its history" in str(refused.value)


def test_a_position_that_the_history_has_not_come_to_is_refused(broker, clock):
    """Of another store, or of this one before a backup: nothing would ever be behind it."""
    settle(broker, enqueue_and_claim(broker, clock), succeeded())
    farther = f"{1 << 60:020d}"

    with pytest.raises(Refused, match=rf"{farther}\D* (is ahead of this history|is no position)"):
        broker.history(farther)
    assert broker.history(broker.history()[-1].position) == []
