"""Flows in which something fails: what becomes of the rest."""

from __future__ import annotations

import pytest

from penstock import Refused, State
from tests.compose.compose_tasks import add, app, double, fails, perhaps, total


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
    t.broker.act("cancel", [t.jobs(double)[1].id])
    t.drain()

    assert handle.result() == 8


def test_what_was_deleted_before_its_end_is_only_missing(t):
    need = double.job(1)
    handle = perhaps.options(on_failure="continue").job(need.output).enqueue()
    t.broker.act("delete", [need.id])
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
