"""take_out and bring_in: buckets leave one store, and go on in another. Runs on every broker.

The broker is shard a, and shard b a store in memory. What is done before a move is done at a; what
follows, at b, or, once the buckets came back, at a again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.move import StaleMap, planned
from penstock.broker.shard_map import Departure, ShardMap
from penstock.broker.values import Batch
from penstock.broker.views import Note
from penstock.brokers.memory import MemoryBroker
from penstock.brokers.sharded import ShardedBroker, open_sharded
from penstock.enqueue.ids import BUCKETS, bucket_for
from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK
from penstock.flows.signals import TAG
from penstock.job import Job, State, Unique, failed, put_back, succeeded, try_again
from penstock.rules.rule import Rule, RuleKind
from penstock.schedules.schedule import Decision
from penstock.testing.conformance.factories import (
    a_flow,
    a_job,
    a_schedule,
    a_worker,
    claim,
    history_of,
    ids_of,
    part,
    put_in_one_bucket,
    settle,
    some_jobs,
)

pytestmark = pytest.mark.needs("moves")
EVERY = range(BUCKETS)


@pytest.fixture(autouse=True)
def of_one_bucket(clock):
    """Order is promised within a bucket."""
    put_in_one_bucket(clock)


@pytest.fixture
def memory(clock) -> Iterator[MemoryBroker]:
    store = MemoryBroker(clock)
    yield store
    store.close()


@pytest.fixture
def fleet(broker, memory, clock) -> ShardedBroker:
    """The broker and a store in memory as shards, all buckets at the broker's."""
    broker.put(ShardMap(fleet="ours", shard="a", ranges=((0, "a"),)))
    return open_sharded({"a": lambda _: broker, "b": lambda _: memory}, clock)


@pytest.fixture(params=["at b", "back at a"])
def move(request: pytest.FixtureRequest, fleet, clock) -> Callable[[], None]:
    """Move all buckets, or there and back."""

    def moving() -> None:
        for to in "ba" if request.param == "back at a" else "b":
            assert fleet.moves.move(EVERY, to) == frozenset(EVERY)
            clock.advance(seconds=0.5)

    return moving


def states_of(fleet, jobs) -> list[State]:
    return [fleet.get(job.id).state for job in jobs]


def counted(fleet) -> list[tuple]:
    return [tuple(msgspec.structs.astuple(count)) for count in fleet.count()]


def test_ready_jobs_go_on_in_their_order(fleet, clock, move):
    jobs = some_jobs(clock, 5)
    late = a_job(clock, run_at=clock.now() + 60, priority=5, key="ada", tags={"tenant": "x"})
    fleet.enqueue([*jobs, late])
    first = claim(fleet)
    settle(fleet, first[0], put_back("pause"))
    before = fleet.get_many(ids_of([*jobs, late]))
    counts = counted(fleet)

    move()

    after = fleet.get_many(ids_of([*jobs, late]))
    assert {id: job.body for id, job in after.items()} == {
        id: job.body for id, job in before.items()
    }
    assert [after[job.id].attempt for job in jobs] == [1, 0, 0, 0, 0]
    assert counted(fleet) == counts
    assert ids_of(fleet.find(Filter(tags={"tenant": ("x",)})).jobs) == [late.id]
    assert sorted(ids_of(claim(fleet, limit=10))) == sorted(ids_of(jobs))
    clock.advance(seconds=61)
    assert ids_of(claim(fleet, limit=10)) == [late.id]


@pytest.mark.parametrize("fields", [{}, {"key": "ada"}, {"at_most_once": True}])
def test_a_running_job_is_settled_where_it_is_now(fleet, broker, clock, move, fields):
    job = a_job(clock, **fields)
    fleet.enqueue([job, *some_jobs(clock, 2)])
    jobs = claim(fleet, limit=3)
    [running] = [each for each in jobs if each.id == job.id]

    move()

    assert [fleet.get(job.id).worker, fleet.get(job.id).attempt] == ["worker-1", 1]
    assert [count.running for count in fleet.count()] == [3]
    stale = msgspec.structs.replace(running, attempt=7)
    assert fleet.settle([(stale, succeeded())]) == [False]
    assert fleet.note(running, Note("progress", value=b"0.5"))
    assert fleet.settle([(running, succeeded(b"62"))]) == [True]
    assert fleet.settle([(running, succeeded(b"63"))]) == [False]
    assert (fleet.get(job.id).state, fleet.get(job.id).result) == (State.SUCCEEDED, b"62")
    assert [count.running for count in fleet.count()] == [2]


def test_what_its_worker_left_comes_along(fleet, clock, move):
    job = a_job(clock)
    fleet.enqueue([job])
    [running] = claim(fleet)
    fleet.note(running, Note("snapshot", value=b'{"row":7}'))

    move()

    assert [note.value for note in fleet.notes(job.id, "snapshot")] == [b'{"row":7}']


def test_a_worker_that_is_dead_is_found_at_the_new_home(fleet, clock, move):
    job = a_job(clock)
    fleet.enqueue([job])
    claim(fleet)

    move()
    clock.advance(seconds=60)

    assert fleet.recover() == 1
    assert fleet.get(job.id).state is State.READY
    assert [again.attempt for again in claim(fleet, worker="other")] == [2]


def test_a_worker_that_renews_keeps_its_job(fleet, clock, move):
    fleet.enqueue([job := a_job(clock)])
    claim(fleet)
    move()

    for _ in range(4):
        clock.advance(seconds=10)
        fleet.renew([a_worker()], holding={job.id})

    assert fleet.recover() == 0
    assert states_of(fleet, [job]) == [State.RUNNING]


def test_a_running_job_that_somebody_cancelled_is_still_to_be(fleet, clock, move):
    fleet.enqueue([job := a_job(clock), other := a_job(clock, key="ada")])
    claim(fleet, limit=2)
    fleet.act("cancel", [job.id, other.id])

    move()

    assert fleet.renew([a_worker()]).cancelled == {job.id, other.id}


def test_ended_jobs_are_kept_and_may_be_retried(fleet, clock, move):
    jobs = some_jobs(clock, 3)
    fleet.enqueue(jobs)
    for job, outcome in zip(
        claim(fleet, limit=3),
        [failed("ValueError: x"), succeeded(b"62"), try_again("ValueError: y", clock.now() + 5)],
        strict=True,
    ):
        settle(fleet, job, outcome)
    counts = counted(fleet)

    move()

    states = states_of(fleet, jobs)
    assert states == [State.FAILED, State.SUCCEEDED, State.READY]
    assert [fleet.get(job.id).failures for job in jobs] == [1, 0, 1]
    assert fleet.get(jobs[0].id).error == "ValueError: x"
    assert fleet.get(jobs[1].id).result == b"62"
    assert fleet.why(jobs[1].id).job == jobs[1].id
    assert counted(fleet) == counts
    assert fleet.act("retry", [jobs[0].id]) == [jobs[0].id]
    assert ids_of(claim(fleet, limit=5)) == [jobs[0].id]


def test_what_was_sent_before_is_known(fleet, clock, move):
    jobs = [*some_jobs(clock, 3), a_job(clock, key="ada")]
    fleet.enqueue(jobs)
    [done] = claim(fleet, limit=1)
    settle(fleet, done, succeeded())

    move()

    assert fleet.enqueue(jobs).known == set(ids_of(jobs))
    assert len(claim(fleet, limit=10)) == 3


def test_the_history_stays_and_is_found(fleet, clock, move):
    fleet.enqueue([job := a_job(clock)])
    [running] = claim(fleet)
    settle(fleet, running, msgspec.structs.replace(succeeded(b"1"), started_at=clock.now()))
    before = [event.kind for event in fleet.history()]

    move()

    assert [event.kind for event in fleet.history()] == before
    assert [event.state for event in history_of(fleet, job.id)] == [State.SUCCEEDED]
    assert fleet.act("delete", [job.id]) == [job.id]
    assert fleet.get(job.id) is None


def test_a_unique_key_holds_and_is_let_go(fleet, clock, move):
    job = a_job(clock, unique=Unique("welcome"))
    fleet.enqueue([job])

    move()

    second = a_job(clock, unique=Unique("welcome"))
    assert fleet.enqueue([second]).standing == {second.id: job.id}
    [running] = claim(fleet)
    settle(fleet, running, succeeded())
    assert fleet.enqueue([a_job(clock, unique=Unique("welcome"))]).standing == {}


def test_a_unique_key_that_lasts_longer_than_its_job_holds(fleet, clock, move):
    job = a_job(clock, unique=Unique("daily", "time", 3600.0))
    fleet.enqueue([job])
    [running] = claim(fleet)
    settle(fleet, running, succeeded())

    move()

    second = a_job(clock, unique=Unique("daily", "time", 3600.0))
    assert fleet.enqueue([second]).standing == {second.id: job.id}
    clock.advance(seconds=3601)
    assert fleet.enqueue([a_job(clock, unique=Unique("daily", "time", 3600.0))]).standing == {}


def test_jobs_of_a_key_stay_in_order(fleet, clock, move):
    fleet.put(Rule(RuleKind.ORDER, queue="default", policy="wait"))
    jobs = [a_job(clock, key="ada") for _ in range(3)]
    fleet.enqueue(jobs)
    [running] = claim(fleet, limit=3)

    move()

    assert claim(fleet, limit=3) == []
    settle(fleet, running, succeeded())
    assert ids_of(claim(fleet, limit=3)) == [jobs[1].id]


@pytest.mark.parametrize("good", [True, False])
def test_a_flow_goes_on_half_way(fleet, clock, move, good):
    flow = a_flow(
        clock,
        first=part(),
        rows=part(jobs=3),
        each=part("rows", "first", on_failure="continue"),
        last=part("each", "rows"),
    )
    flow.send(fleet)
    first, *rows = sorted(claim(fleet, limit=10), key=lambda job: job.id not in flow.ids("first"))
    settle(fleet, first, succeeded(b"1"))
    settle(fleet, rows[0], succeeded(b"2"))

    move()

    assert fleet.flow(flow.flow.id).nodes == tuple(
        flow.row(fleet, name) for name in ("first", "rows", "each", "last")
    )
    assert flow.row(fleet, "rows").jobs_left == 2
    assert flow.row(fleet, "each").needs_left == 1
    assert [fleet.settle([(row, succeeded(b"3"))]) for row in rows[1:2]] == [[True]]
    settle(fleet, rows[2], succeeded(b"4") if good else failed("ValueError: x"))
    [each] = claim(fleet, limit=10)
    assert ids_of([each]) == flow.ids("each")
    outputs = fleet.outputs(flow.nodes["rows"])
    assert sorted(output.result or b"" for output in outputs) == sorted(
        [b"2", b"3", b"4" if good else b""]
    )
    settle(fleet, each, succeeded(b"5"))
    assert flow.states(fleet, "last") == [State.READY if good else State.CANCELLED]


def test_a_need_that_failed_is_retried_at_the_new_home(fleet, clock, move):
    flow = a_flow(clock, first=part(), last=part("first"))
    flow.send(fleet)
    [first] = claim(fleet)
    settle(fleet, first, failed("ValueError: x"))

    move()

    assert flow.states(fleet, "last") == [State.CANCELLED]
    fleet.act("retry", flow.ids("first"))
    assert flow.states(fleet, "last") == [State.WAITING]
    [again] = claim(fleet)
    settle(fleet, again, succeeded())
    assert flow.states(fleet, "last") == [State.READY]


def test_who_waits_for_a_signal_hears_it(fleet, clock, move):
    flow = a_flow(clock, wait=part(task=WAIT_TASK, tags={TAG: "approve"}), ship=part("wait"))
    flow.send(fleet)

    move()

    assert fleet.signal("approve", b"1") == flow.ids("wait")
    assert ids_of(claim(fleet)) == flow.ids("ship")


def test_the_state_of_a_flow_comes_along(fleet, clock, move):
    flow = a_flow(clock, one=part(), two=part("one"))
    flow.send(fleet)
    [one] = claim(fleet)
    fleet.note(one, Note("state", value=b'{"a":1}'))

    move()

    assert fleet.note(one, Note("state", value=b'{"b":2}'))
    assert msgspec.json.decode(fleet.flow(flow.flow.id).state) == {"a": 1, "b": 2}


def test_a_schedule_goes_on(fleet, clock, move):
    stored = fleet.put(a_schedule())

    move()

    assert [schedule.name for schedule in fleet.records(type(stored))] == ["hourly"]
    assert fleet.decide_schedule(stored, [Decision(says="skipped", slot=clock.now())])
    assert not fleet.decide_schedule(stored, [Decision(says="skipped", slot=clock.now())])


def test_a_bulk_enqueue_goes_on_where_it_stopped(fleet, clock, move):
    jobs = [
        msgspec.structs.replace(
            job, id=f"{job.id[:19]}{0x800 | bucket_for('rows'):03x}{job.id[22:]}"
        )
        for job in some_jobs(clock, 4)
    ]
    fleet.enqueue(jobs[:2], batch=Batch("rows", 0))

    move()

    assert fleet.enqueue(jobs[2:], batch=Batch("rows", 2)).batch == 4


def test_rules_are_at_the_new_home_before_its_jobs(fleet, clock, broker):
    broker.put(Rule(RuleKind.PAUSE, queue="default"), "ada", "broken")
    fleet.enqueue([a_job(clock)])

    fleet.moves.move(EVERY, "b")

    assert claim(fleet) == []


def test_a_bucket_that_is_not_meant_stays(fleet, broker, clock):
    here = a_job(clock, id=f"{a_job(clock).id[:19]}801{a_job(clock).id[22:]}")
    there = a_job(clock, id=f"{a_job(clock).id[:19]}bff{a_job(clock).id[22:]}")
    fleet.enqueue([here])
    fleet.enqueue([there])

    fleet.moves.move([BUCKETS - 1], "b")

    assert sorted(broker.get_many([here.id, there.id])) == [here.id]
    assert sorted(ids_of(claim(fleet, limit=9))) == sorted([here.id, there.id])


def test_a_job_whose_unique_key_is_elsewhere_takes_that_bucket_along(fleet, clock):
    job = Job(task="mail:send", id=a_job(clock).id, unique=Unique("k"))
    fleet.enqueue([job])

    moved = fleet.moves.move([bucket_for("k")], "b")

    assert moved == {bucket_for("k"), 0}
    assert states_of(fleet, [job]) == [State.READY]


def test_taken_out_twice_nothing_leaves_again(fleet, broker, clock):
    fleet.enqueue([a_job(clock)])

    assert broker.take_out(EVERY, "b").departures
    assert broker.take_out(EVERY, "b").departures == ()
    assert len(broker.records(Departure)) == 1
    assert fleet.recover() == 0
    assert broker.records(Departure) == []
    assert len(claim(fleet)) == 1


def test_brought_in_twice_it_is_there_once(fleet, memory, broker, clock):
    fleet.enqueue(some_jobs(clock, 2))
    fleet.moves.move(EVERY, "b")
    taken = memory.take_out(EVERY, "a").departures

    assert broker.bring_in(taken) is True
    assert broker.bring_in(taken) is False

    fleet.shards.look_again()
    assert len(claim(fleet, limit=9)) == 2


def test_what_is_damaged_is_not_brought_in(fleet, memory, broker, clock):
    fleet.enqueue([a_job(clock)])
    fleet.moves.move(EVERY, "b")
    [part_of_it] = memory.take_out(EVERY, "a").departures

    with pytest.raises(Refused, match="there are 1 of 2 parts"):
        broker.bring_in([msgspec.structs.replace(part_of_it, parts=2)])
    with pytest.raises(Refused, match="on their way to shard 'c' are not of this store"):
        broker.bring_in([msgspec.structs.replace(part_of_it, to="c")])

    assert broker.bring_in([part_of_it])


def test_without_a_map_nothing_moves(broker):
    with pytest.raises(Refused, match="has no map of shards"):
        broker.take_out(EVERY, "b")


def test_writes_that_were_planned_before_are_refused(fleet, broker, clock):
    job, other = a_job(clock), a_job(clock, key="ada")
    fleet.enqueue([job, other])
    [running, *_] = claim(broker, limit=1)
    stored = fleet.put(a_schedule())
    epoch = broker.records(ShardMap)[0].epoch
    fleet.moves.move([700], "b")
    writes: list[Callable[[], object]] = [
        partial(broker.enqueue, [a_job(clock)]),
        partial(broker.enqueue, [a_job(clock, key="k")]),
        partial(broker.settle, [(running, succeeded())]),
        partial(claim_with, broker, running),
        partial(broker.note, running, Note("progress", value=b"1")),
        partial(broker.act, "cancel", [other.id]),
        partial(broker.act, "delete", [other.id]),
        partial(broker.signal, "approve", b"1"),
        partial(broker.put, Rule(RuleKind.PAUSE, queue="mail")),
        partial(broker.put, a_schedule("daily")),
        partial(broker.decide_schedule, stored, [Decision(says="skipped", slot=1.0)]),
    ]

    for write in writes:
        with planned(epoch), pytest.raises(StaleMap):
            write()

    assert states_of(fleet, [running]) == [State.RUNNING]
    assert broker.records(Rule) == []
    with planned(epoch + 1):
        assert broker.settle([(running, succeeded())]) == [True]


def claim_with(broker, running: Job) -> object:
    return broker.claim([], [(running, succeeded())])
