"""Limits over shards: dealt out in parts, never above the limit, whoever dies, whatever moves."""

from __future__ import annotations

import contextlib
import json
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.queue_options import Options, QueueOptions
from penstock.broker.quota import Quota
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded import open_sharded
from penstock.brokers.sharded.quota_parts import ShardStanding, fair_parts, grants
from penstock.brokers.sharded.resharding import Resharding
from penstock.errors import Refused, StoreUnreachable
from penstock.job import Outcome, State
from penstock.rules.rule import Rule, RuleKind, rule_id
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import a_worker, claim, ids_of
from tests.brokers.sharded.unplugged import IN_A, IN_B, Killed, Unplugged, job_in, sharded

LIMIT = RuleKind.LIMIT
TEN = Rule(LIMIT, queue="default", running=10)
ID = rule_id(LIMIT, queue="default")
SUCCEEDED = Outcome(State.SUCCEEDED, started_at=1.0)
VICTIMS = [(store, calls) for store in (0, 1) for calls in range(16)]


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


@pytest.fixture
def other(clock, stores, broker):
    return sharded(clock, *stores)


def jobs_in(clock, bucket: int, number: int) -> list:
    return [job_in(clock, bucket) for _ in range(number)]


def send(broker, clock, bucket: int, number: int) -> None:
    for job in jobs_in(clock, bucket, number):
        broker.enqueue([job])


def parts(stores) -> list[int | None]:
    return [quota.part.running for store in stores for quota in store.records(Quota)]


def end(broker, jobs) -> None:
    assert broker.settle([(job, SUCCEEDED) for job in jobs]) == [True] * len(jobs)


def places(broker, jobs) -> str:
    return "".join(sorted(broker.shards.of(job.id).name for job in jobs))


@pytest.mark.parametrize("bucket", [IN_A, IN_B])
def test_all_of_a_limit_serves_the_one_shard_that_has_jobs(broker, clock, stores, bucket):
    broker.put(TEN)
    assert parts(stores) == [5, 5]
    send(broker, clock, bucket, 30)

    first = claim(broker, limit=50)

    assert len(first) == 10
    assert claim(broker, limit=50) == []
    end(broker, first[:4])
    assert len(claim(broker, limit=50)) == 4
    assert sum(parts(stores)) == 10


def test_a_part_goes_to_and_fro_as_the_jobs_do(broker, clock, stores):
    broker.put(TEN)
    for bucket, where in ((IN_A, "a"), (IN_B, "b"), (IN_A, "a")):
        send(broker, clock, bucket, 12)
        ran = claim(broker, limit=50)
        assert places(broker, ran) == where * 10
        end(broker, ran)
        end(broker, claim(broker, limit=50))


def test_shards_that_both_have_jobs_have_the_same_part(broker, clock, stores):
    send(broker, clock, IN_A, 20)
    send(broker, clock, IN_B, 20)
    broker.put(TEN)

    assert places(broker, claim(broker, limit=50)) == "aaaaabbbbb"


def test_with_fewer_to_deal_than_shards_all_have_a_turn(broker, clock):
    broker.put(Rule(LIMIT, queue="default", running=1))
    send(broker, clock, IN_A, 20)
    send(broker, clock, IN_B, 20)

    ran = ""
    for _ in range(12):
        [job] = claim(broker, limit=9)
        ran += places(broker, [job])
        clock.advance(seconds=3)
        broker.renew([], holding=())
        end(broker, [job])
        broker.recover()

    assert ran.count("a") >= 4
    assert ran.count("b") >= 4


def test_a_rate_is_one_over_all_shards(broker, clock, stores):
    broker.put(Rule(LIMIT, queue="default", rate=(6, 60.0)))
    send(broker, clock, IN_A, 4)
    end(broker, claim(broker, limit=50))
    send(broker, clock, IN_B, 9)

    assert len(claim(broker, limit=50)) == 2
    clock.advance(seconds=61.1)
    assert len(claim(broker, limit=50)) == 6


def test_a_shard_that_is_away_keeps_its_part(broker, clock, stores):
    send(broker, clock, IN_B, 20)
    send(broker, clock, IN_A, 20)
    broker.put(TEN)
    stores[1].away = True

    ran = claim(broker, limit=50)

    assert places(broker, ran) == "aaaaa"
    with pytest.raises(StoreUnreachable, match="shard b"):
        broker.put(Rule(LIMIT, queue="default", running=20))
    assert [rule.running for rule in broker.records(Rule)] == [10]
    stores[1].away = False
    clock.advance(seconds=6)
    assert len(claim(broker, limit=50)) == 5


def test_why_says_where_the_rest_of_a_limit_is(broker, clock, stores):
    jobs = jobs_in(clock, IN_A, 8)
    for job in jobs:
        broker.enqueue([job])
    send(broker, clock, IN_B, 8)
    broker.put(TEN)
    stores[1].away = True
    taken = ids_of(claim(broker, limit=50))
    waits = next(job.id for job in jobs if job.id not in taken)

    assert broker.why(waits).sentence == (
        "Of the limit of queue default (10 running) shard a has 5 running: the rest stays with "
        "shard b, which is away, until it is back."
    )


def test_a_limit_counts_what_ran_before_on_any_shard(broker, clock):
    send(broker, clock, IN_A, 8)
    before = claim(broker, limit=50)
    send(broker, clock, IN_B, 8)

    broker.put(Rule(LIMIT, queue="default", running=6))

    assert claim(broker, limit=50) == []
    end(broker, before[:2])
    assert claim(broker, limit=50) == []
    end(broker, before[2:3])
    assert places(broker, claim(broker, limit=50)) == "b"


def test_a_limit_that_was_set_shows_as_one_and_is_told_once(broker, other, clock, stores):
    kept = broker.put(Rule(LIMIT, queue="default", running=10, author="ada"))
    send(broker, clock, IN_B, 20)
    claim(broker, limit=50)

    assert other.records(Rule) == [kept]
    assert other.clear(Rule, ID, author="bob") is True
    assert other.clear(Rule, ID) is False

    assert broker.records(Rule) == []
    assert [store.records(Rule) for store in stores] == [[], []]
    told = [json.loads(row.data) for row in broker.history() if row.kind == "rule"]
    assert [(row["author"], row["set"], row.get("running")) for row in told] == [
        ("ada", True, 10),
        ("bob", False, 10),
    ]


def test_a_limit_that_was_cleared_may_be_set_again(broker, clock, stores):
    broker.put(TEN)
    broker.clear(Rule, ID)
    send(broker, clock, IN_A, 9)

    broker.put(Rule(LIMIT, queue="default", running=3))

    assert len(claim(broker, limit=50)) == 3


def test_the_options_of_a_queue_limit_it_over_all_shards(broker, clock, stores):
    options = QueueOptions(queue="default", declared=Options(running=4), code="one")
    broker.put(options)
    send(broker, clock, IN_A, 9)
    send(broker, clock, IN_B, 9)

    assert len(claim(broker, limit=50)) == 4
    broker.put(QueueOptions(queue="default", declared=Options(), code="two"))

    assert broker.records(Rule) == []
    assert len(claim(broker, limit=50)) == 14


@pytest.mark.parametrize("killed", VICTIMS, ids=str)
def test_a_dealer_killed_anywhere_leaves_no_more_and_no_less(clock, stores, other, killed):
    victim, steps = killed
    other.put(TEN)
    send(other, clock, IN_B, 30)
    dealer = sharded(clock, *stores)
    stores[victim].kill_at = steps
    taken = []
    with contextlib.suppress(Killed):
        taken = claim(dealer, limit=50)
    stores[victim].kill_at = None
    assert sum(parts(stores)) <= 10

    other.recover()
    taken += claim(other, limit=50)

    [count] = other.count()
    assert count.running == 10
    assert sum(parts(stores)) == 10


@pytest.mark.parametrize("verb", ["put", "clear"])
@pytest.mark.parametrize("killed", VICTIMS, ids=str)
def test_whoever_sets_or_clears_is_killed_and_it_is_done_or_not(clock, stores, other, verb, killed):
    victim, steps = killed
    if verb == "clear":
        other.put(TEN)
    person = sharded(clock, *stores)
    stores[victim].kill_at = steps
    with contextlib.suppress(Killed):
        if verb == "put":
            person.put(TEN)
        else:
            person.clear(Rule, ID)
    stores[victim].kill_at = None
    send(other, clock, IN_A, 20)
    send(other, clock, IN_B, 20)

    other.recover()
    other.recover()

    stands = len(other.records(Rule))
    assert [len(store.records(Rule)) for store in stores] == [stands, stands]
    assert len(claim(other, limit=50)) == (10 if stands else 40)


@pytest.mark.parametrize("what", ["deal", "set", "clear", "move"])
@pytest.mark.parametrize("between", VICTIMS, ids=str)
def test_of_two_that_deal_at_once_nothing_is_dealt_twice(clock, stores, other, what, between):
    """Between any two calls of one the other does all of its own."""
    victim, steps = between
    other.put(TEN)
    send(other, clock, IN_A, 7)
    assert len(claim(other, limit=7)) == 7
    send(other, clock, IN_B, 30)
    one = sharded(clock, *stores)
    others = {
        "deal": lambda: claim(other, limit=50),
        "set": lambda: other.put(Rule(LIMIT, queue="default", running=8)),
        "clear": lambda: other.clear(Rule, ID),
        "move": lambda: other.moves.move([IN_A], "b"),
    }[what]
    _after(stores[victim], steps, others)

    claim(one, limit=50)
    if stores[victim].meanwhile is not None:  # there were not so many calls
        stores[victim].meanwhile = None
        others()

    [count] = other.count()
    most = {"clear": 37}.get(what, 10)
    assert count.running <= most
    other.recover()
    if what == "clear":
        assert other.records(Rule) == []
    else:
        claim(other, limit=50)
        [count] = other.count()
        assert count.running >= (8 if what == "set" else 10)
        assert count.running <= 10


def _after(store, steps: int, others) -> None:
    """Have others do this before the call of this number."""
    store.meanwhile = others if not steps else partial(_after, store, steps - 1, others)


def test_running_jobs_that_move_count_where_they_come_to(broker, other, clock, stores):
    send(broker, clock, IN_A, 30)
    send(broker, clock, IN_B, 30)
    broker.put(TEN)
    held = claim(broker, limit=50)
    assert len(held) == 10

    broker.moves.move([IN_A], "b")

    assert claim(broker, limit=50) == []
    assert claim(other, limit=50) == []
    end(other, held[:3])
    assert len(claim(other, limit=50)) == 3


@pytest.mark.parametrize("between", VICTIMS, ids=str)
def test_running_jobs_on_their_way_are_counted(clock, stores, broker, other, between):
    """They leave between any two calls of a deal, and their mover is killed."""
    victim, steps = between
    broker.put(TEN)
    send(broker, clock, IN_A, 7)
    held = claim(broker, limit=50)
    assert len(held) == 7
    send(broker, clock, IN_A + 1, 30)
    send(broker, clock, IN_B, 30)
    leave = partial(stores[0].take_out, [IN_A], "b")
    _after(stores[victim], steps, leave)

    other.quotas.deal_all()
    if stores[victim].meanwhile is not None:
        stores[victim].meanwhile = None
        leave()
    claim(other, limit=50)
    claim(broker, limit=50)
    broker.recover()
    claim(broker, limit=50)

    [count] = broker.count()
    assert count.running == 10


def test_a_limit_of_a_store_that_becomes_a_shard_is_dealt_out(clock):
    alone, empty = Unplugged(clock), Unplugged(clock)
    alone.put(TEN)
    send(alone, clock, IN_A, 20)
    send(alone, clock, IN_B, 20)
    broker = sharded(clock, alone, empty)

    broker.moves.move(range(512), "b")

    assert len(claim(broker, limit=50)) == 10
    assert broker.records(Rule)[0].running == 10


def test_a_shard_that_comes_later_starts_nothing_above_the_limit(clock, stores, broker):
    broker.put(TEN)
    send(broker, clock, IN_A, 30)
    held = claim(broker, limit=6)
    third = Unplugged(clock)
    wider = sharded(clock, *stores, third)

    wider.moves.move([IN_A], "c")

    assert len(claim(wider, limit=50)) == 4
    end(wider, held)
    assert len(claim(wider, limit=50)) == 6


def test_a_shard_with_starts_that_count_is_not_taken_off(broker, clock):
    broker.put(Rule(LIMIT, queue="default", rate=(5, 60.0)))
    send(broker, clock, IN_B, 9)
    end(broker, claim(broker, limit=2))
    broker.moves.move(range(1024), "a")
    people = Resharding(broker, dict)

    with pytest.raises(Refused, match="shard 'b' counts 2 starts under the rate of queue default"):
        people.rest("b")

    clock.advance(seconds=62)
    assert people.rest("b") == 1


def test_a_store_that_cannot_hold_a_part_is_refused(clock, stores):
    class Whole(MemoryBroker):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.traits.capabilities -= {"quotas"}

    broker = open_sharded({"a": lambda _: stores[0], "b": lambda _: Whole(clock)}, clock)

    with pytest.raises(Refused, match="the store of shard b cannot hold a part of one"):
        broker.put(TEN)
    assert not broker.traits.can("limits across buckets")
    broker.put(Rule(LIMIT, queue="default", running=5, per_key=True))


NUMBERS = st.integers(0, 12)
STANDINGS = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(ShardStanding, NUMBERS, NUMBERS, NUMBERS), min_size=1
)


@given(total=st.integers(1, 20), standings=STANDINGS, turn=st.integers(0, 9))
def test_what_is_dealt_adds_up(total, standings, turn):
    fair = fair_parts(total, standings, turn)
    assert sum(fair.values()) == total
    wants = {name: each.wants for name, each in standings.items()}
    if sum(wants.values()) <= total:
        assert all(fair[name] >= wants[name] for name in fair)
    else:
        assert all(fair[name] <= wants[name] for name in fair)

    raised = grants(total, standings, fair)

    before = sum(each.charge for each in standings.values())
    after = sum(max(raised.get(name, 0), each.charge) for name, each in standings.items())
    assert after <= max(total, before)


class Fleet:
    """Two clients of three shards under one limit, and all that happens to them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.stores = [Unplugged(self.clock) for _ in range(3)]
        self.clients = [sharded(self.clock, *self.stores) for _ in range(2)]
        self.held: list = []
        self.set_limit(0, 4)

    def enqueue(self, client: int, place: int) -> None:
        self.clients[client].enqueue([job_in(self.clock, BUCKETS[place])])

    def claim(self, client: int, most: int) -> None:
        before = len(self.held)
        self.held += claim(self.clients[client], limit=most)
        assert len(self.held) <= max(self.limit, before)

    def settle(self, client: int, most: int) -> None:
        ended, self.held[:most] = self.held[:most], []
        end(self.clients[client], ended)

    def set_limit(self, client: int, limit: int) -> None:
        self.limit = limit
        self.clients[client].put(Rule(LIMIT, queue="default", running=limit))

    def move(self, place: int, to: int) -> None:
        self.clients[0].moves.move([BUCKETS[place]], "abc"[to % 3])

    def kill_a_mover(self, place: int, calls: int) -> None:
        mover = sharded(self.clock, *self.stores)
        self._kill(calls % 3, calls, lambda: mover.moves.move([BUCKETS[place]], "abc"[calls // 4]))

    def kill_a_dealer(self, store: int, calls: int) -> None:
        self._kill(store % 3, calls, sharded(self.clock, *self.stores).quotas.deal_all)

    def _kill(self, store: int, calls: int, act) -> None:
        self.stores[store].kill_at = calls
        with contextlib.suppress(Killed):
            act()
        self.stores[store].kill_at = None

    def claim_at_once(self, store: int, calls: int) -> None:
        victim = self.stores[store % 3]
        _after(victim, calls, partial(self.claim, 1, 6))
        self.claim(0, 6)
        victim.meanwhile = None

    def recover(self, client: int, number: int) -> None:
        self.clients[client].recover()


BUCKETS = (0, 1, 500, 600, 900, 1023)
ACTS = {
    "enqueue": (1, 5),
    "claim": (1, 6),
    "settle": (1, 3),
    "set_limit": (1, 6),
    "move": (5, 2),
    "kill_a_mover": (5, 11),
    "kill_a_dealer": (2, 11),
    "claim_at_once": (2, 11),
    "recover": (1, 0),
}
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(act), st.integers(0, one), st.integers(min(1, two), two))
        for act, (one, two) in ACTS.items()
    ),
    max_size=40,
)


@given(steps=STEPS)
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_happens_no_more_run_than_the_limit_says(steps):
    fleet = Fleet()
    for act, one, two in steps:
        fleet.clock.advance(seconds=0.5)
        getattr(fleet, act)(one, two)

    client = fleet.clients[0]
    client.recover()
    while client.count():
        fleet.clock.advance(seconds=6)
        client.renew([a_worker()], holding=ids_of(fleet.held))
        client.recover()
        fleet.claim(0, 9)
        assert fleet.held
        fleet.settle(0, 99)
