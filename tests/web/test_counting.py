"""Counts are shared for a second where there are very many queues, and nowhere else."""

from __future__ import annotations

from penstock.broker.views import Count
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, some_jobs
from penstock.web.access import Person, Role
from penstock.web.checked_store import CheckedStore
from penstock.web.count_cache import KEPT_SECONDS, MANY, CountCache


def looks(number: int) -> tuple[list[int], list[Count]]:
    return [], [Count(f"queue-{each}", "mail:send", 1) for each in range(number)]


def test_with_few_queues_every_look_is_at_the_store():
    calls, found = looks(MANY - 1)
    counting = CountCache()

    for _ in range(3):
        assert counting.get(lambda: (calls.append(1), found)[1]) == found

    assert len(calls) == 3


def test_with_many_a_look_is_shared_for_a_second():
    calls, found = looks(MANY)
    now = [0.0]
    counting = CountCache(lambda: now[0])

    def look() -> list[Count]:
        calls.append(1)
        return found

    for _ in range(3):
        assert counting.get(look) == found
    assert len(calls) == 1
    now[0] += KEPT_SECONDS
    counting.get(look)
    assert len(calls) == 2


def test_whoever_changes_something_sees_it_at_once(memory_broker, clock):
    memory_broker.enqueue([a_job(clock, queue=f"queue-{number}") for number in range(MANY)])
    ada = Person("ada", Role.ADMIN)
    checked = CheckedStore(memory_broker, ada, may_change=True, count_cache=CountCache(lambda: 0.0))
    before = sum(count.ready for count in checked.count())
    memory_broker.enqueue(some_jobs(clock, 5))
    assert sum(count.ready for count in checked.count()) == before

    checked.set_rule(Rule(RuleKind.PAUSE, "queue-7"))

    counts = checked.count()
    assert sum(count.ready for count in counts) == before + 4
    assert [count.paused for count in counts if count.queue == "queue-7"] == [1]
