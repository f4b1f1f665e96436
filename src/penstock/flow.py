"""Flows: jobs joined by needs, as values that every store keeps in the same way.

    need --ends--> node --its last need ended--> its jobs are ready --they end--> whoever needs it

A **node** is what others can need: one job, or all the jobs of a map. It counts the needs that have
not ended and the jobs that have not; both counts change in the transaction that settles a job, so
that nothing is freed twice, and nothing waits for ever. A job's body says which node it is in; a
plain job of a map stays plain, and costs the store nothing of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.errors import Refused
from penstock.job import State

OnFailure = Literal["cancel", "continue"]


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


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that are stored together."""

    id: str  # the id of the job that was enqueued: the last one
    nodes: tuple[Node, ...]
    name: str = ""
    find: Mapping[str, str] = {}  # properties that it is found by
    state: bytes = b"{}"  # JSON, which its members read and merge into


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
    find: Mapping[str, str] = {}
    state: bytes = b"{}"
    created_at: float = 0.0
    ended_at: float | None = None  # when its last job ended
    nodes: tuple[NodeRow, ...] = ()


class Gift(msgspec.Struct, frozen=True):
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
    """A job's place in its flow, as its body says (`"flow": {...}`)."""

    id: str  # of the flow
    node: str
    fill: tuple[Fill, ...] = ()


class _Body(msgspec.Struct):
    flow: Member | None = None


_read = msgspec.json.Decoder(_Body).decode


def member_of(body: bytes) -> Member | None:
    """The job's place in a flow; None for one that is in none. Quick for those."""
    if b'"flow":' not in body:
        return None
    try:
        return _read(body).flow
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # unreadable, so it will fail by itself; it was stored by no flow


def check_flow(flow: Flow) -> None:
    """Refuse what could never end: a need that is not in the flow, or that leads back."""
    known = {node.id: node for node in flow.nodes}
    if len(known) < len(flow.nodes):
        raise Refused(f"flow {flow.id}: a node stands in it twice")
    done: set[str] = set()
    for start in known:
        path: list[str] = []
        stack = [(start, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.pop()
                done.add(node)
                continue
            if node in done:
                continue
            if node in path:
                raise Refused(f"flow {flow.id}: node {node} needs itself, by way of others")
            if node not in known:
                raise Refused(f"flow {flow.id}: it needs {node}, which is not in it")
            path.append(node)
            stack.append((node, True))
            stack += [(need, False) for need in known[node].needs]
