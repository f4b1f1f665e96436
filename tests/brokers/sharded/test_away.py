"""A shard that is away: its buckets wait, the others go on, and what is missing is said."""

from __future__ import annotations

import pytest

from penstock import App
from penstock.app.clock import SYSTEM_CLOCK
from penstock.broker.filter import Filter
from penstock.broker.values import Wanted
from penstock.enqueue.ids import bucket_for
from penstock.errors import StoreUnreachable
from penstock.job import State, succeeded
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.conformance.factories import a_worker, claim, ids_of
from tests.brokers.sharded.unplugged import IN_A, IN_B, Unplugged, job_in, sharded
from tests.workers import until, working

PAUSE = Rule(RuleKind.PAUSE, queue="mail")


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


def test_the_others_are_handed_out(broker, clock, stores):
    here, there = job_in(clock, IN_A), job_in(clock, IN_B)
    broker.enqueue([here, there])
    stores[1].away = True

    assert ids_of(claim(broker, limit=9)) == [here.id]
    assert broker.traits.missing() == ("shard b is away: nobody answers",)
    stores[1].away = False
    clock.advance(seconds=5)
    assert ids_of(claim(broker, limit=9)) == [there.id]
    assert broker.traits.missing() == ()


def test_an_outcome_for_it_is_to_be_sent_again(broker, clock, stores):
    broker.enqueue([job_in(clock, IN_A), job_in(clock, IN_B)])
    pairs = [(job, succeeded()) for job in sorted(claim(broker, limit=9), key=lambda j: j.id[19:])]
    stores[1].away = True

    assert broker.claim([Wanted(a_worker())], pairs).accepted == [True, None]
    assert broker.settle(pairs) == [False, None]
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.settle(pairs[1:])
    stores[1].away = False
    assert broker.settle(pairs[1:]) == [True]


def test_when_all_are_away_nothing_is_said_to_be_empty(broker, stores):
    for store in stores:
        store.away = True

    for verb in (
        lambda: claim(broker),
        broker.count,
        broker.workers,
        broker.history,
        lambda: broker.find(Filter()),
        lambda: broker.records(Rule),
        lambda: broker.renew([a_worker()]),
    ):
        with pytest.raises(StoreUnreachable):
            verb()


def test_looks_leave_it_out(broker, clock, stores):
    here, there = job_in(clock, IN_A), job_in(clock, IN_B)
    broker.enqueue([here, there])
    stores[1].away = True

    assert [count.ready for count in broker.count()] == [1]
    assert ids_of(broker.find(Filter()).jobs) == [here.id]
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.get(there.id)


def test_a_history_goes_on_behind_what_was_missing(broker, clock, stores):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B)]
    broker.enqueue(jobs)
    broker.act("cancel", ids_of(jobs))
    stores[1].away = True
    first = broker.history()
    stores[1].away = False
    clock.advance(seconds=5)

    rest = broker.history(first[-1].position)

    assert [row.job for row in first + rest] == ids_of(jobs)


def test_a_rule_is_refused_whole(broker, stores):
    stores[1].away = True

    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.put(PAUSE)

    assert stores[0].records(Rule) == []


def test_a_rule_is_given_back_where_a_shard_goes_away_half_way(broker, stores):
    before = broker.put(Rule(RuleKind.PAUSE, queue="mail", author="ada"))
    stores[1].lose = "put"
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.put(Rule(RuleKind.PAUSE, queue="mail", author="bob"))
    stores[1].lose = "put"
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.put(Rule(RuleKind.PAUSE, queue="media"))

    assert [rule.author for rule in stores[0].records(Rule)] == [before.author]


def test_a_rule_is_not_taken_back_without_it(broker, stores):
    broker.put(PAUSE)
    stores[1].away = True

    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.clear(Rule, rule_id(RuleKind.PAUSE, queue="mail"))

    assert len(stores[0].records(Rule)) == 1


def test_a_signal_waits_for_it(broker, stores):
    stores[1].away = True

    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.signal("paid", b"1")

    assert "signal" not in stores[0].calls


def test_an_action_names_it_and_does_the_rest(broker, clock, stores):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B)]
    broker.enqueue(jobs)
    stores[1].away = True
    with pytest.raises(StoreUnreachable, match=r"shard b.* Of 2 jobs 1 were changed; asked again"):
        broker.act("cancel", ids_of(jobs))
    stores[1].away = False

    assert broker.act("cancel", ids_of(jobs)) == [jobs[1].id]


def test_a_dead_worker_is_told_to_all_and_to_the_one_away_later(broker, clock, stores):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B)]
    broker.enqueue(jobs)
    assert len(claim(broker, limit=9)) == 2
    stores[0].away = True
    with pytest.raises(StoreUnreachable, match="shard a"):
        broker.recover(dead="worker-1", started=())
    assert broker.get(jobs[1].id).state is State.READY
    stores[0].away = False

    assert broker.recover(dead="worker-1", started=()) == 1


def test_a_refusal_half_way_hides_no_answer(broker, clock, stores):
    """One outcome that b cannot store: what a said is said when it is sent again."""
    broker.enqueue([job_in(clock, IN_A), job_in(clock, IN_B)])
    pairs = [(job, succeeded()) for job in claim(broker, limit=9)]
    pairs.sort(key=lambda pair: broker.shards.of(pair[0].id).name)
    more = job_in(clock, IN_A)
    broker.enqueue([more])
    stores[1].cursed = True

    for _ in range(2):  # each shard is the first to be asked once
        with pytest.raises(ValueError, match="cannot be stored"):
            broker.claim([Wanted(a_worker("worker-2"), 9)], pairs)
        assert broker.get(more.id).state is State.READY
    with pytest.raises(ValueError, match="cannot be stored"):
        broker.settle(pairs)
    stores[1].cursed = False

    assert broker.settle(pairs) == [True, True]
    assert broker.settle(pairs) == [False, False]


@pytest.fixture
def real_stores():
    return Unplugged(SYSTEM_CLOCK), Unplugged(SYSTEM_CLOCK)


def test_a_worker_goes_on_with_the_others(real_stores):
    """Its outcomes for the shard that is away are kept, and no job runs twice."""
    broker = sharded(SYSTEM_CLOCK, *real_stores)
    app = App(broker=broker)
    ran: list[str] = []

    @app.task(name="shop:pay")
    def pay(order: str) -> None:
        ran.append(order)
        if order == "b":
            real_stores[1].away = True

    def key_of(shard: str) -> str:
        keys = (f"key-{number}" for number in range(100))
        return next(key for key in keys if broker.shards.map.owner(bucket_for(key)) == shard)

    with working(app, threads=2, lease=5) as worker:
        in_b = pay.options(key=key_of("b")).enqueue("b")
        until(broker, lambda: "b" in ran)
        others = [pay.options(key=key_of("a")).enqueue(f"a{n}") for n in range(20)]
        until(broker, lambda: all(each.state() is State.SUCCEEDED for each in others))
        real_stores[1].away = False
        until(broker, lambda: in_b.state() is State.SUCCEEDED)

    assert sorted(ran) == sorted(["b", *(f"a{n}" for n in range(20))])
    assert (worker.settled, worker.stale) == (21, 0)
