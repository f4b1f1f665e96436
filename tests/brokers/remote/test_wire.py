"""Values, verbs and errors of the broker protocol on their way to a manager and back."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from penstock import errors
from penstock.broker import wire
from penstock.broker.protocol import Broker
from penstock.broker.wire_verbs import VERBS
from penstock.brokers.remote.broker import failure_in
from penstock.errors import PenstockError, Refused, StoreUnreachable
from penstock.flows.flow import Flow, Node
from penstock.job import Fault, Job, Lane, Outcome, Parcel, State
from penstock.manager.store_service import failure_of

ROOT = Path(__file__).parents[3]
PROTO = ROOT / "proto" / "penstock" / "v1"
CONTRACT = "penstock/manager/contract"
SAMPLES = [
    errors.PenstockError("a sentence"),
    errors.Refused("a sentence"),
    errors.MissingRight("a sentence"),
    errors.StoreFull("a sentence"),
    errors.StoreUnreachable("a sentence"),
    errors.WrongUrl("a sentence"),
    errors.SchemaTooNew("a sentence"),
    errors.StaleLease("a sentence"),
    errors.UnknownOutcome("a sentence", [Job(task="mail:send")]),
    errors.JobFailed("some-job", "error", "ValueError: no\n  ..."),
    errors.JobCancelled("some-job", "needs"),
    errors.ResultGone("a sentence"),
    errors.RetryLater(5, "a sentence"),
    errors.ProcessDied("a sentence"),
    errors.JobTimeout("a sentence"),
    errors.JobInterrupted("a sentence"),
    errors.WaitsForJobs("a sentence"),
]


def test_the_messages_are_what_the_contract_makes(tmp_path):
    made = [sys.executable, "-m", "grpc_tools.protoc", "-I", f"{CONTRACT}=proto/penstock/v1"]
    protos = [f"proto/penstock/v1/{path.name}" for path in PROTO.glob("*.proto")]
    subprocess.run(
        [*made, f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *protos],
        check=True,
        cwd=ROOT,
    )

    there = {path.name: path.read_text() for path in (tmp_path / CONTRACT).iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "src" / CONTRACT).glob("*_pb2.py*")}
    assert kept == there  # else: make proto


def test_every_class_of_error_is_in_the_samples():
    classes = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }

    assert {type(error) for error in SAMPLES} == classes


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_itself(error):
    jobs = [Job(task="mail:send")]

    arrived = failure_in(failure_of(error, "enqueue"), jobs)

    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    expected = vars(error) | ({"jobs": jobs} if isinstance(error, errors.UnknownOutcome) else {})
    assert vars(arrived) == expected


def test_an_error_of_a_store_arrives_as_what_callers_may_catch():
    class StoreBusy(StoreUnreachable):
        """As a broker has for itself."""

    arrived = wire.from_failure(wire.to_failure(StoreBusy("locked; try again")))

    assert type(arrived) is StoreUnreachable
    assert str(arrived) == "locked; try again"


def test_an_error_that_is_none_of_ours_names_itself():
    arrived = wire.from_failure(wire.to_failure(ZeroDivisionError("by zero")))

    assert type(arrived) is PenstockError
    assert "ZeroDivisionError: by zero" in str(arrived)


@pytest.mark.parametrize("kind", ["Newer", "headline", "Any", "annotations", ""])
def test_no_message_names_anything_but_an_error(kind):
    assert type(wire.from_failure(wire.Failure(kind, "a sentence"))) is PenstockError


def test_every_verb_and_argument_of_the_protocol_has_a_form():
    local = {"wait", "wake", "close", "scan"}  # streams, or of this process
    verbs = {
        name: member
        for base in Broker.__mro__
        for name, member in vars(base).items()
        if inspect.isfunction(member) and not name.startswith("_") and name not in local
    }

    assert verbs.keys() == VERBS.keys() - {
        *("digest_key", "sealed_apps", "mark_sealed", "rules_version")  # traits
    }
    for name, verb in verbs.items():
        declared = inspect.signature(verb).parameters.keys() - {"self", "connection"}
        assert set(VERBS[name].arguments.__struct_fields__) == declared, name


def test_jobs_of_this_process_travel_without_it():
    class ByApp:
        """What no message can hold."""

    job = Job(task="mail:send", owner=ByApp(), given=ByApp(), provisional=ByApp())

    [piece] = msgspec.msgpack.decode(wire.encode(wire.to_pieces([job])), type=list[wire.Piece])

    assert piece.job == msgspec.structs.replace(job, owner=None, given=None, provisional=None)


def test_what_a_job_spawned_travels_with_its_outcome():
    parcel = Parcel("00000000-0000-7000-8000-000000000000", Lane("default", "mail:send"), [b"{}"])
    child = Job(task="mail:send")
    flow = Flow(id=child.id, nodes=(Node(id=child.id, task="mail:send", members=((child.id, 1),)),))
    outcome = Outcome(
        State.SUCCEEDED, spawned=(child, parcel), flow=flow, fault=Fault("ValueError", "here")
    )
    held = Job(task="mail:plan", attempt=1, lease=(7, 3, b"raw"))

    sent = wire.encode(wire.to_ended([(held, outcome)]))
    [arrived] = wire.from_ended(wire.decode(sent, list[wire.Ended]))

    # No store keeps a fault.
    assert arrived == (held, msgspec.structs.replace(outcome, fault=None))
    assert type(arrived[0].lease) is tuple


def test_an_argument_that_a_manager_does_not_know_is_refused():
    """Left out, it would change what the call means."""
    with pytest.raises(Refused, match="also_this"):
        wire.decode(wire.encode({"job_id": "x", "also_this": 1}), VERBS["get"].arguments)


def test_a_text_that_has_no_form_is_named():
    with pytest.raises(Refused, match=r"task 'a\\ud800b': a lone surrogate"):
        wire.encode({"jobs": wire.to_pieces([Job(task="a\ud800b")])})
