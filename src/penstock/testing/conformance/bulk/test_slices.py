"""Slices: what is wanted in parts that others read, each row in one of them."""

from __future__ import annotations

from itertools import chain
from typing import Any

import msgspec
import pytest

from penstock.broker.filter import Filter
from penstock.broker.slice import Selection
from penstock.errors import Refused
from penstock.job import failed, succeeded
from penstock.testing.conformance.factories import a_job, claim, end_all, ids_of, settle, some_jobs

pytestmark = pytest.mark.needs("bulk")


def rows_of(broker: Any, selection: Selection, column: str, **cut: Any) -> list[list[Any]]:
    """A column of each slice."""
    return [
        [value for batch in broker.scan(part) for value in batch.column(column).to_pylist()]
        for part in broker.slices(selection, **cut)
    ]


@pytest.mark.parametrize("count", [0, 1, 2, 300])
@pytest.mark.parametrize("at_most", [1, 4])
@pytest.mark.needs("one place")
def test_slices_of_the_history_add_up_to_the_whole(broker, clock, count, at_most):
    broker.enqueue(some_jobs(clock, count))
    end_all(broker, succeeded(), limit=1000)

    parts = rows_of(broker, Selection(table="attempts"), "position", at_most=at_most)

    assert 1 <= len(parts) <= at_most
    assert sorted(chain.from_iterable(parts)) == [
        row.position for row in broker.history(limit=1000)
    ]


@pytest.mark.needs("one place")
def test_they_are_about_equal(broker, clock):
    for _ in range(40):
        broker.enqueue(some_jobs(clock, 10))
        end_all(broker, succeeded())

    parts = rows_of(broker, Selection(table="attempts"), "position", at_most=4)

    assert [len(part) for part in parts] == [100] * 4


@pytest.mark.needs("one place")
def test_of_a_span_there_is_nothing_beyond(broker, clock):
    broker.enqueue(some_jobs(clock, 20))
    for job in claim(broker, limit=20):
        settle(broker, job, succeeded())
    positions = [row.position for row in broker.history()]

    span = {"after": positions[4], "until": positions[11]}
    parts = rows_of(broker, Selection(table="attempts"), "position", at_most=3, **span)

    assert sorted(chain.from_iterable(parts)) == positions[5:12]
    assert broker.slices(Selection(table="attempts"), after=positions[4], until=positions[4]) == []


@pytest.mark.parametrize("table", ["attempts", "jobs"])
@pytest.mark.needs("one place")
def test_ends_that_this_store_did_not_make_are_refused(broker, clock, table):
    broker.enqueue(some_jobs(clock, 2))
    [part] = broker.slices(Selection(table=table))

    assert (type(part.after), type(part.until)) == (str, str)
    for wrong in ({"after": "one"}, {"until": "two"}):
        with pytest.raises(Refused, match=r"'(one|two)' is no"):
            list(broker.scan(msgspec.structs.replace(part, **wrong)))
    if table == "attempts":
        for wrong in ({"after": "one"}, {"until": "two"}):
            with pytest.raises(Refused, match=r"'(one|two)' is no position of this store"):
                broker.slices(Selection(table=table), **wrong)


@pytest.mark.parametrize("at_most", [1, 5])
def test_slices_of_jobs_add_up_wherever_the_jobs_are(broker, clock, at_most):
    """Packed, with a row of their own, running, ended: each of them once."""
    broker.enqueue(some_jobs(clock, 200))
    broker.enqueue(some_jobs(clock, 30, "media:resize", key="k"))
    claim(broker, limit=20)
    for number, job in enumerate(claim(broker, limit=40, worker="worker-2")):
        settle(broker, job, succeeded() if number % 2 else failed("x"))
    broker.enqueue([a_job(clock, run_at=clock.now() + 99)])
    ids = sorted(ids_of(broker.find(Filter(), limit=1000).jobs))

    parts = rows_of(broker, Selection(table="jobs"), "id", at_most=at_most)

    assert len(ids) == 231
    assert len(parts) <= at_most + 1
    assert sorted(chain.from_iterable(parts)) == ids
