"""Flows: jobs joined by needs, as values that every store keeps in the same way.

    need --ends--> node --its last need ended--> its jobs are ready --they end--> whoever needs it

A **node** is what others can need: one job, or all the jobs of a map. It counts the needs that have
not ended and the jobs that have not; both counts change in the transaction that settles a job, so
that nothing is freed twice, and nothing waits for ever. A job's body says which node it is in; a
plain job of a map stays plain, and costs the store nothing of its own.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from penstock.enqueue.ids import from_bytes, offset_of, prefix_of, to_bytes
from penstock.errors import Refused
from penstock.flows.state import check_carried
from penstock.job import Job, Parcel, State, count_jobs

OnFailure = Literal["cancel", "continue"]
_TWO_IDS = 32  # bytes

WAIT_TASK = "penstock:wait_for"  # its jobs wait for a signal, and no worker runs them


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """What others can need: one job, or all the jobs of a map."""

    id: str  # of a single job its own id, of a map an id of its own
    task: str
    members: tuple[tuple[str, int], ...]  # the first id, and how many follow on from it
    needs: tuple[str, ...] = ()  # the nodes that must end before its jobs are ready
    # When a need did not succeed: its jobs are cancelled, or run with what there is.
    on_failure: OnFailure = "cancel"

    @property
    def jobs(self) -> int:
        return sum(count for _, count in self.members)

    @property
    def waits(self) -> bool:
        """Whether its jobs are stored as waiting: for what they need, or for a signal."""
        return bool(self.needs) or self.task == WAIT_TASK

    def ids(self) -> list[str]:
        """Its jobs, in their order."""
        return [
            f"{prefix_of(first)}{offset:03x}"
            for first, count in self.members
            for offset in range(offset_of(first), offset_of(first) + count)
        ]


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are stored together."""

    id: str  # the id of the job that was enqueued: the last one
    nodes: tuple[Node, ...]
    name: str = ""
    find: Mapping[str, Any] = {}  # properties that it is found by, see flows.state
    state: bytes = b"{}"  # a JSON object, which its members read and merge into
    # Seconds after which the state is empty again; each merge begins them anew. None: it stays.
    state_ttl: float | None = None

    @property
    def jobs(self) -> int:
        return sum(node.jobs for node in self.nodes)


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it stands in the store."""

    id: str
    flow: str
    task: str
    jobs: int
    needs: tuple[str, ...] = ()
    needs_left: int = 0  # needs that have not ended
    jobs_left: int = 0  # jobs that have not ended
    bad: int = 0  # jobs that ended without success
    on_failure: OnFailure = "cancel"


class FlowRow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it stands in the store."""

    id: str
    name: str = ""
    find: Mapping[str, Any] = {}
    state: bytes = b"{}"
    state_ttl: float | None = None
    state_until: float | None = None  # when it is empty again
    created_at: float = 0.0
    ended_at: float | None = None  # when its last job ended
    nodes: tuple[NodeRow, ...] = ()


class FlowPage(msgspec.Struct, frozen=True):
    """What `flows` found. `after` goes into the next call; None: there is no more."""

    flows: Sequence[FlowRow]
    after: str | None = None


def event_of(
    says: str, jobs: int, name: str = "", find: Mapping[str, Any] | None = None, **more: object
) -> bytes:
    """What the history says of a flow as a whole, in an event of the kind "flow"."""
    named = {"name": name, "find": find or {}} if name else {}
    return msgspec.json.encode({"says": says, "jobs": jobs, **more, **named})


AnyNode = TypeVar("AnyNode", Node, NodeRow)


class JobOutput(msgspec.Struct, frozen=True, gc=False):  # there may be a million of them
    """The output of one member of a node, for whoever needs it."""

    job: str
    state: State | None  # None: the store does not know it any more
    result: bytes | None  # JSON; None without success, or for a task that returns nothing


class Fill(msgspec.Struct, frozen=True, array_like=True):
    """An argument that is another node's output: where it goes, and whose it is."""

    path: tuple[str | int, ...]
    node: str
    many: bool = False  # a list, of all the members' outputs


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job's place in its flow, as its body says (`"flow": {...}`); made by `Member.of`."""

    # Both ids in one short text: every job of a map carries it through all tables. Spelt out they
    # were 110 bytes a job, and cost a tenth of the rate.
    at: str
    fill: tuple[Fill, ...] = ()

    @classmethod
    def of(cls, flow: str, node: str, fill: tuple[Fill, ...] = ()) -> Member:
        """The place in this node of this flow."""
        return cls(urlsafe_b64encode(to_bytes(flow) + to_bytes(node)).decode().rstrip("="), fill)

    @property
    def flow_and_node(self) -> tuple[bytes, bytes]:
        """The flow and the node, as tables keep them; `Refused` for what are no ids."""
        try:
            raw = urlsafe_b64decode(self.at + "=")
        except ValueError:
            raw = b""
        if len(raw) != _TWO_IDS:
            raise Refused(f"{self.at!r} is no place in a flow")
        return raw[:16], raw[16:]

    @property
    def id(self) -> str:
        """Of the flow."""
        return from_bytes(self.flow_and_node[0])

    @property
    def node(self) -> str:
        return from_bytes(self.flow_and_node[1])


class _Body(msgspec.Struct):
    flow: Member | None = None


_read = msgspec.json.Decoder(_Body).decode


def member_of(body: bytes) -> Member | None:
    """The job's place in a flow; None for one that is in none. Quick for those."""
    if b'"flow":' not in body:
        return None
    try:
        member = _read(body).flow
        if member is not None:
            _ = member.flow_and_node
    except (msgspec.DecodeError, UnicodeDecodeError, Refused):
        return None  # unreadable, so it will fail by itself; it was stored by no flow
    return member


def in_flow(body: bytes, flow: str, node: str) -> bytes:
    """The body of a job that is in this flow from now on, unless it is in one already."""
    if member_of(body) is not None:
        return body
    place = msgspec.json.encode(Member.of(flow, node))
    return b"".join((body[:-1], b',"flow":', place, b"}"))


def check_flow(flow: Flow, jobs: Sequence[Job[Any] | Parcel] | None = None) -> None:
    """Refuse what could never end: a need that is not in the flow, or that leads back.

    With `jobs`, the ones that are stored with it: all that it counts on, and none that another
    could stand in for.
    """
    check_carried(flow.name, flow.find, flow.state)
    known = {node.id: node for node in flow.nodes}
    if len(known) < len(flow.nodes):
        raise Refused(f"flow {flow.id}: a node stands in it twice")
    for node in flow.nodes:
        if not node.jobs:
            raise Refused(f"flow {flow.id}: node {node.id} has no job, and would never end")
        if node.needs and node.task == WAIT_TASK:
            raise Refused(
                f"flow {flow.id}: {node.id} waits for a signal, from when it is stored, and so "
                "cannot need other jobs; spawn it in a job that needs them"
            )
        for need in node.needs:
            if need not in known:
                raise Refused(f"flow {flow.id}: it needs {need}, which is not in it")
    if in_circle := known.keys() - levels_of(flow.nodes).keys():
        raise Refused(f"flow {flow.id}: node {min(in_circle)} needs itself, by way of others")
    if jobs is not None:
        _check_members(flow, jobs)


def _check_members(flow: Flow, jobs: Sequence[Job[Any] | Parcel]) -> None:
    counted = flow.jobs
    sent = count_jobs(jobs)
    if counted != sent:
        raise Refused(f"flow {flow.id}: {counted} jobs are in its nodes, but {sent} were sent")
    for job in jobs:
        if isinstance(job, Job) and job.unique is not None:
            raise Refused(
                f"job {job.id} of flow {flow.id}: unique={job.unique.key!r} cannot be in a flow,"
                " which would wait for a job that is not stored when another one stands"
            )


def levels_of(nodes: Sequence[Node | NodeRow]) -> dict[str, int]:
    """How many needs lie before each node, one after the other; without those in a circle."""
    known = {node.id: node for node in nodes}
    left = {node.id: len(set(node.needs) & known.keys()) for node in nodes}
    needed_by: dict[str, list[str]] = {}
    for node in nodes:
        for need in set(node.needs):
            needed_by.setdefault(need, []).append(node.id)
    levels: dict[str, int] = {}
    free = [node for node in left if not left[node]]
    while free:
        node = free.pop()
        levels[node] = 1 + max((levels.get(need, -1) for need in known[node].needs), default=-1)
        for after in needed_by.get(node, ()):
            left[after] -= 1
            if not left[after]:
                free.append(after)
    return levels


def in_order(nodes: Sequence[AnyNode]) -> list[AnyNode]:
    """Needs before those who need them; else as they came."""
    levels = levels_of(nodes)
    return sorted(nodes, key=lambda node: levels.get(node.id, 0))
