"""Rules about a version, a tag or a key: they hold back just those jobs."""

from __future__ import annotations

import json

import pytest

from penstock.errors import Refused
from penstock.job import put_back
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_job, claim, ids_of, settle, some_jobs

PAUSE, BLOCK = RuleKind.PAUSE, RuleKind.BLOCK
NEWER = {"mail:send": 3, "mail:sweep": 3}


def some_of_each(clock):
    return {
        "plain": a_job(clock),
        "a": a_job(clock, tags={"tenant": "a"}),
        "b": a_job(clock, tags={"tenant": "b", "colour": "red"}),
        "ada": a_job(clock, key="ada"),
        "bob": a_job(clock, key="bob", tags={"tenant": "a"}),
        "newer": a_job(clock, version=2),
        "sweep": a_job(clock, "mail:sweep", tags={"tenant": "a"}),
        "other": a_job(clock, queue="other", key="ada"),
    }


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"tag": ("tenant", "a")}, ["a", "bob", "sweep"]),
        ({"tag": ("tenant", "c")}, []),
        ({"tag": ("colour", "red")}, ["b"]),
        ({"key": "ada"}, ["ada", "other"]),
        ({"key": "ada", "queue": "default"}, ["ada"]),
        ({"key": "bob", "tag": ("tenant", "a")}, ["bob"]),
        ({"key": "ada", "tag": ("tenant", "a")}, []),
        ({"tag": ("tenant", "a"), "task": "mail:sweep"}, ["sweep"]),
        ({"version": 2}, ["newer"]),
        ({"version": 2, "task": "mail:send"}, ["newer"]),
        ({"version": 2, "key": "ada"}, []),
        ({"version": 1, "key": "ada", "queue": "other"}, ["other"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [PAUSE, BLOCK])
def test_only_what_it_names_is_held_back(broker, clock, kind, fields, held):
    """D31, D32, D36."""
    jobs = some_of_each(clock)
    broker.enqueue(list(jobs.values()))

    broker.put(Rule(kind, **fields))

    assert sum(count.paused for count in broker.count()) == len(held)
    assert sum(count.ready for count in broker.count()) == len(jobs) - len(held)
    taken = set(ids_of(claim(broker, limit=20, tasks=NEWER)))
    assert [name for name, job in jobs.items() if job.id not in taken] == held


@pytest.mark.parametrize(
    "fields", [{"tag": ("tenant", "a")}, {"key": "bob"}, {"version": 2}], ids=str
)
def test_taking_it_back_lets_them_run(broker, clock, fields):
    broker.enqueue(list(some_of_each(clock).values()))
    rule = broker.put(Rule(PAUSE, **fields))
    taken = claim(broker, limit=20, tasks=NEWER)

    assert broker.records(Rule) == [rule]
    assert broker.clear(Rule, rule_id(PAUSE)) is False
    assert broker.clear(Rule, rule_id(BLOCK, **fields)) is False
    assert broker.clear(Rule, rule_id(PAUSE, **fields)) is True

    assert len(taken) + len(claim(broker, limit=20, tasks=NEWER)) == 8


def test_many_that_are_held_back_do_not_hide_the_one_behind_them(broker, clock):
    broker.enqueue(some_jobs(clock, 500, tags={"tenant": "a"}))
    last = a_job(clock, tags={"tenant": "b"})
    broker.enqueue([last])
    broker.put(Rule(PAUSE, tag=("tenant", "a")))

    assert ids_of(claim(broker, limit=10)) == [last.id]
    assert claim(broker, limit=10) == []
    assert broker.clear(Rule, rule_id(PAUSE, tag=("tenant", "a")))
    assert len(claim(broker, limit=1000)) == 500


@pytest.mark.scope(of="bucket")
def test_oldest_first_among_what_is_left(broker, clock):
    """Rows and parcels of one lane, merged as ever."""
    jobs = []
    for fields in ({"key": "a"}, {}, {"key": "b"}, {}, {"key": "a"}, {"key": "b"}, {}):
        jobs.append(a_job(clock, **fields))
        clock.advance(seconds=1)
    broker.enqueue(jobs)
    broker.put(Rule(PAUSE, key="a"))

    order = [sorted(ids_of(claim(broker, limit=2))) for _ in range(3)]

    left = [job.id for job in jobs if job.key != "a"]  # ids go by time
    assert order == [left[:2], left[2:4], left[4:]]


def test_a_job_that_failed_once_is_covered_as_before(broker, clock):
    job = a_job(clock, tags={"tenant": "a"})
    broker.enqueue([job])
    [claimed] = claim(broker)
    broker.put(Rule(PAUSE, tag=("tenant", "a")))

    assert settle(broker, claimed, put_back("paused"))

    assert claim(broker) == []


def test_block_and_pause_of_one_key_stand_beside_each_other(broker, clock):
    """D57."""
    broker.enqueue([a_job(clock, key="ada")])
    broker.put(Rule(PAUSE, key="ada"))
    broker.put(Rule(BLOCK, key="ada"))

    broker.clear(Rule, rule_id(PAUSE, key="ada"))

    assert claim(broker) == []
    broker.clear(Rule, rule_id(BLOCK, key="ada"))
    assert len(claim(broker)) == 1


def test_it_ends_by_itself_at_its_time(broker, clock):
    broker.enqueue([a_job(clock, key="ada")])
    broker.put(Rule(PAUSE, key="ada", until=clock.now() + 60))
    assert claim(broker) == []

    clock.advance(seconds=60)

    assert len(claim(broker)) == 1


def test_why_names_what_it_is_about_and_the_way_out(broker, clock):
    job = a_job(clock, key="ada", tags={"tenant": "a"})
    broker.enqueue([job])
    claim(broker, limit=0)
    broker.put(Rule(BLOCK, "default", key="ada", tag=("tenant", "a"), author="bob"))

    answer = broker.why(job.id)

    assert answer.cause == "blocked"
    assert "Queue default and tag tenant=a and key ada is blocked by bob" in answer.sentence
    assert "`penstock unblock default --tag tenant=a --key ada --admin`" in answer.sentence


def test_the_history_tells_what_it_was_about(broker):
    broker.put(Rule(PAUSE, tag=("tenant", "a"), version=2, author="ada"))

    data = json.loads(broker.history()[0].data)

    assert (data["tag"], data["version"], data["set"]) == (["tenant", "a"], 2, True)


def test_a_rule_about_a_value_that_no_index_holds_is_refused():
    with pytest.raises(Refused):
        Rule(PAUSE, tag=("tenant", "x" * 300))
    with pytest.raises(Refused):
        Rule(PAUSE, key="")
