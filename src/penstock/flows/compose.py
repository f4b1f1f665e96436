"""Flows as people write them: outputs as arguments, maps, groups and chains.

    access = check.job(user=62)                             a Job: a value, not stored yet
    rewards = reward.map(platforms, access=access.output)   Jobs: one per platform
    finish.job(rewards.output).enqueue()                    all of it is stored, or nothing

Until they are enqueued jobs only point at those that they need; `flow_of` makes of that what a
store keeps. The same values always make the same flow, so that sending it again is safe.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    overload,
)

import msgspec

from penstock.errors import Refused, UnknownOutcome
from penstock.flows.flow import Fill, Flow, Member, Node, OnFailure, check_flow
from penstock.flows.outputs import Output, Path
from penstock.job import Job, Parcel, count_jobs

if TYPE_CHECKING:
    from penstock.enqueue.handle import Handle
    from penstock.task.options import Prepared

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Given(msgspec.Struct, frozen=True):
    """What other jobs give to a job, or to each of a map."""

    needs: tuple[Any, ...]  # Job or Jobs
    fills: tuple[tuple[Fill, ...], ...]  # one for all of them, or one for each
    on_failure: OnFailure | None = None  # None: as the flow says


class Jobs(Generic[R]):
    """The jobs of a map, one per item; who needs their output waits for all of them."""

    __slots__ = ("final", "given", "id", "owner", "parts", "provisional", "task")

    def __init__(
        self,
        owner: Any,
        task: str,
        id: str,
        parts: Sequence[Job[Any] | Parcel],
        given: Given | None,
        *,
        provisional: Any = None,
    ) -> None:
        self.owner = owner  # these three as a Job's
        self.final: str | None = None
        self.task = task
        self.id = id
        self.parts = parts
        self.given = given
        self.provisional = provisional

    def __repr__(self) -> str:
        return f"<{len(self)} jobs of {self.task}>"

    def __len__(self) -> int:
        return count_jobs(self.parts)

    @property
    def output(self) -> list[R]:
        """What the jobs will return, in the order of the items, as an argument of another job."""
        return cast("list[R]", Output(self, empty=not self.parts))

    def enqueue(self, *, on_failure: OnFailure = "cancel") -> list[Handle[R]]:
        """Store the jobs, and with them every job that they need; a handle for each."""
        return self.owner.enqueue([self], on_failure=on_failure)


class Group(Generic[R]):
    """Some jobs side by side; made by `group(...)`."""

    __slots__ = ("jobs",)

    def __init__(self, jobs: tuple[Job[R], ...]) -> None:
        self.jobs = jobs

    @property
    def output(self) -> list[R]:
        """What the jobs will return, in their order, as an argument of another job."""
        return [job.output for job in self.jobs]

    def enqueue(self, *, on_failure: OnFailure = "cancel") -> list[Handle[R]]:
        """Store all of them, or none, with every job that they need; a handle for each."""
        return self.jobs[0].owner.enqueue(self.jobs, on_failure=on_failure)


class HasOutput(Protocol[R_co]):
    """A Job, the Jobs of a map, or a Group."""

    @property
    def output(self) -> R_co: ...


def group(*jobs: Job[R]) -> Group[R]:
    """Jobs side by side: `group(a, b).output` is the list of their outputs."""
    if not jobs:
        raise Refused("group(): at least one job, as group(task.job(1), task.job(2))")
    return Group(jobs)


@overload
def chain(first: HasOutput[A], second: Prepared[Concatenate[A, ...], B], /) -> Job[B]: ...
@overload
def chain(
    first: HasOutput[A],
    second: Prepared[Concatenate[A, ...], B],
    third: Prepared[Concatenate[B, ...], C],
    /,
) -> Job[C]: ...
@overload
def chain(
    first: HasOutput[A],
    second: Prepared[Concatenate[A, ...], B],
    third: Prepared[Concatenate[B, ...], C],
    fourth: Prepared[Concatenate[C, ...], D],
    /,
) -> Job[D]: ...
@overload
def chain(
    first: HasOutput[A],
    second: Prepared[Concatenate[A, ...], B],
    third: Prepared[Concatenate[B, ...], C],
    fourth: Prepared[Concatenate[C, ...], D],
    fifth: Prepared[Concatenate[D, ...], E],
    /,
) -> Job[E]: ...
def chain(first: Any, /, *tasks: Any) -> Any:
    """One after the other, each task called with what the one before returned; the last job.

    A task may be one with options: `chain(fetch.job(url), clean, store.options(priority=5))`.
    """
    job = first
    for task in tasks:
        if not hasattr(task, "job"):
            raise Refused(f"chain(job, task, ...): tasks follow on the first job, not {task!r}")
        job = task.job(job.output)
    return job


def outputs_among(outputs: Iterable[tuple[Path, Output]]) -> tuple[list[Any], tuple[Fill, ...]]:
    """Whom a job needs for these outputs among its arguments, and what is filled in where."""
    needs: dict[str, Any] = {}
    fills: list[Fill] = []
    for path, output in outputs:
        source = output.source
        if output.empty:
            # Nobody will run there; whom they would have needed is needed all the same.
            needs |= {need.id: need for need in source.given.needs} if source.given else {}
            continue
        needs[source.id] = source
        fills.append(Fill(path, source.id, isinstance(source, Jobs)))
    return list(needs.values()), tuple(fills)


def flow_of(
    enqueued: Sequence[Job[Any] | Jobs[Any] | Parcel],
    on_failure: OnFailure = "cancel",
    joins: str | None = None,
) -> tuple[list[Job[Any] | Parcel], Flow | None]:
    """Everything that is to be stored, needs first, and the flow that joins it, if one does.

    `joins` is a flow that they are to be part of in any case.
    """
    sources = with_needs(enqueued)
    if joins is None and not any(_given(source) for source in sources):
        return [part for source in sources for part in _parts(source)], None
    flow_id = joins or next(first_id(root) for root in enqueued if len(_parts(root)))
    stored: list[Job[Any] | Parcel] = []
    nodes: list[Node] = []
    for source in sources:
        if isinstance(source, Parcel):
            raise Refused("app.enqueue: a parcel cannot be stored together with a flow")
        given = _given(source)
        fills = ((),) if given is None else given.fills
        tails = [
            b',"flow":' + msgspec.json.encode(Member.of(flow_id, source.id, each)) + b"}"
            for each in fills
        ]
        parts = _with_tails(_parts(source), tails)
        stored += parts
        nodes.append(
            Node(
                id=source.id,
                task=source.task,
                members=tuple(
                    (part.id, len(part.bodies) if isinstance(part, Parcel) else 1) for part in parts
                ),
                needs=() if given is None else tuple(need.id for need in given.needs),
                on_failure=(None if given is None else given.on_failure) or on_failure,
            )
        )
    return stored, Flow(id=flow_id, nodes=tuple(nodes))


def spawnable(jobs: object) -> tuple[Any, ...]:
    """The jobs, one by one; what cannot be spawned is refused."""
    if isinstance(jobs, Group):
        jobs = cast("Group[Any]", jobs).jobs
    several = not isinstance(jobs, (Job, Jobs)) and isinstance(jobs, Iterable)
    listed = tuple(cast("Iterable[Any]", jobs if several else (jobs,)))
    for job in listed:
        if not isinstance(job, (Job, Jobs)):
            raise Refused(f"spawn takes jobs, as spawn([task.job(...)]), not {job!r}")
        if isinstance(job, Job) and job.unique is not None:
            raise Refused(f"spawn: job {job.id} of {job.task} has unique=..., which it cannot keep")
    return listed


class Spawn(NamedTuple):
    """What one call of `current_job().spawn(...)` asked for."""

    jobs: tuple[Job[Any] | Jobs[Any], ...]
    then: Job[Any] | None


def spawned(
    spawns: Iterable[Spawn], joins: str | None
) -> tuple[tuple[Job[Any] | Parcel, ...], Flow | None]:
    """What is stored with the success of the job that spawned it, and the flow that it is in.

    `joins` is the flow of that job.
    """
    roots: list[Job[Any] | Jobs[Any]] = []
    for spawn in spawns:
        roots += spawn.jobs
        if spawn.then is not None:
            roots.append(_after(spawn.then, spawn.jobs))
            joins = joins or spawn.then.id
    stored, flow = flow_of(roots, joins=joins)
    if flow is not None:
        check_flow(flow, stored)
    # They may have to travel to another process.
    plain = {"owner": None, "given": None, "provisional": None, "final": None}
    return tuple(
        msgspec.structs.replace(part, **plain) if isinstance(part, Job) else part for part in stored
    ), flow


def _after(job: Job[Any], needs: Iterable[Job[Any] | Jobs[Any]]) -> Job[Any]:
    """The job, which also needs these."""
    given = job.given or Given((), ((),))
    more = {need.id: need for need in (*given.needs, *needs) if len(_parts(need))}
    return msgspec.structs.replace(
        job, given=msgspec.structs.replace(given, needs=tuple(more.values()))
    )


def with_needs(
    enqueued: Sequence[Job[Any] | Jobs[Any] | Parcel],
) -> list[Job[Any] | Jobs[Any] | Parcel]:
    """These and whatever they need, each once, needs first."""
    sources: dict[str, Job[Any] | Jobs[Any] | Parcel] = {}
    # Not by calls of itself: a chain may be longer than the stack.
    stack = [(source, False) for source in reversed(enqueued)]
    while stack:
        source, needs_found = stack.pop()
        if source.id in sources or (isinstance(source, Jobs) and not len(source)):
            continue
        given = _given(source)
        if needs_found or given is None:
            sources[source.id] = source
            continue
        stack.append((source, True))
        stack += [(need, False) for need in reversed(given.needs)]
    return list(sources.values())


def _given(source: Job[Any] | Jobs[Any] | Parcel) -> Given | None:
    return None if isinstance(source, Parcel) else source.given


def _parts(source: Job[Any] | Jobs[Any] | Parcel) -> Sequence[Job[Any] | Parcel]:
    return source.parts if isinstance(source, Jobs) else [source]


def first_id(source: Job[Any] | Jobs[Any] | Parcel) -> str:
    """The id of a job, or of the first of several."""
    return source.parts[0].id if isinstance(source, Jobs) else source.id


def _with_tails(
    parts: Sequence[Job[Any] | Parcel], tails: Sequence[bytes]
) -> list[Job[Any] | Parcel]:
    """The same jobs, with what their bodies say about the flow; one tail is for all of them."""
    each = iter(tails) if len(tails) > 1 else repeat(tails[0])
    return [
        msgspec.structs.replace(part, body=part.body[:-1] + next(each))
        if isinstance(part, Job)
        else Parcel(
            part.id,
            part.lane,
            [body[:-1] + tail for body, tail in zip(part.bodies, each, strict=False)],
        )
        for part in parts
    ]


Named = list[Job[Any] | Jobs[Any] | Parcel]


def to_store(
    named: Named, on_failure: OnFailure, carried: Mapping[str, Any] | None = None
) -> tuple[Flow | None, list[Job[Any] | Parcel], list[Job[Any] | Parcel]]:
    """The flow, if it is one; what is stored; and for what of it there is a handle.

    `carried` is what a named flow has beside its jobs: with it, they are one in any case.
    """
    listed: list[Job[Any] | Parcel] = []
    joined = False
    for job in named:
        if isinstance(job, Jobs):
            listed += job.parts
        else:
            listed.append(job)
        joined = joined or (not isinstance(job, Parcel) and job.given is not None)
    if carried is not None:
        if not listed:
            raise Refused(f"flow {carried['name']}: there is no job in it, and it would never end")
        stored, flow = flow_of(named, on_failure, joins=listed[0].id)
        return flow and msgspec.structs.replace(flow, **carried), stored, listed
    if not joined:
        return None, listed, listed
    stored, flow = flow_of(named, on_failure)
    return flow, stored, listed


@contextmanager
def resent_as(named: Named, flow: Flow | None) -> Generator[None]:
    """Have an UnknownOutcome of a flow hold the jobs as the caller named them, to be sent again.

    The jobs as they are stored no longer know which others they need.
    """
    try:
        yield
    except UnknownOutcome as error:
        if flow is None:
            raise
        raise UnknownOutcome(str(error), named) from error


def named_jobs(jobs: Iterable[Job[Any] | Jobs[Any] | Parcel]) -> Named:
    if isinstance(jobs, (Job, Jobs, Parcel)) or not isinstance(jobs, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
        raise Refused(
            f"enqueue takes a list of jobs, as app.enqueue([task.job(...)]), not {jobs!r}"
        )
    checked = list(jobs)
    for job in checked:
        if not isinstance(job, (Job, Jobs, Parcel)):  # pyright: ignore[reportUnnecessaryIsInstance]  callers without a checker
            raise Refused(f"enqueue takes jobs, made by task.job(...), not {job!r}")
    return checked
