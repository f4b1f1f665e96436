"""The store behind `penstock debug`: read as it is, and never written to."""

from __future__ import annotations

import inspect

import pytest

from penstock.broker.bulk import Bulk
from penstock.broker.control import Control
from penstock.broker.core import Core
from penstock.broker.look import Look
from penstock.broker.views import Note
from penstock.errors import Refused
from penstock.job import succeeded
from penstock.run.dry_run import _READ, _WORK, WithholdingBroker
from penstock.testing.conformance.factories import a_flow, a_job, a_worker, claim, claim_for, part

VERBS = {
    name
    for group in (Core, Control, Look, Bulk)
    for name, member in vars(group).items()
    if inspect.isfunction(member) and not name.startswith("_")
}
LOOK = {name for name in vars(Look) if name in VERBS} | {
    *("close", "count", "get", "history", "why"),  # of Core
    *("get_many", "reach", "scan", "slices"),  # of Bulk
}


def test_every_verb_is_read_told_or_refused():
    own = {name for name in vars(WithholdingBroker) if name in VERBS}

    assert own | (_READ & VERBS) | _WORK == VERBS
    assert not own & (_READ | _WORK)


def test_only_verbs_that_change_nothing_reach_the_store():
    assert LOOK | {"wait", "wake"} >= _READ & VERBS


def test_what_a_job_notes_it_reads_back_and_nobody_else_does(broker, clock):
    broker.enqueue([a_job(clock)])
    [job] = claim(broker)
    broker.note(job, Note("snapshot", value=b"1"))
    broker.note(job, Note("step", "load", b"5"))
    told = []
    withholding = WithholdingBroker(broker, told.append)

    assert withholding.note(job, Note("snapshot", value=b"2"))
    assert withholding.note(job, Note("step", "more", b"6"))

    assert [note.value for note in withholding.notes(job.id, "snapshot")] == [b"2"]
    assert [note.name for note in withholding.notes(job.id, "step")] == ["load", "more"]
    assert [note.value for note in broker.notes(job.id)] == [b"1", b"5"]
    assert [each.kind for each in told] == ["snapshot", "step"]


def test_what_a_job_merges_into_its_flow_is_seen_by_it_alone(broker, clock):
    flow = a_flow(clock, one=part())
    flow.send(broker)
    [job] = claim(broker)
    broker.note(job, Note("state", value=b'{"a":1}'))
    withholding = WithholdingBroker(broker, lambda _: None)

    withholding.note(job, Note("state", value=b'{"b":2}'))

    assert withholding.flow(flow.flow.id).state == b'{"a":1,"b":2}'
    assert broker.flow(flow.flow.id).state == b'{"a":1}'


def test_what_is_a_workers_part_is_refused(broker, clock):
    broker.enqueue([a_job(clock)])
    [job] = claim(broker)
    withholding = WithholdingBroker(broker, lambda _: None)

    with pytest.raises(Refused, match="settle: this job runs under `penstock debug`"):
        withholding.settle([(job, succeeded())])
    with pytest.raises(Refused, match="claim"):
        claim_for(withholding, a_worker())
