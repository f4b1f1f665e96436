"""What a client does not know of a shard: its copy of the map, its name, or what it lacks yet."""

from __future__ import annotations

import pytest

from penstock.broker.filter import Filter
from penstock.broker.quota import Quota
from penstock.brokers.sharded import open_sharded
from penstock.enqueue.subscription import Subscription
from penstock.errors import Refused
from penstock.job import State
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.conformance.factories import a_job, claim
from tests.brokers.sharded.unplugged import IN_A, IN_B, Killed, Unplugged, ids_in, job_in, sharded

TEN = Rule(RuleKind.LIMIT, queue="default", running=10)
PAUSE = Rule(RuleKind.PAUSE, queue="mail")


@pytest.fixture
def stores(clock):
    return [Unplugged(clock) for _ in range(3)]


def test_what_moved_while_two_shards_were_away_is_written_where_it_is(clock, stores):
    new = sharded(clock, *stores)
    middle = new.shards.map.buckets()["b"][0][0]
    new.moves.move([middle], "c")
    stores[1].away = stores[2].away = True
    old = sharded(clock, *stores)
    stores[1].away = stores[2].away = False

    old.enqueue([job := job_in(clock, middle)])

    assert ids_in(stores[2], [job]) == [job.id]
    assert ids_in(stores[1], [job]) == []


@pytest.mark.parametrize("rule", [TEN, PAUSE])
def test_a_rule_is_refused_where_the_file_lacks_a_shard_with_buckets(clock, stores, rule):
    named = {"a": lambda _: stores[0], "b": lambda _: stores[1]}
    old = open_sharded(dict(named), clock, more=lambda: named)
    new = sharded(clock, *stores)
    new.moves.move([IN_A], "c")

    with pytest.raises(Refused, match="shard 'c' by now, which the file"):
        old.put(rule)

    assert new.records(Rule) == []
    assert not any(quota.part.running for store in stores for quota in store.records(Quota))
    named["c"] = lambda _: stores[2]
    old.put(rule)
    assert [kept.id for kept in stores[2].records(Rule)] == [rule.id]


def test_a_worker_whose_file_lacks_a_shard_takes_jobs_under_a_limit_all_the_same(clock, stores):
    named = {"a": lambda _: stores[0], "b": lambda _: stores[1]}
    old = open_sharded(named, clock)
    new = sharded(clock, *stores)
    new.put(TEN)
    new.moves.move([IN_A], "c")
    old.shards.look_again()
    for _ in range(12):
        new.enqueue([job_in(clock, IN_B)])

    taken = claim(old, limit=50)
    old.recover()

    assert 0 < len(taken) <= 10


def test_a_new_shard_hides_nothing_that_the_others_have(clock, stores):
    open_sharded({name: lambda _, at=at: stores[at] for at, name in ((1, "b"), (2, "c"))}, clock)
    old = open_sharded({"b": lambda _: stores[1], "c": lambda _: stores[2]}, clock)
    subscription = Subscription(name="mail", pattern="order.*", job=a_job(clock), parameter="order")
    for record in (PAUSE, TEN, subscription):
        old.put(record)

    with_a = sharded(clock, *stores)  # a has no buckets yet, and sorts first

    assert {rule.id for rule in with_a.records(Rule)} == {PAUSE.id, TEN.id}
    assert [each.name for each in with_a.records(Subscription)] == ["mail"]
    assert with_a.quotas.limits()
    for store in stores[1:]:
        store.away = True
    with pytest.raises(Exception, match="nobody answers"):
        with_a.records(Subscription)


@pytest.mark.parametrize(
    "look",
    [
        lambda broker: len(broker.find(Filter(state=(State.READY,))).jobs),
        lambda broker: sum(count.total for count in broker.count()),
        lambda broker: len([row for row in broker.history() if row.kind == "cancel"]),
    ],
)
def test_who_only_looks_finds_a_shard_that_the_file_names_later(clock, stores, look):
    named = {"a": lambda _: stores[0], "b": lambda _: stores[1]}
    old = open_sharded(dict(named), clock, more=lambda: named)
    new = sharded(clock, *stores)
    new.moves.move([IN_A], "c")
    named["c"] = lambda _: stores[2]
    new.enqueue([job := job_in(clock, IN_A), job_in(clock, IN_A)])
    new.act("cancel", [job.id])

    assert look(old) == 1


@pytest.mark.parametrize("call", range(1, 5))
def test_a_dealer_that_does_not_see_a_move_gives_nothing_away(clock, stores, call):
    stores = stores[:2]
    broker = sharded(clock, *stores)
    broker.put(TEN)
    for bucket in (IN_A, IN_B):
        for _ in range(20):
            broker.enqueue([job_in(clock, bucket)])
        if bucket == IN_A:
            assert len(claim(broker, limit=50)) == 10
    uses, seen = stores[0].limit_uses, []

    def limit_uses():
        seen.append(len(seen))
        if len(seen) == call:
            stores[0].take_out([IN_A], "b")
        answer = uses()
        stores[0].away = len(seen) == call
        return answer

    stores[0].limit_uses = limit_uses
    broker.quotas.deal_fairly()
    stores[0].away, stores[0].limit_uses = False, uses
    clock.advance(seconds=6)
    later = claim(broker, limit=50)

    assert later == []
    broker.moves.finish()
    running = sum(sum(use.running.values()) for store in stores for use in store.limit_uses())
    assert running == 10


def test_a_limit_that_a_shard_without_buckets_missed_holds_from_its_first_job_on(clock, stores):
    new = sharded(clock, *stores)
    new.put(TEN)
    new.clear(Rule, TEN.id)
    of_c = [bucket for bucket in range(1024) if new.shards.map.owner(bucket) == "c"]
    new.moves.move(of_c, "b")
    named = {"a": lambda _: stores[0], "b": lambda _: stores[1]}
    open_sharded(named, clock).put(TEN)
    assert stores[2].records(Rule) == []

    def killed(*_):
        raise Killed

    stores[1].clear = killed  # which the mover calls once the bucket has come
    with pytest.raises(Killed):
        new.moves.move(of_c[:1], "c")

    assert [rule.running for rule in stores[2].records(Rule)] == [0]
