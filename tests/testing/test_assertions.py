"""assert_enqueued and assert_not_enqueued: what counts as a match, and what a failure says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from penstock import App, Refused, current_job


class Colour(Enum):
    RED = "red"


@pytest.fixture
def app():
    return App("memory:")


@pytest.fixture
def send(app):
    @app.task(name="send", queue="mail")
    def send(to: str, copies: int = 1, *, urgent: bool = False) -> None: ...

    return send


def test_arguments_that_are_left_out_may_be_anything(app, send):
    with app.testing() as t:
        send.enqueue("ada", 2, urgent=True)

        t.assert_enqueued(send)
        t.assert_enqueued(send, "ada")
        t.assert_enqueued(send, "ada", 2)
        t.assert_enqueued(send, urgent=True)
        t.assert_enqueued(send, copies=2, to="ada")
        t.assert_enqueued("send", "ada", queue="mail")
        t.assert_not_enqueued(send, "bob")
        t.assert_not_enqueued(send, urgent=False)
        t.assert_not_enqueued(send, queue="default")


def test_a_default_that_was_not_given_matches_its_value(app, send):
    with app.testing() as t:
        send.enqueue("ada")

        t.assert_enqueued(send, "ada", 1, urgent=False)


def test_the_jobs_that_match_are_returned(app, send):
    with app.testing() as t:
        first, _, second = send.enqueue("ada"), send.enqueue("bob"), send.enqueue("ada")

        assert [job.id for job in t.assert_enqueued(send, "ada")] == [first.id, second.id]


def test_ended_and_deleted_jobs_count_as_well(app):
    @app.task(on_success="delete", secret=("token",))
    def sync(token: str) -> None:
        if token == "first":
            sync.enqueue("second")

    with app.testing() as t:
        sync.enqueue("first")
        t.drain()

        assert t.jobs() == []
        t.assert_enqueued(sync, "first", times=1)
        t.assert_enqueued(sync, "second", times=1)


def test_jobs_of_enqueue_many_count_one_by_one(app, send):
    with app.testing() as t:
        send.enqueue_many([("ada",), ("bob",), {"to": "cid", "copies": 3}], id="import-7")

        t.assert_enqueued(send, times=3)
        t.assert_enqueued(send, "cid", 3, times=1)


def test_a_failure_lists_what_was_enqueued(app, send):
    @app.task(name="other")
    def other(payload: Any) -> None: ...

    with app.testing() as t:
        send.enqueue("ada", urgent=True)
        t.drain()
        other.enqueue({"n": 1})

        with pytest.raises(AssertionError) as failure:
            t.assert_enqueued(send, "bob", copies=2)

    assert str(failure.value).splitlines() == [
        "send('bob', copies=2) was not enqueued.",
        "Enqueued were:",
        "  send(to='ada', urgent=True) in queue mail (succeeded)",
        "  other({'n': 1}) in queue default (ready)",
    ]


def test_a_failure_says_when_nothing_was_enqueued(app, send):
    with app.testing() as t, pytest.raises(AssertionError, match=r"Nothing was enqueued\.$"):
        t.assert_enqueued(send)


def test_the_wrong_number_is_said(app, send):
    with app.testing() as t:
        send.enqueue("ada")

        with pytest.raises(AssertionError, match="was not enqueued 2 times, but 1 times"):
            t.assert_enqueued(send, times=2)
        with pytest.raises(AssertionError, match="was not enqueued 0 times, but 1 times"):
            t.assert_enqueued(send, times=0)


def test_what_should_not_be_there_is_shown(app, send):
    with app.testing() as t:
        send.enqueue("ada")

        with pytest.raises(AssertionError, match=re.escape("send('ada') was enqueued.\nEnqueued")):
            t.assert_not_enqueued(send, "ada")


def test_long_lists_and_long_arguments_are_cut(app, send):
    with app.testing() as t:
        send.enqueue_many([("x" * 1000,) for _ in range(60)])

        with pytest.raises(AssertionError) as failure:
            t.assert_enqueued(send, "ada")

    text = str(failure.value)
    assert "and 10 more" in text
    assert len(text) < 20_000


def test_arguments_the_task_does_not_take_are_refused(app, send):
    with app.testing() as t:
        send.enqueue("ada")

        with pytest.raises(Refused, match=r"send\(to: str, .* unexpected keyword argument 'form'"):
            t.assert_enqueued(send, form="ada")


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 11, 15, 8, tzinfo=UTC),
        Decimal("9.99"),
        b"\x00\xff",
        Colour.RED,
        {"a", "b", "c"},
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_every_kind_are_compared_as_they_were_sent(app, value):
    kind = type(value)

    def keep(value) -> None: ...

    keep.__annotations__["value"] = set[str] if kind is set else kind
    task = app.task(keep)

    with app.testing() as t:
        task.enqueue(value)

        t.assert_enqueued(task, value, times=1)


def test_a_tuple_without_an_annotation_matches_the_list_it_became(app):
    @app.task
    def plot(points) -> None: ...

    with app.testing() as t:
        plot.enqueue([(1, 2), (3, 4)])

        t.assert_enqueued(plot, [(1, 2), (3, 4)])


def test_an_unreadable_job_is_listed_and_matches_nothing(app, send):
    from penstock.job import Job

    with app.testing() as t:
        t.broker.enqueue([Job(task="send", body=b"\xff\x00", id=app.ids.next())])
        t.broker.enqueue([Job(task="gone:away", body=b'{"args":{"n":1}}', id=app.ids.next())])

        t.assert_not_enqueued(send, "ada")
        t.assert_enqueued("gone:away", n=1)
        with pytest.raises(AssertionError, match=r"gone:away\(n=1\)"):
            t.assert_enqueued(send, "ada")


def test_a_job_of_a_job_is_seen_with_its_arguments(app, send):
    @app.task
    def sign_up(name: str) -> None:
        send.options(headers={"by": current_job().id}).enqueue(name)

    with app.testing() as t:
        sign_up.enqueue("ada")
        t.assert_not_enqueued(send)
        t.drain(limit=1)

        t.assert_enqueued(send, "ada", times=1)
