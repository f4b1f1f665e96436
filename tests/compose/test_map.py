"""Flows as people write them: maps, and chains and groups, which are sugar."""

from __future__ import annotations

import pytest

from penstock import Refused, chain, group
from penstock.job import Parcel
from tests.compose.compose_tasks import add, double, gather, perhaps, total


def node_of(t, handle, task):
    [node] = [node for node in t.broker.flow(handle.id).nodes if node.task == task]
    return node


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
