"""A file of jobs: JSON lines that another store, or another program, can read.

    {"penstock": "jobs", "version": 1, "at": "2026-11-19T08:00:00.000000Z"}
    {"job": "0190...", "task": "mail:send", "queue": "mail", "state": "ready", "args": {"to": "a"}}
    {"flow": "0190...", "nodes": [...]}       in front of its jobs
    {"left_out": "0190...", "task": "shop:charge", "why": "..."}
    {"end": 1, "left_out": 1}                 how many; a file without it was cut off

docs/how-to/export-and-import.md describes each field. Every change of it counts the version up.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.enqueue.codec import read_body
from penstock.enqueue.ids import parse_id
from penstock.enqueue.secrets import readable_secrets
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, Node, OnFailure, member_of
from penstock.job import ENDED, Job, State, Unique
from penstock.operate.time_text import time_text
from penstock.operate.to_json import iso

VERSION = 1
OPEN_STATES = tuple(state for state in State if state not in ENDED)
_EMPTY = msgspec.Raw(b"{}")


class FileHead(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line."""

    penstock: str
    version: int
    at: datetime


class JobLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A job that waits, runs or is scheduled; what has its usual value is left out."""

    job: str
    task: str
    queue: str
    state: State
    args: msgspec.Raw
    enqueued_at: datetime | None = None
    run_at: datetime | None = None  # only a time to come
    expires_at: datetime | None = None
    priority: int = 0
    version: int = 1
    app: str = ""
    key: str | None = None
    unique: Unique | None = None
    tags: dict[str, str] = {}
    search: dict[str, str] = {}
    runs_on: tuple[str, ...] = ()
    at_most_once: bool = False
    attempt: int = 0
    failures: int = 0
    lapses: int = 0
    flow: str | None = None
    node: str | None = None
    options: msgspec.Raw = _EMPTY  # what the body says beside the arguments


class NodeLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node of a flow: a job, or all the jobs of a map."""

    id: str
    task: str
    jobs: int
    jobs_left: int  # that have not ended
    needs: tuple[str, ...]
    on_failure: OnFailure


class FlowLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flow of which at least one job has not ended."""

    flow: str
    nodes: tuple[NodeLine, ...]
    name: str = ""
    find: dict[str, Any] = {}
    state: msgspec.Raw = _EMPTY
    state_ttl: float | None = None

    @property
    def untouched(self) -> bool:
        """Whether none of its jobs has ended."""
        return all(node.jobs == node.jobs_left for node in self.nodes)


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is not in the file, or was not taken from it."""

    left_out: str
    task: str
    why: str


class FileEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The last line."""

    end: int  # jobs
    left_out: int


Line = FileHead | JobLine | FlowLine | LeftOut | FileEnd
# By their first field; `left_out` is one of the end, too.
_KINDS: Mapping[str, Any] = {
    "penstock": FileHead,
    "job": JobLine,
    "flow": FlowLine,
    "end": FileEnd,
    "left_out": LeftOut,
}
_DECODERS: Mapping[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()
}
_encode = msgspec.json.Encoder().encode


def encode_line(line: Any) -> bytes:
    return _encode(line) + b"\n"


def head_line(now: float, what: str = "jobs") -> bytes:
    """The first line of a file that is written now."""
    return _encode({"penstock": what, "version": VERSION, "at": iso(now)}) + b"\n"


def job_line(job: Job[Any], now: float) -> JobLine | LeftOut:
    """A job as the file has it; left out where its secrets would be in the file."""
    if names := readable_secrets(job.body):
        why = f"secret arguments are not written into files: {', '.join(sorted(names))}"
        return LeftOut(left_out=job.id, task=job.task, why=why)
    try:
        args = read_body(job.body).args
        fields = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw])
    except (Refused, msgspec.DecodeError) as error:
        return LeftOut(left_out=job.id, task=job.task, why=str(error))
    fields.pop("args")
    try:
        return _job_line(job, args, fields, now)
    except Refused as error:
        return LeftOut(left_out=job.id, task=job.task, why=str(error))


def _job_line(
    job: Job[Any], args: msgspec.Raw, options: Mapping[str, msgspec.Raw], now: float
) -> JobLine:
    member = member_of(job.body)
    later = job.state is not State.RUNNING and job.run_at is not None and job.run_at > now
    return JobLine(
        job=job.id,
        task=job.task,
        queue=job.queue,
        state=job.state,
        args=args,
        enqueued_at=_time(job.enqueued_at),
        run_at=_time(job.run_at) if later else None,
        expires_at=_time(job.expires_at),
        priority=job.priority,
        version=job.version,
        app=job.app,
        key=job.key,
        unique=job.unique,
        tags=dict(job.tags),
        search=dict(job.search),
        runs_on=job.runs_on,
        at_most_once=job.at_most_once,
        attempt=job.attempt,
        failures=job.failures,
        lapses=job.lapses,
        flow=None if member is None else member.id,
        node=None if member is None else member.node,
        options=msgspec.Raw(_encode(options)) if options else _EMPTY,
    )


def flow_line(flow: FlowRow) -> FlowLine:
    return FlowLine(
        flow=flow.id,
        name=flow.name,
        find=dict(flow.find),
        state=msgspec.Raw(flow.state),
        state_ttl=flow.state_ttl,
        nodes=tuple(
            NodeLine(
                id=node.id,
                task=node.task,
                jobs=node.jobs,
                jobs_left=node.jobs_left,
                needs=node.needs,
                on_failure=node.on_failure,
            )
            for node in flow.nodes
        ),
    )


def parse_line(text: bytes) -> Line:
    """One line of a file; refused, without its number, where it is none."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # In this order: the last line has `left_out` as well.
        kind = next((name for name in _KINDS if name in fields), None)
        if kind is None:
            known = ", ".join(_KINDS)
            raise Refused(f"it has none of the fields {known}, by which a line is known")
        return _DECODERS[kind].decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(str(error)) from None


def job_of_line(line: JobLine) -> Job[Any]:
    """The job as it is to be stored; refused if it could not be."""
    options = msgspec.json.decode(line.options, type=dict[str, msgspec.Raw])
    body = _encode({"args": line.args, **options})
    read_body(body)
    return Job(
        task=line.task,
        body=body,
        id=parse_id(line.job),
        queue=line.queue,
        version=line.version,
        priority=line.priority,
        run_at=None if line.run_at is None else line.run_at.timestamp(),
        key=line.key,
        unique=line.unique,
        runs_on=line.runs_on,
        app=line.app,
        tags=line.tags,
        search=line.search,
        expires_at=None if line.expires_at is None else line.expires_at.timestamp(),
        at_most_once=line.at_most_once,
    )


def node_of_line(line: NodeLine, members: tuple[tuple[str, int], ...]) -> Node:
    return Node(
        id=line.id,
        task=line.task,
        members=members,
        needs=line.needs,
        on_failure=line.on_failure,
    )


def _time(at: float | None) -> datetime | None:
    if not at:
        return None
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, OSError, ValueError):
        raise Refused(f"its time, {time_text(at)}, is beyond any calendar") from None
