"""Flows in memory: which node waits for which, and what a job's end or its retry changes there.

None of it touches a job or locks. A node is decided once its last need ended: its jobs run, or they
are cancelled. `unmet` holds the needs that are still out, not a number, because a retry can take
back an end, and must not count it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.broker.move import MovedFlow, MovedNode
from penstock.flows.flow import (
    Flow,
    FlowPage,
    FlowRow,
    Node,
    NodeRow,
    event_of,
    in_order,
    member_of,
)
from penstock.flows.state import found_by, merged, state_at, state_end
from penstock.job import Job


@dataclass(eq=False)
class StoredNode:
    """A node, and how far it got."""

    node: Node
    flow: str
    unmet: set[str]
    jobs_left: int
    freed: bool  # decided, and its jobs may run; this stands, whatever becomes of its needs
    bad: int = 0
    wanted_by: list[str] = field(default_factory=list[str])  # ids of nodes that need it

    def row(self) -> NodeRow:
        node = self.node
        return NodeRow(
            id=node.id,
            flow=self.flow,
            task=node.task,
            jobs=node.jobs,
            needs=node.needs,
            needs_left=len(self.unmet),
            jobs_left=self.jobs_left,
            bad=self.bad,
            on_failure=node.on_failure,
        )


@dataclass
class StoredFlow:
    """A flow, and how much of it is left."""

    flow: Flow
    nodes: tuple[str, ...]  # ids; those that were spawned come after the flow's own
    created_at: float
    jobs_left: int
    ended_at: float | None = None
    state_until: float | None = None


class MemoryFlows:
    """Every flow that is stored, by its id, and every node.

    `says` writes down what the history is to say of a flow: its id, and the event's data.
    """

    def __init__(
        self,
        says: Callable[[str, bytes], None],
        flows: MutableMapping[str, StoredFlow],
        nodes: MutableMapping[str, StoredNode],
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self._flows = flows
        self._nodes = nodes
        self._says = says

    def __len__(self) -> int:
        return len(self._flows) + len(self._nodes)

    def add(
        self, flow: Flow, now: float, parent: StoredNode | None = None, *, waits: bool = False
    ) -> None:
        """Store a flow; or, spawned by a job of the node `parent`, more of the flow it is in.

        `waits`: the last node is that of the job itself, which may be stored already.
        """
        own = flow.nodes[-1] if waits and flow.nodes[-1].id in self._nodes else None
        if own is not None:
            flow = msgspec.structs.replace(flow, nodes=flow.nodes[:-1])
        new = flow.id not in self._flows
        kept = self._flows.setdefault(flow.id, StoredFlow(flow, (), now, 0))
        if new:
            kept.state_until = state_end(flow.state_ttl, now)
        kept.nodes += tuple(node.id for node in flow.nodes)
        kept.jobs_left += sum(node.jobs for node in flow.nodes)
        kept.ended_at = None
        for node in flow.nodes:
            unmet = set(node.needs)
            self._nodes[node.id] = StoredNode(node, flow.id, unmet, node.jobs, freed=not unmet)
        for node in flow.nodes:
            for need in dict.fromkeys(node.needs):
                self._nodes[need].wanted_by.append(node.id)
        last = [node.id for node in flow.nodes if not self._nodes[node.id].wanted_by]
        for after in [] if parent is None else self._wanting(parent):
            if not after.freed:
                self._need_more(after, last)
        if own is not None:
            waiting = self._nodes[own.id]
            waiting.freed = False
            waiting.node = msgspec.structs.replace(waiting.node, on_failure="continue")
            self._need_more(waiting, own.needs)
        if new:
            self.tell(flow.id, "queued")

    def _need_more(self, stored: StoredNode, needs: Sequence[str]) -> None:
        stored.unmet |= set(needs)
        stored.node = msgspec.structs.replace(stored.node, needs=(*stored.node.needs, *needs))
        for need in needs:
            self._nodes[need].wanted_by.append(stored.node.id)

    def node_of(self, job: Job[Any]) -> StoredNode | None:
        """The node that the job is in, if it is in one that is known."""
        member = member_of(job.body)
        return None if member is None else self._nodes.get(member.node)

    def count_end(self, stored: StoredNode, now: float, *, good: bool) -> list[StoredNode]:
        """One job of the node has ended; returns the nodes that are decided by it."""
        stored.jobs_left -= 1
        stored.bad += not good
        kept = self._flows[stored.flow]
        kept.jobs_left -= 1
        if not kept.jobs_left:
            kept.ended_at = now
            self.tell(stored.flow, "ended", bad=sum(self._nodes[node].bad for node in kept.nodes))
        return [] if stored.jobs_left else self._met(stored)

    def _met(self, stored: StoredNode) -> list[StoredNode]:
        """All jobs of the node have ended; returns the nodes that are decided by it."""
        decided: list[StoredNode] = []
        for after in self._wanting(stored):
            if stored.node.id in after.unmet:
                after.unmet.remove(stored.node.id)
                if not after.unmet:
                    after.freed = after.node.on_failure == "continue" or not any(
                        need.bad for need in self._needs(after)
                    )
                    decided.append(after)
        return decided

    def take_back_end(self, stored: StoredNode) -> list[StoredNode]:
        """An ended job is to run again; returns the nodes that wait again because of it."""
        reopened = stored.jobs_left == 0
        stored.jobs_left += 1
        stored.bad -= 1
        kept = self._flows[stored.flow]
        kept.jobs_left += 1
        kept.ended_at = None
        if not stored.freed and not stored.unmet:
            # It was cancelled because of these, and waits for them now.
            stored.unmet = {need.node.id for need in self._needs(stored) if need.bad}
        if not reopened:
            return []
        waiting = [after for after in self._wanting(stored) if not after.freed]
        for after in waiting:
            after.unmet.add(stored.node.id)
        return waiting

    def _wanting(self, stored: StoredNode) -> list[StoredNode]:
        return [self._nodes[node] for node in stored.wanted_by]

    def _needs(self, stored: StoredNode) -> Iterator[StoredNode]:
        return (self._nodes[need] for need in stored.node.needs)

    def needs_of(self, job: Job[Any]) -> list[NodeRow]:
        """What a waiting job still waits for."""
        stored = self.node_of(job)
        if stored is None:
            return []
        return [self._nodes[need].row() for need in stored.node.needs if need in stored.unmet]

    def flow(self, flow_id: str) -> FlowRow | None:
        kept = self._flows.get(flow_id)
        if kept is None:
            return None
        flow = kept.flow
        return FlowRow(
            id=flow.id,
            name=flow.name,
            find=flow.find,
            state=state_at(flow.state, kept.state_until, self._now()),
            state_ttl=flow.state_ttl,
            state_until=kept.state_until,
            created_at=kept.created_at,
            ended_at=kept.ended_at,
            nodes=tuple(in_order([self._nodes[node].row() for node in kept.nodes])),
        )

    def tell(self, flow_id: str, says: str, **more: object) -> None:
        """The history says this of the flow as a whole."""
        kept = self._flows[flow_id]
        jobs = sum(self._nodes[node].node.jobs for node in kept.nodes)
        self._says(flow_id, event_of(says, jobs, kept.flow.name, kept.flow.find, **more))

    def page(
        self, name: str | None, find: Mapping[str, str], after: str | None, limit: int
    ) -> FlowPage:
        """Flows that are found by these, newest id first."""
        found: list[FlowRow] = []
        for flow_id in sorted(self._flows, reverse=True):
            flow = self._flows[flow_id].flow
            if name not in {None, flow.name} or (after is not None and flow_id >= after):
                continue
            if found_by(flow.find, find) and (row := self.flow(flow_id)) is not None:
                if len(found) == limit:
                    return FlowPage(found, found[-1].id)
                found.append(row)
        return FlowPage(found)

    def merge(self, job: Job[Any], patch: bytes, now: float) -> bool:
        """Merge into the state of the flow that the job is in; False if there is none."""
        node = self.node_of(job)
        if node is None:
            return False
        kept = self._flows[node.flow]
        before = state_at(kept.flow.state, kept.state_until, now)
        kept.flow = msgspec.structs.replace(kept.flow, state=merged(before, patch))
        kept.state_until = state_end(kept.flow.state_ttl, now)
        return True

    def ids(self, flow_id: str) -> list[str]:
        """Every job of a flow; none if it is not known."""
        kept = self._flows.get(flow_id)
        nodes = () if kept is None else kept.nodes
        return [job_id for node in nodes for job_id in self._nodes[node].node.ids()]

    def cannot_come_good(self, stored: StoredNode, kept: Callable[[Node], int]) -> bool:
        """Whether the node was cancelled because of jobs that are gone, and cannot be retried.

        `kept` counts the jobs of a node that are there, and ended without success.
        """
        asked = [stored]
        for node in asked:  # grows; no call of itself: a chain may be longer than the stack
            if node.freed or node.unmet:
                continue
            for need in self._needs(node):
                if need.bad and not need.jobs_left and need not in asked:
                    if kept(need.node) < need.bad:
                        return True
                    asked.append(need)
        return False

    def give_up(self, stored: StoredNode) -> list[StoredNode]:
        """A job of this node, ended badly, is gone; returns who is decided, and need not wait."""
        return [] if stored.jobs_left else self._met(stored)

    def forget(self, flow_id: str) -> None:
        for node in self._flows.pop(flow_id).nodes:
            del self._nodes[node]

    def node(self, node_id: str) -> Node | None:
        stored = self._nodes.get(node_id)
        return None if stored is None else stored.node

    def forget_states(self, now: float) -> None:
        """Delete the states whose time is over."""
        for kept in self._flows.values():
            self._forget_state(kept, now)

    @staticmethod
    def _forget_state(kept: StoredFlow, now: float) -> None:
        if state_at(kept.flow.state, kept.state_until, now) is not kept.flow.state:
            kept.flow = msgspec.structs.replace(kept.flow, state=b"{}")
            kept.state_until = None

    def forget_ended(self, before: float) -> None:
        for flow_id, kept in list(self._flows.items()):
            if kept.ended_at is not None and kept.ended_at < before:
                self.forget(flow_id)

    # Moving to another shard

    def take_out(self, leaves: Callable[[str], bool]) -> list[MovedFlow]:
        """Forget the flows whose ids leave; what has to be known of them elsewhere."""
        leaving = [flow_id for flow_id in self._flows if leaves(flow_id)]
        found = [self._moved(self._flows[flow_id]) for flow_id in leaving]
        for flow_id in leaving:
            self.forget(flow_id)
        return found

    def _moved(self, kept: StoredFlow) -> MovedFlow:
        nodes = [self._nodes[node] for node in kept.nodes]
        return MovedFlow(
            id=kept.flow.id,
            name=kept.flow.name,
            find=kept.flow.find,
            state=kept.flow.state,
            state_ttl=kept.flow.state_ttl,
            state_until=kept.state_until,
            created_at=kept.created_at,
            ended_at=kept.ended_at,
            jobs_left=kept.jobs_left,
            nodes=tuple(
                MovedNode(
                    id=stored.node.id,
                    task=stored.node.task,
                    members=stored.node.members,
                    needs=tuple((need, need not in stored.unmet) for need in stored.node.needs),
                    on_failure=stored.node.on_failure,
                    jobs_left=stored.jobs_left,
                    bad=stored.bad,
                    freed=stored.freed,
                )
                for stored in nodes
            ),
        )

    def bring_in(self, moved: MovedFlow) -> None:
        """Store a flow as it was elsewhere."""
        nodes = [
            Node(
                id=each.id,
                task=each.task,
                members=each.members,
                needs=tuple(need for need, _ in each.needs),
                on_failure="continue" if each.on_failure == "continue" else "cancel",
            )
            for each in moved.nodes
        ]
        flow = Flow(
            id=moved.id,
            nodes=tuple(nodes),
            name=moved.name,
            find=moved.find,
            state=moved.state,
            state_ttl=moved.state_ttl,
        )
        self._flows[moved.id] = StoredFlow(
            flow,
            tuple(node.id for node in nodes),
            moved.created_at,
            moved.jobs_left,
            moved.ended_at,
            moved.state_until,
        )
        for node, each in zip(nodes, moved.nodes, strict=True):
            unmet = {need for need, met in each.needs if not met}
            self._nodes[node.id] = StoredNode(
                node, moved.id, unmet, each.jobs_left, each.freed, each.bad
            )
        for node in nodes:
            for need in dict.fromkeys(node.needs):
                self._nodes[need].wanted_by.append(node.id)
