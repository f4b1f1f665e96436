"""Buckets that move: killed anywhere, twice at once, and clients that know nothing of it."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.broker.shard_map import Departure, ShardMap
from penstock.broker.views import Note
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded import open_sharded
from penstock.brokers.sharded.opening import map_of
from penstock.brokers.sharded.resharding import next_size
from penstock.enqueue.ids import BUCKETS
from penstock.errors import Refused, StoreUnreachable
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import Outcome, State, Unique
from penstock.rules.rule import Rule, RuleKind
from penstock.testing.clock import Clock
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_worker,
    claim,
    ids_of,
    part,
)
from tests.brokers.sharded.unplugged import (
    IN_A,
    IN_B,
    Killed,
    Unplugged,
    ids_in,
    job_in,
    sharded,
)

EVERY = range(BUCKETS)


def succeeded(result: bytes | None = None) -> Outcome:
    """An attempt that began leaves a row in the history."""
    return Outcome(State.SUCCEEDED, result=result, started_at=1.0)


@pytest.fixture
def stores(clock):
    return Unplugged(clock), Unplugged(clock)


@pytest.fixture
def broker(clock, stores):
    return sharded(clock, *stores)


@pytest.fixture
def old(clock, stores, broker):
    """A client that opened the shards before anything moved."""
    return sharded(clock, *stores)


def move_all(broker, source: str, to: str) -> None:
    own = [bucket for bucket in EVERY if broker.shards.newest.owner(bucket) == source]
    if own:
        broker.moves.move(own, to)


def ended_once(stores, jobs) -> None:
    """The history of all shards together: each job succeeded, once."""
    ends = Counter(
        event.job
        for store in stores
        for event in store.history()
        if event.kind == "attempt" and event.state is State.SUCCEEDED
    )
    assert ends == {job.id: 1 for job in jobs}


def run_all(broker, clock) -> None:
    for job in claim(broker, limit=100):
        assert broker.settle([(job, succeeded())]) == [True]


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("steps", range(9))
def test_a_mover_killed_anywhere_leaves_each_job_in_one_place(old, clock, stores, victim, steps):
    broker = sharded(clock, *stores)
    jobs = [job_in(clock, IN_A), job_in(clock, IN_A, key="ada"), job_in(clock, IN_B)]
    old.enqueue(jobs[:2])
    old.enqueue(jobs[2:])
    running = next(job for job in claim(old, limit=3) if job.id == jobs[0].id)
    stores[victim].kill_at = steps
    with contextlib.suppress(Killed):
        broker.moves.move([IN_A], "b")
    stores[victim].kill_at = None

    old.recover()

    assert all(store.records(Departure) == [] for store in stores)
    places = [ids_in(store, jobs) for store in stores]
    assert sorted(places[0] + places[1]) == sorted(ids_of(jobs))
    assert old.settle([(running, succeeded())]) == [True]
    assert old.settle([(running, succeeded())]) == [False]


@pytest.mark.parametrize("lost", ["take_out", "bring_in", "clear"])
def test_an_answer_that_was_lost_changes_nothing(broker, clock, stores, lost):
    broker.enqueue([job_in(clock, IN_A)])
    victim = stores[1] if lost == "bring_in" else stores[0]
    victim.lose = lost
    with pytest.raises(StoreUnreachable):
        broker.moves.move([IN_A], "b")

    clock.advance(seconds=10)
    broker.recover()
    broker.moves.move([IN_A], "b")

    assert [map_of(store).version(IN_A) for store in stores] == [1, 1]
    assert len(claim(broker, limit=9)) == 1


def test_of_two_movers_one_moves(broker, old, clock, stores):
    broker.enqueue([job_in(clock, IN_A)])

    assert broker.moves.move([IN_A], "b") == {IN_A}
    assert stores[0].take_out([IN_A], "b").departures == ()
    assert old.moves.move([IN_A], "b") == frozenset()
    assert old.moves.move([IN_A], "a") == {IN_A}
    assert broker.moves.move([IN_A], "a") == frozenset()

    assert len(claim(broker, limit=9)) == 1


def test_a_client_with_the_map_of_before_goes_on(broker, old, clock, stores):
    running, noted, ready = jobs = [job_in(clock, IN_A) for _ in range(3)]
    old.enqueue(jobs)
    taken = {job.id: job for job in claim(old, limit=2)}
    move_all(broker, "a", "b")

    assert old.settle([(taken[running.id], succeeded(b"1"))]) == [True]
    assert old.note(taken[noted.id], Note("progress", value=b"0.5"))
    assert old.enqueue([ready]).known == {ready.id}
    later = job_in(clock, IN_A)
    assert old.enqueue([later]).known == frozenset()
    assert old.act("cancel", [later.id]) == [later.id]
    assert old.get(later.id).state is State.CANCELLED
    assert old.claim([], [(taken[noted.id], succeeded())]).accepted == [True]
    run_all(old, clock)
    assert stores[0].count() == [] or not any(count.ready for count in stores[0].count())
    ended_once(stores, jobs)


@pytest.mark.parametrize("verb", ["get", "get_many", "why", "notes", "flow", "outputs", "history"])
def test_a_look_with_the_map_of_before_finds_it(broker, old, clock, verb):
    flow = a_flow(clock, one=part(), two=part("one"))
    flow.send(old)
    [running] = claim(old)
    old.note(running, Note("snapshot", value=b"7"))
    name, node = running.id, flow.nodes["one"]
    home = broker.shards.of(name).name
    move_all(broker, home, "b" if home == "a" else "a")

    looks = {
        "get": lambda: old.get(name).state is State.RUNNING,
        "get_many": lambda: name in old.get_many([name]),
        "why": lambda: old.why(name).cause == "running",
        "notes": lambda: [note.value for note in old.notes(name)] == [b"7"],
        "flow": lambda: old.flow(flow.flow.id) is not None,
        "outputs": lambda: [output.job for output in old.outputs(node)] == [name],
        "history": lambda: old.history(job=name) == [],
    }
    assert looks[verb]()


def taken_out(stores, buckets=(IN_A,)) -> None:
    """A move that got no further than its first step."""
    assert stores[0].take_out(buckets, "b").departures


def test_a_call_about_a_bucket_on_its_way_brings_it_in(broker, clock, stores):
    job = job_in(clock, IN_A)
    broker.enqueue([job])
    taken_out(stores)

    assert broker.enqueue([job]).known == {job.id}
    assert ids_in(stores[1], [job]) == [job.id]


def test_it_waits_no_longer_than_it_should_and_names_the_bucket(broker, clock, stores):
    other = job_in(clock, IN_A + 1)
    taken_out(stores)
    stores[1].away = True
    broker.shards.moving_seconds = 0.0

    with pytest.raises(StoreUnreachable, match="bucket 0 is on its way to shard b"):
        broker.enqueue([job_in(clock, IN_A)])

    assert broker.enqueue([other]).known == frozenset()


def test_an_outcome_of_a_bucket_on_its_way_is_kept_by_its_worker(broker, clock, stores):
    broker.enqueue([job_in(clock, IN_A), job_in(clock, IN_A + 1)])
    jobs = sorted(claim(broker, limit=2), key=lambda job: job.id)
    here = [job for job in jobs if ids_in(stores[0], [job])]
    taken_out(stores)
    stores[1].away = True
    broker.shards.moving_seconds = 0.0
    broker.shards.look_again()

    answers = broker.settle([(job, succeeded()) for job in here])

    assert sorted(answers, key=str) == [None, True]
    stores[1].away = False
    broker.recover()
    assert broker.settle([(job, succeeded()) for job in here])
    ended_once(stores, jobs)


def test_a_signal_waits_for_what_is_on_its_way(broker, clock, stores):
    flow = a_flow(clock, wait=part(task=WAIT_TASK, tags={TAG: "go"}), ship=part("wait"))
    flow.send(broker)
    home = broker.shards.of(flow.flow.id).name
    store, to = (stores[0], "b") if home == "a" else (stores[1], "a")
    store.take_out(EVERY, to)

    assert broker.signal("go", b"1") == flow.ids("wait")


def test_one_enqueue_over_shards_goes_where_the_buckets_are_by_now(broker, old, clock, stores):
    jobs = [job_in(clock, bucket) for bucket in (IN_A, IN_B, IN_A + 1)]
    broker.moves.move([IN_A], "b")

    assert old.enqueue(jobs).known == frozenset()

    assert sorted(ids_in(stores[0], jobs)) == sorted([jobs[2].id])
    assert len(claim(old, limit=9)) == 3


@pytest.mark.parametrize(
    ("size", "took", "then"),
    [
        (4, 0.01, 8),
        (64, 0.01, 64),
        (64, 0.3, 64),
        (64, 0.6, 32),
        (8, 0.6, 8),  # the machine is busy: fewer would take as long
        (4, 1.9, 4),
        (9, 1.9, 8),
        (8, 2.1, 4),  # calls that wait for these give up
        (1, 9.0, 1),
    ],
)
def test_a_mover_takes_as_many_buckets_as_calls_may_wait_for(size, took, then):
    assert next_size(size, took) == then


def test_a_shard_that_the_file_names_later_joins(clock, stores):
    third = Unplugged(clock)
    opens = {"a": lambda _: stores[0], "b": lambda _: stores[1]}
    old = open_sharded(dict(opens), clock, more=lambda: opens)
    new = sharded(clock, *stores, third)
    old.enqueue([job := job_in(clock, IN_A)])
    [running] = claim(old)
    new.put(Rule(RuleKind.PAUSE, queue="mail"))
    new.moves.move([IN_A], "c")

    with pytest.raises(Refused, match="bucket 0 is on shard 'c' by now, which the file"):
        old.enqueue([job])

    opens["c"] = lambda _: third
    assert old.enqueue([job]).known == {job.id}
    assert old.settle([(running, succeeded())]) == [True]
    assert [rule.queue for rule in third.records(Rule)] == ["mail"]


def test_a_worker_that_came_later_to_a_shard_holds_its_jobs_there(broker, old, clock, stores):
    job = job_in(clock, IN_A)
    old.enqueue([job])
    claim(old)
    broker.moves.move([IN_A], "b")
    clock.advance(seconds=10)
    old.renew([a_worker()], holding={job.id})
    clock.advance(seconds=10)

    assert broker.recover() == 0
    assert broker.get(job.id).state is State.RUNNING


def test_stores_that_cannot_move_are_refused(clock, stores):
    class Still(MemoryBroker):
        def __init__(self, clock: Clock) -> None:
            super().__init__(clock)
            self.traits.capabilities -= {"moves"}

    broker = sharded(clock, stores[0], Still(clock))

    for buckets, to in (([IN_A], "b"), ([IN_B], "a")):
        with pytest.raises(Refused, match="buckets do not move to or from the memory broker yet"):
            broker.moves.move(buckets, to)
    assert stores[0].records(ShardMap)[0].version(IN_A) == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(0, 1), st.integers(0, 5)),
        st.tuples(st.just("unique"), st.integers(0, 1), st.integers(0, 5)),
        st.tuples(st.just("claim"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("settle"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("move"), st.integers(0, 5), st.sampled_from("abc")),
        st.tuples(st.just("kill"), st.integers(0, 5), st.integers(0, 9)),
        st.tuples(st.just("recover"), st.integers(0, 1), st.just(0)),
    ),
    max_size=25,
)


@given(steps=STEPS)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_whatever_moves_each_accepted_job_ends_once(steps):
    clock = Clock()
    stores = [Unplugged(clock) for _ in range(3)]
    clients = [sharded(clock, *stores) for _ in range(2)]
    mover = sharded(clock, *stores)
    buckets = [0, 1, 500, 600, 900, 1023]
    accepted: list = []
    held: list = []
    for step, one, two in steps:
        clock.advance(seconds=0.01)
        if step == "enqueue":
            job = job_in(clock, buckets[two])
            clients[one].enqueue([job])
            accepted.append(job)
        elif step == "unique":
            job = a_job(clock, unique=Unique(f"k{two}"))
            stands = clients[one].enqueue([job]).standing
            open_ones = [
                other
                for other in accepted
                if other.unique == job.unique and other.id not in ended(stores)
            ]
            assert bool(stands) == bool(open_ones)
            accepted += [] if stands else [job]
        elif step == "claim":
            held += claim(clients[one], limit=two)
        elif step == "settle" and held:
            assert clients[one].settle([(held.pop(0), succeeded())]) == [True]
        elif step == "move":
            mover.moves.move([buckets[one]], two)
        elif step == "kill":
            stores[two % 3].kill_at = two
            with contextlib.suppress(Killed):
                mover.moves.move([buckets[one]], "abc"[two // 4])
            stores[two % 3].kill_at = None
        elif step == "recover":
            clients[one].recover()
    clients[0].recover()
    for job in held:
        assert clients[1].settle([(job, succeeded())]) == [True]
    run_all(clients[0], clock)
    ended_once(stores, accepted)
    assert all(store.records(Departure) == [] for store in stores)


def ended(stores) -> set:
    return {event.job for store in stores for event in store.history() if event.kind == "attempt"}
