"""`current_job().wait_for_jobs(...)`: a job stops, and runs again when what it queued has ended.

    the call      notes the ids of the jobs, and stops the attempt
    its outcome   one transaction stores the jobs and has this one wait for them (State.WAITING)
    the next      attempt runs the function from its beginning; the call finds the jobs, all of them
                  ended, remembers how, and returns that

Killed before the transaction, no job is stored, and the next attempt notes new ids. After it, the
job is not claimed before they have ended. So none is queued twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from penstock.broker.checks import MOST_BODY_BYTES, legible
from penstock.enqueue.ids import bucket_of, offset_of, prefix_of
from penstock.errors import Refused, WaitsForJobs
from penstock.flows.compose import Jobs, Spawn, spawnable, spawned
from penstock.flows.flow import Flow, Node, member_of
from penstock.job import ENDED, Job, Outcome, Parcel, State

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.run.current import CurrentJob

R = TypeVar("R")

AGAIN_SECONDS = 5.0  # until the next try, if one of the jobs was retried meanwhile
_QUEUED, _STEP = "jobs", "step"  # kinds of notes
_ENDED = "wait_for_jobs "  # how the name of the step begins: step() may use the same name


_NULL = msgspec.Raw(b"null")


class _Queued(msgspec.Struct, frozen=True, array_like=True):
    """What was asked for together: a job, or the jobs of a map."""

    node: str
    task: str
    members: tuple[tuple[str, int], ...]  # the first id, and how many follow on from it

    def ids(self) -> list[str]:
        return [
            f"{prefix_of(first)}{offset:03x}"
            for first, count in self.members
            for offset in range(offset_of(first), offset_of(first) + count)
        ]


class _Ended(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a job ended, as a note of the one that waited."""

    id: str
    task: str
    state: State | None
    reason: str | None = None
    error: str | None = None
    result: msgspec.Raw = _NULL  # null: it returned nothing, or that is not kept


_read_queued = msgspec.json.Decoder(tuple[_Queued, ...]).decode
_read_ended = msgspec.json.Decoder(list[_Ended]).decode


class EndedJob(Generic[R]):
    """A job that another one waited for, as it ended."""

    __slots__ = ("_app", "_ended")

    def __init__(self, app: App, ended: _Ended) -> None:
        self._app = app
        self._ended = ended

    def __repr__(self) -> str:
        return f"<job {self.id}, {self.state or 'not kept any more'}>"

    @property
    def id(self) -> str:
        return self._ended.id

    @property
    def state(self) -> State | None:
        """SUCCEEDED, FAILED or CANCELLED; None if the job is not kept any more."""
        return self._ended.state

    def result(self) -> R:
        """What it returned; else JobFailed, JobCancelled or ResultGone, as of a handle."""
        from penstock.enqueue.handle import result_of

        told = self._ended
        if told.state is None:
            return result_of(self._app, told.id, None)
        result = bytes(told.result)
        job = Job[Any](
            id=told.id,
            task=told.task,
            state=told.state,
            reason=told.reason,
            error=told.error,
            result=None if result == _NULL else result,
        )
        return result_of(self._app, told.id, job)


class Waits(msgspec.Struct, frozen=True):
    """What this attempt waits for: jobs to be stored; none if they are stored already."""

    jobs: tuple[Any, ...] = ()  # Job or Jobs


def wait_for_jobs(app: App, current: CurrentJob, name: str, jobs: Any) -> list[EndedJob[Any]]:
    """How these jobs ended; raises WaitsForJobs if they have not."""
    name = legible(name)  # as the notes are stored
    for note in current.ask(lambda: app.broker.notes(current.id, _STEP)):
        if note.name == _ENDED + name:
            return [EndedJob(app, ended) for ended in _read_ended(note.value)]
    queued = next(
        (
            _read_queued(note.value)
            for note in current.ask(lambda: app.broker.notes(current.id, _QUEUED))
            if note.name == name
        ),
        (),
    )
    if not queued or (ended := _ends_of(app, current, queued)) is None:
        _check(current)
        asked = spawnable(jobs)
        app.make_final(asked, bucket=bucket_of(current.id))
        queued = tuple(_queued(each) for each in asked)
        queued = tuple(each for each in queued if each.members)
        if not queued:
            return []
        current.notebook.write(_QUEUED, name, msgspec.json.encode(queued))
        current.waits = Waits(asked)
        raise WaitsForJobs(name)
    if any(each.state not in {None, *ENDED} for each in ended):
        current.waits = Waits()
        raise WaitsForJobs(name)
    encoded = msgspec.json.encode(ended)
    if len(encoded) <= MOST_BODY_BYTES:  # else they are read again, as long as they are kept
        current.notebook.write(_STEP, _ENDED + name, encoded)
    return [EndedJob(app, each) for each in ended]


def _check(current: CurrentJob) -> None:
    job = current.job
    if job.at_most_once:
        raise Refused(
            f"wait_for_jobs: {job.task} is at_most_once, and a job that waits is started again when"
            " the others have ended; leave at_most_once out, or let spawn(then=...) follow on them"
        )
    member = member_of(job.body)
    if member is not None and member.node != job.id:
        raise Refused(
            f"wait_for_jobs: job {job.id} is one of a map, and a map is made ready as a whole; "
            "enqueue it by itself, or hand the outputs on to another task"
        )
    if current.open_transaction is not None:
        raise Refused("wait_for_jobs: this job's transaction() is open; wait before the block")


def _queued(source: Job[Any] | Jobs[Any]) -> _Queued:
    parts: Sequence[Job[Any] | Parcel] = source.parts if isinstance(source, Jobs) else [source]
    members = tuple(
        (part.id, len(part.bodies) if isinstance(part, Parcel) else 1) for part in parts
    )
    return _Queued(source.id, source.task, members)


def _ends_of(app: App, current: CurrentJob, queued: Iterable[_Queued]) -> list[_Ended] | None:
    """The jobs as they are now; None if they were never stored."""
    broker = app.broker
    tasks = {id: each.task for each in queued for id in each.ids()}
    jobs = current.ask(lambda: broker.get_many(list(tasks)))
    # Pruned or deleted, or never stored? Their nodes are kept as long as this job has not ended.
    if not jobs and not current.ask(lambda: broker.outputs(next(iter(queued)).node)):
        return None
    return [_as_it_is(id, task, jobs.get(id)) for id, task in tasks.items()]


def _as_it_is(id: str, task: str, job: Job[Any] | None) -> _Ended:
    if job is None:
        return _Ended(id, task, None)
    result = _NULL if job.result is None else msgspec.Raw(job.result)
    return _Ended(id, task, job.state, job.reason, job.error, result)


def outcome_of_waiting(
    current: CurrentJob, now: float
) -> tuple[Outcome, tuple[Job[Any] | Parcel, ...]]:
    """Where an attempt leads that waits, without the jobs that are stored with it; and these."""
    job, waits = current.job, current.waits
    if waits is None or not waits.jobs:
        outcome = Outcome(State.READY, "jobs", run_at=now + AGAIN_SECONDS)
        stored: tuple[Job[Any] | Parcel, ...] = ()
    else:
        member = member_of(job.body)
        joins = job.id if member is None else member.id
        stored, flow = spawned([Spawn(waits.jobs, None)], joins)
        outcome = Outcome(State.WAITING, "jobs", flow=_with_own_node(job, waits, flow))
    return msgspec.structs.replace(outcome, started_at=current.started_at, ended_at=now), stored


def _with_own_node(job: Job[Any], waits: Waits, flow: Flow | None) -> Flow | None:
    """The flow of the jobs, with the node of the one that waits as its last."""
    if flow is None:
        return None
    needs = tuple(each.id for each in waits.jobs if _queued(each).members)
    own = Node(id=job.id, task=job.task, members=((job.id, 1),), needs=needs, on_failure="continue")
    return msgspec.structs.replace(flow, nodes=(*flow.nodes, own))
