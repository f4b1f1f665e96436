"""Flows as people write them: outputs as arguments, maps, groups and chains."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

import msgspec
import psycopg
import pytest

from penstock import (
    App,
    Outcome,
    Refused,
    State,
    UnknownOutcome,
    chain,
    current_job,
    group,
    use,
)
from penstock.brokers.memory import MemoryBroker
from penstock.compose import Spawn, spawned
from penstock.flow import Fill, member_of
from penstock.job import Parcel
from penstock.worker.process import whole_outcome

app = App("memory:")


@dataclass
class Order:
    number: int
    lines: list[int] = field(default_factory=list)


class Renamed(msgspec.Struct, rename="camel"):
    first_number: int


@app.task(name="double")
def double(n: int) -> int:
    return 2 * n


@app.task(name="fails")
def fails(n: int) -> int:
    raise ValueError(n)


@app.task(name="add")
def add(a: int, b: int = 0, *more: int) -> int:
    return a + b + sum(more)


@app.task(name="gather")
def gather(*numbers: int) -> int:
    return sum(numbers)


@app.task(name="total")
def total(numbers: list[int], factor: int = 1) -> int:
    return sum(numbers) * factor


@app.task(name="ship")
def ship(order: Order, named: dict[str, list[int]] | None = None) -> int:
    return order.number + sum(order.lines) + sum(map(sum, (named or {}).values()))


@app.task(name="camel")
def camel(value: Renamed) -> int:
    return value.first_number


@app.task(name="perhaps")
def perhaps(n: int | None) -> str:
    return str(n)


@app.task(name="nothing")
def nothing(n: int) -> None: ...


@app.task(name="deletes", on_success="delete", keep=1)
def deletes(n: int) -> int:
    return n


@app.task(name="card")
def card() -> str:
    return "4242-4242"


@app.task(name="charge", secret=("number",))
def charge(number: str) -> None:
    raise RuntimeError(f"no money on {number}")


@app.task(name="later")
async def later(n: int) -> int:
    return n + 1


def make_client() -> str:
    return "client"


@app.task(name="client")
def with_client(n: int, client: str = use(make_client)) -> str:
    return f"{client}{n}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def t(request, tmp_path):
    """The app under test, on each kind of store in turn."""
    url = None
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    elif request.param == "postgres":
        url = request.getfixturevalue("postgres_store_url")
    with app.testing(url=url) as t:
        yield t


def node_of(t, handle, task):
    [node] = [node for node in t.broker.flow(handle.id).nodes if node.task == task]
    return node


def place_of(t, job_id):
    return member_of(t.broker.get(job_id).body)


# Outputs


def test_a_job_gets_what_another_returned(t):
    handle = double.job(double.job(4).output).enqueue()

    assert handle.state() is State.WAITING
    t.drain()
    assert handle.result() == 16


def test_the_flow_has_the_id_of_the_job_that_was_enqueued(t):
    first = double.job(4)
    last = double.job(first.output)

    handle = last.enqueue()

    row = t.broker.flow(handle.id)
    assert handle.id == last.id == row.id
    assert [(node.id, node.needs, node.on_failure) for node in row.nodes] == [
        (first.id, (), "cancel"),
        (last.id, (first.id,), "cancel"),
    ]
    assert place_of(t, last.id).fill == (Fill(("n",), first.id),)
    assert json.loads(t.broker.get(last.id).body)["args"] == {"n": None}
    assert place_of(t, first.id).fill == ()


def test_a_job_that_was_only_made_is_not_stored(t):
    double.job(double.job(4).output)

    assert t.jobs() == []


def test_enqueue_of_a_task_takes_outputs_too(t):
    handle = double.enqueue(double.job(4).output)
    t.drain()

    assert handle.result() == 16


def test_one_output_may_be_needed_by_many(t):
    first = double.job(1)
    left, right = double.job(first.output), add.job(first.output, first.output)

    handle = add.job(left.output, right.output).enqueue()
    t.drain()

    assert handle.result() == 8
    assert len(t.jobs()) == 4
    assert [node.needs for node in t.broker.flow(handle.id).nodes] == [
        (),
        (first.id,),
        (first.id,),
        (left.id, right.id),
    ]


def test_outputs_may_be_anywhere_inside_an_argument(t):
    one, two = double.job(1), double.job(2)
    order = Order(one.output, [1, two.output])

    handle = ship.job(order, named={"a": [two.output], "b": [5, one.output]}).enqueue()
    t.drain()

    assert handle.result() == 2 + 1 + 4 + 4 + 5 + 2
    assert set(place_of(t, handle.id).fill) == {
        Fill(("order", "number"), one.id),
        Fill(("order", "lines", 1), two.id),
        Fill(("named", "a", 0), two.id),
        Fill(("named", "b", 1), one.id),
    }


def test_a_field_is_filled_under_the_name_that_it_has_as_json(t):
    handle = camel.job(Renamed(double.job(3).output)).enqueue()
    t.drain()

    assert handle.result() == 6


def test_positions_beyond_the_named_ones_are_filled(t):
    handle = add.job(1, 2, double.job(1).output, 4, double.job(2).output).enqueue()
    t.drain()

    assert handle.result() == 1 + 2 + 2 + 4 + 4


def test_async_tasks_and_resources_take_outputs(t):
    handle = with_client.job(later.job(later.job(1).output).output).enqueue()
    t.drain()

    assert handle.result() == "client3"


def test_nothing_is_handed_on_as_none(t):
    handle = perhaps.job(nothing.job(1).output).enqueue()
    t.drain()

    assert handle.result() == "None"


def test_the_other_arguments_are_checked_at_once(t):
    with pytest.raises(Refused, match="b: Expected `int`"):
        add.job(double.job(1).output, "two")
    with pytest.raises(Refused, match="missing a required argument"):
        ship.job(named={"a": [double.job(1).output]})
    with pytest.raises(Refused, match="client is a resource"):
        with_client.job(double.job(1).output, client="mine")
    with pytest.raises(Refused, match="unexpected keyword"):
        add.job(double.job(1).output, c=1)


def test_the_wrong_type_is_found_when_it_runs(t):
    handle = double.job(with_client.job(1).output).enqueue()
    t.drain()

    job = t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "unreadable")
    assert "Expected `int`, got `str`" in job.error


def test_an_output_cannot_be_looked_at_or_returned(t):
    output: Any = double.job(1).output

    with pytest.raises(Refused, match="not known before that job has run"):
        bool(output)
    with pytest.raises(Refused, match="not known before"):
        list(output)
    with pytest.raises(Refused, match="row 0"):
        double.enqueue_many([(output,)])


def test_a_secret_that_another_job_returned_is_hidden_in_a_traceback(t):
    handle = charge.job(card.job().output).enqueue()
    t.drain()

    error = t.broker.get(handle.id).error
    assert "no money on" in error
    assert "4242" not in error


def test_a_result_that_is_gone_ends_the_job_with_a_sentence(t):
    first = double.job(1)
    handle = double.job(first.output).enqueue()
    t.drain(limit=1)
    t.broker.delete([first.id])

    t.drain()

    job = t.broker.get(handle.id)
    assert (job.state, job.reason) == (State.FAILED, "needs")
    assert f"the output of job {first.id}" in job.error


def test_a_member_is_kept_for_the_others_though_its_task_deletes(t):
    first = deletes.job(7)
    handle = double.job(first.output).enqueue()
    t.drain(limit=1)

    kept = t.broker.get(first.id)

    assert (kept.state, kept.keep_until) == (State.SUCCEEDED, None)
    t.drain()
    assert handle.result() == 14
    alone = deletes.enqueue(1)
    t.drain()
    assert t.broker.get(alone.id) is None


# Map


def test_a_job_per_item_and_one_for_all_of_them(t):
    handle = total.job(double.map(range(5)).output, factor=10).enqueue()

    assert len(t.jobs(double)) == 5
    t.drain()
    assert handle.result() == 10 * (0 + 2 + 4 + 6 + 8)
    assert node_of(t, handle, "double").jobs == 5


def test_what_all_have_in_common_may_be_an_output(t):
    common = double.job(10)

    handle = total.job(add.map([1, 2, 3], b=common.output).output).enqueue()
    t.drain()

    assert handle.result() == 66
    assert node_of(t, handle, "add").needs == (common.id,)


def test_items_may_be_outputs(t):
    handle = total.job(add.map([double.job(1).output, 5, double.job(3).output], 1).output).enqueue()
    t.drain()

    assert handle.result() == 3 + 6 + 7


def test_items_and_what_they_have_in_common_may_be_outputs(t):
    common = double.job(10).output
    work = add.map([1, double.job(1).output, 3, double.job(2).output], common)

    handle = total.job(work.output).enqueue()
    t.drain()

    assert handle.result() == 21 + 22 + 23 + 24


def test_every_item_is_checked_beside_an_output(t):
    with pytest.raises(Refused, match="a: Expected `int`, got `str`"):
        add.map([1, 2, "three"], double.job(1).output)
    with pytest.raises(Refused, match="cannot be stored as JSON"):
        add.map([1, object()], double.job(1).output)
    with pytest.raises(Refused, match="Expected `int` <="):
        add.map([1, 2**70], double.job(1).output)


def test_a_function_of_any_number_of_arguments_can_be_mapped(t):
    work = gather.map([1, 2, 3], double.job(1).output)

    handle = total.job(work.output).enqueue()
    t.drain()

    assert handle.result() == 3 + 4 + 5


def test_a_map_over_an_output_points_to_spawn(t):
    with pytest.raises(Refused, match="spawn"):
        double.map(double.map([1]).output)


def test_maps_of_maps(t):
    first = double.map([1, 2])
    second = add.map([10, 20], total.job(first.output).output)

    handle = total.job(second.output).enqueue()
    t.drain()

    assert handle.result() == 16 + 26


def test_a_map_of_many_travels_in_parcels(t):
    work = double.map(range(300))

    handle = total.job(work.output).enqueue()

    assert len(work) == 300
    assert all(isinstance(part, Parcel) for part in work.parts)
    assert len(work.parts) < 10
    assert all(
        sum(map(len, part.bodies)) < 64 * 1024 for part in work.parts if isinstance(part, Parcel)
    )
    t.drain()
    assert handle.result() == 299 * 300


def test_a_map_with_options_has_them_on_every_job(t):
    work = double.options(tags={"tenant": "a"}, priority=3).map([1, 2])

    handle = total.job(work.output).enqueue()

    assert {(job.priority, job.tags["tenant"]) for job in t.jobs(double)} == {(3, "a")}
    t.drain()
    assert handle.result() == 6


def test_an_empty_map_gives_an_empty_list(t):
    handle = total.job(double.map([]).output).enqueue()
    t.drain()

    assert handle.result() == 0


def test_whom_an_empty_map_would_have_needed_is_needed_all_the_same(t):
    first = double.job(1)

    handle = total.job(add.map([], first.output).output).enqueue()

    assert node_of(t, handle, "total").needs == (first.id,)
    t.drain()
    assert handle.result() == 0


def test_a_map_can_be_enqueued_by_itself(t):
    handles = double.map([1, 2]).enqueue()
    joined = add.map([1, 2], double.job(5).output).enqueue()
    t.drain()

    assert [handle.result() for handle in handles] == [2, 4]
    assert [handle.result() for handle in joined] == [11, 12]
    assert t.broker.flow(joined[0].id) is not None


def test_a_map_refuses_what_is_for_one_job(t):
    with pytest.raises(Refused, match="for one job"):
        double.options(unique="x").map([1])
    with pytest.raises(Refused, match="as map"):
        double.map(5)  # pyright: ignore[reportArgumentType]


# Sugar


def test_a_chain_hands_each_result_on(t):
    job = chain(double.job(1), double, add.options(priority=5), perhaps)

    handle = job.enqueue()
    t.drain()

    assert handle.result() == "4"
    assert t.jobs(add)[0].priority == 5


def test_a_chain_may_begin_with_a_map_or_a_group(t):
    mapped = chain(double.map([1, 2]), total).enqueue()
    grouped = chain(group(double.job(1), add.job(1, 2)), total).enqueue()
    t.drain()

    assert (mapped.result(), grouped.result()) == (6, 5)


def test_a_group_is_stored_together(t):
    handles = group(double.job(1), add.job(1, 2), double.job(double.job(1).output)).enqueue()
    t.drain()

    assert [handle.result() for handle in handles] == [2, 3, 4]


def test_sugar_says_what_it_wants(t):
    with pytest.raises(Refused, match="at least one job"):
        group()
    with pytest.raises(Refused, match="tasks follow"):
        chain(double.job(1), 3)  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_chain_longer_than_the_stack(t):
    job = double.job(0)
    for _ in range(2000):
        job = double.job(job.output)

    handle = job.enqueue()

    assert len(t.broker.flow(handle.id).nodes) == 2001


# Failure


def test_what_needs_a_job_that_failed_is_cancelled(t):
    handle = double.job(fails.job(1).output).enqueue()
    t.drain()

    assert handle.state() is State.CANCELLED
    assert t.broker.get(handle.id).reason == "needs"


def test_a_job_may_run_with_what_there_is(t):
    single = perhaps.options(on_failure="continue").job(fails.job(1).output).enqueue()
    many = total.options(on_failure="continue").job([double.job(1).output]).enqueue()
    work = add.options(on_failure="continue").map([1, 2], double.job(2).output)
    several = total.job(work.output).enqueue()
    t.drain()

    assert single.result() == "None"
    assert many.result() == 2
    assert several.result() == 11


def test_a_list_holds_what_succeeded(t):
    work = double.map([1, 2, 3])
    handle = total.options(on_failure="continue").job(work.output).enqueue()
    t.broker.cancel([t.jobs(double)[1].id])
    t.drain()

    assert handle.result() == 8


def test_what_was_deleted_before_its_end_is_only_missing(t):
    need = double.job(1)
    handle = perhaps.options(on_failure="continue").job(need.output).enqueue()
    t.broker.delete([need.id])
    t.drain()

    assert handle.result() == "None"


def test_a_flow_says_it_for_all_and_a_member_for_itself(t):
    middle = perhaps.job(fails.job(1).output)
    strict = double.options(on_failure="cancel").job(fails.job(2).output)

    handles = app.enqueue([middle, strict], on_failure="continue")
    alone = perhaps.job(fails.job(3).output).enqueue(on_failure="continue")
    t.drain()

    assert handles[0].result() == "None"
    assert handles[1].state() is State.CANCELLED
    assert alone.result() == "None"


def test_a_policy_that_is_none_is_refused(t):
    with pytest.raises(Refused, match="on_failure='retry'"):
        double.options(on_failure="retry")  # pyright: ignore[reportArgumentType]


# Stored as a whole, once


def test_the_same_flow_sent_again_is_stored_once(t):
    job = total.job(double.map([1, 2]).output)
    job.enqueue()

    handle = job.enqueue()
    t.drain()
    job.enqueue()

    assert t.drain() == []
    assert handle.result() == 6
    assert len(t.jobs()) == 3


def test_a_bad_member_stores_nothing(t):
    bad = double.options(unique="x").job(1)

    with pytest.raises(Refused, match="unique"):
        double.job(bad.output).enqueue()

    assert t.jobs() == []


def test_a_flow_and_other_jobs_are_stored_together(t):
    handles = app.enqueue([double.job(1), double.job(double.job(2).output), double.map([5, 6])])
    t.drain()

    assert [handle.result() for handle in handles] == [2, 8, 10, 12]


def test_flows_are_enqueued_from_an_event_loop_too(t):
    async def enqueue() -> Any:
        return await double.enqueue_async(double.job(4).output)

    handle = asyncio.run(enqueue())
    t.drain()

    assert handle.result() == 16


def test_a_store_without_transactions_refuses_to_be_joined():
    with app.testing(), pytest.raises(Refused, match="no transaction to join"):
        app.enqueue([double.job(double.job(1).output)], connection=object())


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_flow_joins_the_callers_transaction(request, tmp_path, store, commits):
    connection: Any
    if store == "sqlite":
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
    else:
        url = request.getfixturevalue("postgres_store_url")
    with app.testing(url=url) as t:
        t.drain()
        connect = sqlite3.connect if store == "sqlite" else psycopg.connect
        connection = connect(tmp_path / "jobs.db" if store == "sqlite" else url)
        if store == "sqlite":
            connection.execute("begin immediate")
        job = total.job(double.map(range(200)).output)

        [handle] = app.enqueue([job], connection=connection)
        other = total.options(connection=connection).enqueue([double.job(4).output])
        connection.commit() if commits else connection.rollback()
        connection.close()

        t.drain()
        assert handle.state() is (State.SUCCEEDED if commits else None)
        assert other.state() is (State.SUCCEEDED if commits else None)
        assert (t.broker.flow(job.id) is not None) is commits


def test_a_flow_joins_an_asynchronous_transaction(postgres_store_url):
    async def enqueue() -> Any:
        connection = await psycopg.AsyncConnection.connect(postgres_store_url)
        async with connection:
            task = total.options(connection=connection)
            return await task.enqueue_async(double.map([1, 2]).output)

    with app.testing(url=postgres_store_url) as t:
        t.drain()
        handle = asyncio.run(enqueue())
        t.drain()

        assert handle.result() == 6


class LosesAnswers(MemoryBroker):
    """Stores, and is cut off before it can say so."""

    lost = 0

    def enqueue(self, jobs: Any, **options: Any) -> Any:
        answer = super().enqueue(jobs, **options)
        if self.lost:
            self.lost -= 1
            raise UnknownOutcome("cut off", jobs)
        return answer


def test_a_flow_whose_answer_was_lost_can_be_sent_again(clock):
    broker = LosesAnswers(clock)
    broker.lost = 1
    with app.replace_broker(broker):
        job = total.job(double.map([1, 2]).output)
        with pytest.raises(UnknownOutcome) as lost:
            job.enqueue()

        assert lost.value.jobs == [job]
        [handle] = app.enqueue(lost.value.jobs)

        assert handle.id == job.id
        assert len(broker.flow(job.id).nodes) == 2


# Spawn


@app.task(name="split")
def split(count: int, then: str = "") -> int:
    work = double.map(range(count))
    if then == "total":
        current_job().spawn(work, then=total.job(work.output, factor=100))
    elif then == "after":
        current_job().spawn([work, double.job(50)], then=nothing.job(1))
    else:
        current_job().spawn(work)
    if then == "fails":
        raise ValueError(then)
    return count


@app.task(name="spawns-badly")
def spawns_badly(jobs: str) -> None:
    current_job().spawn(jobs)  # pyright: ignore[reportArgumentType]


def test_a_task_spawns_what_it_finds(t):
    split.enqueue(3)
    t.drain(limit=1)

    assert [job.state for job in t.jobs(double)] == [State.READY] * 3
    t.drain()
    assert {job.state for job in t.jobs()} == {State.SUCCEEDED}


def test_what_follows_gets_what_they_returned(t):
    split.enqueue(3, then="total")
    t.drain()

    [job] = t.jobs(total)
    assert job.result == b"600"
    assert t.broker.flow(job.id).ended_at is not None


def test_what_follows_waits_though_it_takes_nothing(t):
    split.enqueue(2, then="after")
    t.drain(limit=1)

    [last] = t.jobs(nothing)
    assert last.state is State.WAITING
    [node] = [node for node in t.broker.flow(last.id).nodes if node.id == last.id]
    assert node.needs_left == 2


def test_in_a_flow_whoever_needs_it_waits_for_what_it_spawned(t):
    handle = add.job(split.job(3, then="total").output, 1).enqueue()
    t.drain(limit=1)
    assert handle.state() is State.WAITING

    ran = [attempt.job.task for attempt in t.drain()]

    assert ran == ["double", "double", "double", "total", "add"]
    assert handle.result() == 4
    assert [node.task for node in t.broker.flow(handle.id).nodes] == [
        "split",
        "double",
        "total",
        "add",
    ]


def test_an_attempt_that_fails_spawns_nothing(t):
    split.enqueue(3, then="fails")
    t.drain()

    assert [job.task for job in t.jobs()] == ["split"]


def test_what_cannot_be_spawned_is_refused(t):
    handle = spawns_badly.enqueue("mail")
    t.drain()

    assert "spawn takes jobs" in t.broker.get(handle.id).error


def test_what_travels_to_another_process_can_be_written_down():
    jobs, flow = spawned([Spawn((double.map([1, 2]), add.job(1)), nothing.job(1))], None)
    outcome = Outcome(State.SUCCEEDED, spawned=jobs, flow=flow)

    back = whole_outcome(
        msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=Outcome | None)
    )

    assert back == outcome
