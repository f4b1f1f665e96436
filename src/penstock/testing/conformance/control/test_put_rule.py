"""Set a rule: from the moment this returned, nothing that it covers is handed out."""

from __future__ import annotations

import json

import msgspec
import pytest

from penstock.errors import Refused
from penstock.job import State, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK


@pytest.fixture(params=[{}, {"tags": {"tenant": "a"}}], ids=["plain", "tagged"])
def fields(request):
    """Jobs that travel in parcels, and jobs that have a row of their own: both promise the same."""
    return request.param


@pytest.mark.parametrize("kind", [PAUSE, BLOCK])
def test_jobs_under_a_rule_stay_where_they_are(broker, clock, fields, kind):
    """D15, D31, D32."""
    broker.enqueue([a_job(clock, queue="mail", **fields)])

    broker.put(Rule(kind, queue="mail"))

    assert claim(broker) == []
    assert [count.paused for count in broker.count()] == [1]


def test_a_worker_that_has_just_claimed_is_stopped_as_well(broker, clock, fields):
    """Nothing starts after pause returned, whatever a worker remembers of its last look."""
    broker.enqueue(some_jobs(clock, 5, **fields))
    assert len(claim(broker, limit=2)) == 2

    broker.put(Rule(PAUSE, queue="default"))

    assert claim(broker, limit=2) == []


def test_a_running_job_goes_on_under_a_rule(broker, clock, fields):
    """D31: the run ends, the next does not start."""
    job = enqueue_and_claim(broker, clock, **fields)

    broker.put(Rule(PAUSE, queue="default"))

    assert settle(broker, job, succeeded())


def test_jobs_are_accepted_under_a_rule(broker, clock, fields):
    """D34."""
    broker.put(Rule(BLOCK, queue="mail"))
    job = a_job(clock, queue="mail", **fields)

    broker.enqueue([job])

    assert broker.get(job.id).state is State.READY
    assert claim(broker) == []


@pytest.mark.parametrize(
    ("rule", "left"),
    [
        (Rule(PAUSE, queue="a"), ["b:send", "b:sweep"]),
        (Rule(PAUSE, task="mail:send"), ["a:sweep", "b:sweep"]),
        (Rule(PAUSE, queue="a", task="mail:send"), ["a:sweep", "b:send", "b:sweep"]),
        (Rule(PAUSE), []),
        (Rule(PAUSE, queue="c"), ["a:send", "a:sweep", "b:send", "b:sweep"]),
    ],
    ids=["queue", "task", "both", "everything", "another"],
)
def test_a_rule_covers_its_queue_its_task_or_both_together(broker, clock, rule, left):
    """D7, D36."""
    broker.enqueue(
        [a_job(clock, f"mail:{task}", queue=q) for q in "ab" for task in ("send", "sweep")]
    )

    broker.put(rule)

    taken = claim(broker, limit=9)
    assert sorted(f"{job.queue}:{job.task.removeprefix('mail:')}" for job in taken) == left


def test_a_rule_over_many_jobs_is_one_write(broker, clock):
    """D33, D37, D49: pause, 1,500 jobs, eight days; all run, each once."""
    jobs = some_jobs(clock, 1500)
    broker.put(Rule(PAUSE, queue="default"))
    broker.enqueue(jobs)
    clock.advance(days=8)
    assert claim(broker, limit=2000) == []

    broker.clear(Rule, rule_id(PAUSE, queue="default"))

    assert sorted(ids_of(claim(broker, limit=2000))) == sorted(ids_of(jobs))


def test_pausing_and_resuming_quickly_duplicates_nothing(broker, clock, fields):
    """D35: nine times in a row, one run per job."""
    jobs = some_jobs(clock, 3, **fields)
    broker.enqueue(jobs)
    taken = []
    for _ in range(9):
        broker.put(Rule(PAUSE, queue="default"))
        taken += claim(broker, limit=9)
        broker.clear(Rule, rule_id(PAUSE, queue="default"))
        taken += claim(broker, limit=1)

    assert sorted(ids_of(taken)) == sorted(ids_of(jobs))


def test_setting_a_rule_twice_is_once(broker, clock):
    """D58: paused twice, resumed once: running."""
    broker.enqueue([a_job(clock)])
    first = broker.put(Rule(PAUSE, queue="default", author="ada", reason="one"))
    clock.advance(seconds=60)

    again = broker.put(Rule(PAUSE, queue="default", author="bob", reason="two"))

    assert again == msgspec.structs.replace(first, author="bob", reason="two")
    assert broker.records(Rule) == [again]
    broker.clear(Rule, rule_id(PAUSE, queue="default"))
    assert len(claim(broker)) == 1


def test_a_rule_knows_since_when_it_is_in_force(broker, clock):
    """D36."""
    rule = broker.put(Rule(PAUSE, queue="mail", author="ada", reason="provider down"))

    assert rule.created_at == clock.now()
    assert broker.records(Rule) == [rule]


def test_a_rule_ends_by_itself_at_its_time(broker, clock, fields):
    broker.enqueue([a_job(clock, **fields)])
    broker.put(Rule(PAUSE, queue="default", until=clock.now() + 60))
    clock.advance(seconds=59)
    assert claim(broker) == []

    clock.advance(seconds=1)

    assert len(claim(broker)) == 1
    assert broker.records(Rule) == []


def test_a_rule_set_again_after_it_ended_begins_anew(broker, clock):
    broker.put(Rule(PAUSE, queue="mail", until=clock.now() + 60))
    clock.advance(days=30)

    rule = broker.put(Rule(PAUSE, queue="mail"))

    assert rule.created_at == clock.now()


@pytest.mark.parametrize(
    "kinds", [(PAUSE, BLOCK), (BLOCK, PAUSE)], ids=["pause first", "block first"]
)
@pytest.mark.parametrize("cleared", [PAUSE, BLOCK])
def test_taking_one_of_two_rules_back_leaves_the_other(broker, clock, kinds, cleared):
    """D57: all four orders."""
    broker.enqueue([a_job(clock)])
    for kind in kinds:
        broker.put(Rule(kind, queue="default"))

    broker.clear(Rule, rule_id(cleared, queue="default"))
    assert claim(broker) == []
    [left] = broker.records(Rule)
    broker.clear(Rule, rule_id(left.kind, queue="default"))

    assert left.kind is not cleared
    assert len(claim(broker)) == 1


def test_the_history_tells_who_set_which_rule_and_why(broker, clock):
    """D59."""
    broker.put(Rule(PAUSE, queue="mail", author="ada", reason="provider down"))

    [event] = broker.history()

    assert event.kind == "rule"
    assert json.loads(event.data) == {
        "id": rule_id(PAUSE, queue="mail"),
        "kind": "pause",
        "queue": "mail",
        "task": None,
        "author": "ada",
        "reason": "provider down",
        "set": True,
    }


def test_a_rule_over_an_empty_queue_is_fine(broker):
    """D50."""
    broker.put(Rule(PAUSE, queue="nothing here"))

    assert broker.clear(Rule, rule_id(PAUSE, queue="nothing here")) is True


@pytest.mark.parametrize(
    "rule",
    [
        Rule(PAUSE, "x" * 201),
        Rule(PAUSE, task="x" * 201),
        Rule(BLOCK, key="x" * 501),
        Rule(RuleKind.LIMIT, "mail", running=2**31),
        Rule(RuleKind.LIMIT, "mail", rate=(2**31, 1.0)),
    ],
    ids=["queue", "task", "key", "running", "rate"],
)
def test_what_no_job_has_and_no_store_keeps_is_refused(broker, rule):
    with pytest.raises(Refused, match=r"no job's has more than|up to 2,147"):
        broker.put(rule)

    assert broker.records(Rule) == []
