"""Traits: what a store declares about itself is what it can."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.traits import begins
from penstock.errors import Refused
from penstock.job import Job, State
from penstock.testing.conformance.factories import a_job, claim, enqueue_and_claim, history_of


def test_the_suite_runs_the_tests_of_every_capability_that_is_declared(broker, capabilities):
    """Else `pytest_penstock_capabilities` of the plugin that binds this store is to be changed."""
    assert broker.traits.capabilities == capabilities - {"reopens"}


def test_the_store_has_a_name_for_sentences(broker):
    assert broker.traits.name.strip() == broker.traits.name != ""


@pytest.mark.lacks("begins")
def test_a_store_without_a_database_refuses(broker):
    with pytest.raises(Refused):
        begins(broker)


@pytest.fixture
def reported(broker):
    """The ends that no worker reported, as the store reports them."""
    jobs: list[Job[Any]] = []
    broker.traits.ended = jobs.append
    yield jobs
    broker.traits.ended = None


def test_a_job_that_expires_is_reported_once(broker, clock, reported):
    job = a_job(clock, expires_at=clock.now() + 10)
    broker.enqueue([job])
    clock.advance(seconds=11)

    assert claim(broker) == []
    broker.recover()
    broker.prune(clock.now() - 100)

    assert [(each.id, each.state, each.reason) for each in reported] == [
        (job.id, State.CANCELLED, "expired")
    ]


def test_a_job_that_is_cancelled_before_it_runs_is_reported_and_a_running_one_is_not(
    broker, clock, reported
):
    running = enqueue_and_claim(broker, clock)
    ready, delayed = a_job(clock), a_job(clock, run_at=clock.now() + 100)
    broker.enqueue([ready, delayed])

    broker.act("cancel", [running.id, ready.id, delayed.id])

    assert {(each.id, each.state, each.reason) for each in reported} == {
        (ready.id, State.CANCELLED, "cancelled"),
        (delayed.id, State.CANCELLED, "cancelled"),
    }


def test_each_lapse_is_reported_with_its_evidence_until_the_crash_budget_is_spent(
    broker, clock, reported
):
    job = a_job(clock)
    broker.enqueue([job])
    for number in range(3):
        clock.advance(seconds=1000)
        [held] = claim(broker, worker=f"worker-{number}")
        assert broker.recover(dead=f"worker-{number}", started={held.id: f"Died: {number}"}) == 1

    assert [(each.id, each.state, each.reason, each.error) for each in reported] == [
        (job.id, State.READY, "crashed", "Died: 0"),
        (job.id, State.READY, "crashed", "Died: 1"),
        (job.id, State.FAILED, "crashed", "Died: 2"),
    ]
    rows = [event for event in history_of(broker, job.id) if event.kind == "attempt"]
    assert [event.error for event in rows] == ["Died: 0", "Died: 1", "Died: 2"]


def test_jobs_that_are_put_back_uncounted_are_not_reported(broker, clock, reported):
    enqueue_and_claim(broker, clock)

    assert broker.recover(dead="worker-1", started=()) == 1

    assert reported == []
