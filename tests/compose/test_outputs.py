"""Flows as people write them: what a job returns is an argument of another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Refused, State
from penstock.flows.flow import Fill, member_of
from tests.compose.compose_tasks import (
    Order,
    Renamed,
    add,
    camel,
    card,
    charge,
    deletes,
    double,
    later,
    nothing,
    perhaps,
    ship,
    with_client,
)


def place_of(t, job_id):
    return member_of(t.broker.get(job_id).body)


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
    assert "RuntimeError: message not kept, digest " in error
    assert "4242" not in error


def test_a_result_that_is_gone_ends_the_job_with_a_sentence(t):
    first = double.job(1)
    handle = double.job(first.output).enqueue()
    t.drain(limit=1)
    t.broker.act("delete", [first.id])

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
