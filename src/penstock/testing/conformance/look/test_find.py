"""Find: jobs that match, newest first, page by page."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.filter import Filter, parse_filter
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.job import State, failed, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import (
    a_job,
    claim,
    enqueue_and_claim,
    ids_of,
    settle,
    some_jobs,
)


def all_pages(broker, filter, limit=100):
    jobs, after = [], None
    while True:
        page = broker.find(filter, after, limit)
        assert len(page.jobs) <= limit
        jobs += page.jobs
        if page.after is None:
            return jobs
        after = page.after


def words(clock, *texts):
    return parse_filter(texts, clock.now())


def test_an_empty_store_has_nothing_to_find(broker):
    page = broker.find(Filter())

    assert (list(page.jobs), page.after) == ([], None)


def test_the_newest_comes_first_wherever_it_stands(broker, clock):
    """D62: see queued messages."""
    jobs = []
    for step in range(6):
        clock.advance(seconds=1)
        jobs += some_jobs(clock, 2)
        jobs.append(a_job(clock, tags={"tenant": "a"}, run_at=clock.now() + 5))
        broker.enqueue(jobs[-3:])
        if step % 2:
            [job] = claim(broker)
            settle(broker, job, succeeded() if step % 4 == 1 else failed("x"))

    found = all_pages(broker, Filter())

    assert ids_of(found) == sorted(ids_of(jobs), reverse=True)
    assert {job.state for job in found} == {State.READY, State.SUCCEEDED, State.FAILED}


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 50])
def test_pages_follow_on_without_gaps_or_repeats(broker, clock, limit):
    jobs = [*some_jobs(clock, 9), *some_jobs(clock, 8, tags={"tenant": "a"})]
    broker.enqueue(jobs)
    broker.settle([(job, succeeded()) for job in claim(broker, limit=4)])
    claim(broker, limit=3)

    assert ids_of(all_pages(broker, Filter(), limit)) == sorted(ids_of(jobs), reverse=True)


def test_jobs_that_arrive_meanwhile_do_not_disturb_the_pages(broker, clock):
    jobs = some_jobs(clock, 6)
    broker.enqueue(jobs)
    first = broker.find(Filter(), limit=3)
    clock.advance(seconds=1)
    broker.enqueue(some_jobs(clock, 4))

    second = broker.find(Filter(), first.after, limit=10)

    assert ids_of([*first.jobs, *second.jobs]) == sorted(ids_of(jobs), reverse=True)


@pytest.fixture
def many(broker, clock):
    """One job in every state, and some that differ in everything else."""
    named = {}
    named["failed"] = enqueue_and_claim(broker, clock, queue="mail")
    settle(broker, named["failed"], failed("boom"))
    named["succeeded"] = enqueue_and_claim(broker, clock, queue="mail", tags={"tenant": "b"})
    settle(broker, named["succeeded"], succeeded(b"1"))
    named["running"] = enqueue_and_claim(broker, clock, key="ada")
    clock.advance(hours=1)
    named["cancelled"] = a_job(clock, "mail:sweep", tags={"tenant": "a", "kind": "x"})
    named["ready"] = a_job(clock, "media:resize", queue="media", body=b'{"args":{"user":62}}')
    named["scheduled"] = a_job(
        clock,
        "media:resize",
        run_at=clock.now() + 60,
        body=b'{"args":{"user":63,"order":{"id":"x7"},"ok":true}}',
        search={"user": "63"},
        tags={"tenant": "a"},
    )
    broker.enqueue([named["cancelled"], named["ready"], named["scheduled"]])
    broker.act("cancel", [named["cancelled"].id])
    return {name: job.id for name, job in named.items()}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state:failed", "failed"),
        ("state:failed state:cancelled", "failed cancelled"),
        ("state:ready", "ready scheduled"),
        ("state:running", "running"),
        ("state:succeeded", "succeeded"),
        ("state:waiting", ""),
        ("due:later", "scheduled"),
        ("due:now", "ready"),
        ("due:now due:later", "ready scheduled"),
        ("due:later state:running", ""),
        ("due:later queue:media", ""),
        ("due:later task:media:resize", "scheduled"),
        ("due:later tag.tenant:a", "scheduled"),
        ("due:now tag.tenant:a", ""),
        ("due:later arg.user:63", "scheduled"),
        ("-due:later", "failed succeeded running cancelled ready"),
        ("-due:later task:media:resize", "ready"),
        ("-due:now state:ready", "scheduled"),
        ("task:media:resize", "ready scheduled"),
        ("task:media:resize task:mail:sweep", "ready scheduled cancelled"),
        ("task:nothing", ""),
        ("queue:mail", "failed succeeded"),
        ("queue:mail state:failed", "failed"),
        ("key:ada", "running"),
        ("reason:error", "failed"),
        ("reason:cancelled", "cancelled"),
        ("tag.tenant:a", "cancelled scheduled"),
        ("tag.tenant:a tag.kind:x", "cancelled"),
        ("tag.tenant:a tag.tenant:b", "cancelled scheduled succeeded"),
        ("tag.tenant:a state:ready", "scheduled"),
        ("tag.tenant:z", ""),
        ("arg.user:62", "ready"),
        ("arg.user:63", "scheduled"),
        ("arg.user:62 arg.user:63", "ready scheduled"),
        ("arg.order.id:x7", "scheduled"),
        ("arg.ok:true", "scheduled"),
        ("arg.user:63 queue:media", ""),
        ("since:30m", "cancelled ready scheduled"),
        ("until:30m", "failed succeeded running"),
        ("-task:media:resize", "failed succeeded running cancelled"),
        ("-state:failed -queue:default", "succeeded ready"),
        ("state:ready -tag.tenant:a", "ready"),
        ("-arg.user:62 -arg.user:63 state:ready", ""),
        ("", "failed succeeded running cancelled ready scheduled"),
    ],
)
def test_a_filter_finds_what_it_says(broker, clock, many, query, names):
    """D62: by task, queue, state, tag, time, argument fields, exclusions."""
    meant = words(clock, *query.split())

    expected = sorted((many[name] for name in names.split()), reverse=True)
    assert ids_of(all_pages(broker, meant)) == expected
    assert ids_of(all_pages(broker, meant, limit=1)) == expected


def test_what_is_due_later_is_what_is_counted_as_scheduled(broker, clock):
    again = enqueue_and_claim(broker, clock)
    settle(broker, again, try_again("busy", clock.now() + 30))
    plain, tagged = a_job(clock), a_job(clock, tags={"tenant": "a"})
    tomorrow = a_job(clock, run_at=clock.now() + 86400)
    fired = a_job(clock, id=derived_id("a fire"), run_at=clock.now() + 30)
    broker.enqueue([plain, tagged, tomorrow, fired])
    broker.put(Rule(RuleKind.PAUSE, "default"))

    later = ids_of(all_pages(broker, words(clock, "due:later")))
    now = ids_of(all_pages(broker, words(clock, "due:now")))

    [count] = broker.count()
    assert set(later) == {again.id, tomorrow.id, fired.id}
    assert set(now) == {plain.id, tagged.id}
    assert (count.scheduled, count.paused) == (len(later), len(now))

    clock.advance(seconds=30)

    assert ids_of(all_pages(broker, words(clock, "due:later"))) == [tomorrow.id]
    assert set(ids_of(all_pages(broker, words(clock, "due:now")))) == {*now, again.id, fired.id}


def test_a_filter_goes_by_the_time_at_which_it_was_read(broker, clock):
    soon, claimed = a_job(clock, run_at=clock.now() + 30), a_job(clock, run_at=clock.now() + 20)
    broker.enqueue([soon, claimed])
    later = words(clock, "due:later")

    clock.advance(seconds=25)
    assert ids_of(claim(broker)) == [claimed.id]
    clock.advance(seconds=10)

    assert ids_of(all_pages(broker, later)) == [soon.id]
    assert ids_of(all_pages(broker, words(clock, "due:later"))) == []


def test_the_jobs_found_are_whole(broker, clock, many):
    [job] = broker.find(words(clock, "arg.user:63")).jobs

    assert job == broker.get(many["scheduled"])


def test_deleted_jobs_are_not_found(broker, clock, many):
    broker.act("delete", [many["failed"], many["succeeded"], many["ready"]])

    assert ids_of(broker.find(words(clock, "queue:mail")).jobs) == []
    assert ids_of(broker.find(words(clock, "arg.user:62")).jobs) == []


def test_a_rare_job_is_found_among_many(broker, clock):
    broker.enqueue(some_jobs(clock, 300))
    rare = a_job(clock, "mail:sweep", body=b'{"args":{"user":62}}')
    broker.enqueue([rare])
    clock.advance(seconds=1)
    broker.enqueue(some_jobs(clock, 300))

    assert ids_of(all_pages(broker, words(clock, "task:mail:sweep"))) == [rare.id]
    assert ids_of(all_pages(broker, words(clock, "arg.user:62"))) == [rare.id]


@pytest.mark.parametrize("value", ["a\x00b", "\u4e00\u4e01\u4e02" * 1000, "x" * 600 + "y"])
def test_a_searched_value_may_be_long_or_odd(broker, clock, value):
    job = a_job(clock, search={"text": value}, body=msgspec.json.encode({"args": {"text": value}}))
    other = a_job(clock, search={"text": "other"}, body=b'{"args":{"text":"other"}}')
    broker.enqueue([job, other])

    assert ids_of(broker.find(Filter(args={"text": (value,)})).jobs) == [job.id]


def test_nobody_finds_a_secret_by_guessing_it(broker, clock):
    body = msgspec.json.encode({"args": {"card": {"n": "4111"}, "to": "ada"}, "secret": ["card"]})
    jobs = [a_job(clock, body=body) for _ in range(3)]
    broker.enqueue(jobs)

    right = broker.find(words(clock, "arg.card.n:4111"), limit=1)
    wrong = broker.find(words(clock, "arg.card.n:4112"), limit=1)

    assert right == wrong
    assert right.jobs == []
    assert len(broker.find(words(clock, "-arg.card.n:4111")).jobs) == 3
    assert len(broker.find(words(clock, "arg.to:ada")).jobs) == 3


def test_a_tag_named_as_an_argument_tells_nothing_about_the_argument(broker, clock):
    """Arguments that are searched for are indexed as tags: they may be hidden, tags are not."""
    body = msgspec.json.encode({"args": {"user": "ada"}})
    broker.enqueue([a_job(clock, body=body, search={"user": "ada"}) for _ in range(3)])

    right = broker.find(words(clock, "tag.arg.user:ada"))
    wrong = broker.find(words(clock, "tag.arg.user:eve"))

    assert (right.jobs, right.examined, right.after) == ([], wrong.examined, None)
    assert len(broker.find(words(clock, "arg.user:ada")).jobs) == 3


def test_a_tag_may_be_named_as_an_argument(broker, clock):
    job = a_job(clock, tags={"arg.user": "ada"})
    broker.enqueue([job, a_job(clock, tags={"arg.user": "eve"})])

    assert ids_of(broker.find(words(clock, "tag.arg.user:ada")).jobs) == [job.id]
    assert ids_of(broker.find(words(clock, "tag.arg.user:ada", "-tag.x:y")).jobs) == [job.id]


def test_a_secret_is_not_stored_in_the_index(broker, clock):
    body = msgspec.json.encode({"args": {"card": {"n": "4111"}}, "secret": ["card"]})
    job = a_job(clock, body=body, search={"card.n": "4111"})

    with pytest.raises(Refused, match=r"search 'card\.n' is of a secret argument"):
        broker.enqueue([a_job(clock), job])

    assert broker.find(words(clock)).jobs == []
