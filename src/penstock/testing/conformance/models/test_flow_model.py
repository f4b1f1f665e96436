"""Model of flows: random flows, ends, retries, signals, spawned jobs; brokers agree with memory.

As test_model, whose operations go on in between, so that parcels are cut, workers die and time
passes while flows are under way.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from penstock.flows.flow import WAIT_TASK, Flow, Member, Node, member_of
from penstock.flows.signals import TAG
from penstock.job import Job, failed, succeeded
from penstock.testing.conformance.factories import a_worker, claim_for
from penstock.testing.conformance.models.agreeing import agree, fewer_apart
from penstock.testing.conformance.models.test_model import MAYBE, Agreement, extras, lanes

SIGNALS = st.sampled_from(["approve", "decline"])
EXAMPLES = 40


class FlowAgreement(Agreement):
    """Flows as well as jobs."""

    def fresh_id(self) -> str:
        [job] = self.neighbours(1, task="mail:send")
        return job.id

    def a_flow(self, data: st.DataObject, joins: str | None = None) -> tuple[Flow, list[Job[Any]]]:
        """One to five nodes, each of which needs some of those before it."""
        parts: list[tuple[str, list[Job[Any]]]] = []
        for _ in range(data.draw(st.integers(1, 5))):
            fields = data.draw(lanes())
            if data.draw(st.integers(0, 4)) == 0:
                parts.append(self.a_wait(data))
                continue
            if data.draw(MAYBE):
                fields |= data.draw(extras(self.clock.now()))
                fields.pop("unique", None)
            count = data.draw(st.sampled_from([0, 0, 1, 2, 5]))  # 0: one job, and no map
            jobs = self.neighbours(count or 1, **fields)
            parts.append((self.fresh_id() if count else jobs[0].id, jobs))
        flow_id = joins or parts[-1][1][0].id
        nodes: list[Node] = []
        stored: list[Job[Any]] = []
        for node_id, jobs in parts:
            before = [node.id for node in nodes]
            place = msgspec.json.encode(Member.of(flow_id, node_id))
            stored += [
                msgspec.structs.replace(job, body=job.body[:-1] + b',"flow":' + place + b"}")
                for job in jobs
            ]
            together = jobs[0].plain
            node = Node(
                id=node_id,
                task=jobs[0].task,
                members=((jobs[0].id, len(jobs)),)
                if together
                else tuple((job.id, 1) for job in jobs),
                needs=tuple(data.draw(st.sets(st.sampled_from(before))))
                if before and jobs[0].task != WAIT_TASK
                else (),
                on_failure=data.draw(st.sampled_from(["cancel", "cancel", "continue"])),
            )
            nodes.append(node)
        return Flow(id=flow_id, nodes=tuple(nodes)), stored

    def a_wait(self, data: st.DataObject) -> tuple[str, list[Job[Any]]]:
        fields: dict[str, Any] = {"task": WAIT_TASK, "tags": {TAG: data.draw(SIGNALS)}}
        if data.draw(MAYBE):
            fields["expires_at"] = self.clock.now() + data.draw(st.sampled_from([10.0, 100.0]))
        jobs = self.neighbours(1, **fields)
        return jobs[0].id, jobs

    @rule(name=SIGNALS)
    def signal(self, name: str) -> None:
        self.both("signal", name, b"3", "ada", "because")

    @rule(data=st.data())
    def enqueue_flow(self, data: st.DataObject) -> None:
        flow, jobs = self.a_flow(data)
        self.both("enqueue", jobs, flow=flow)
        self.sent += jobs
        self.flows.append((flow, jobs))

    @precondition(lambda self: self.flows)
    @rule(pick=st.integers(0, 5))
    def enqueue_flow_again(self, pick: int) -> None:
        flow, jobs = self.flows[pick % len(self.flows)]
        if {job.id for job in jobs} <= {job.id for job in self.sent}:
            self.both("enqueue", jobs, flow=flow)

    @rule(good=st.integers(0, 3), limit=st.integers(1, 8))
    def work(self, good: int, limit: int) -> None:
        """Claim and settle at once, as a quick worker does: what random steps rarely manage."""
        row = a_worker("worker-1", tasks={"mail:send": 2, "mail:sweep": 2}, tags=frozenset({"gpu"}))
        self.both("renew", [row])
        outcome = succeeded(b"1") if good else failed("boom")
        expected = claim_for(self.model, row, None, limit)
        found = {job.id: job for job in claim_for(self.broker, row, None, limit)}
        assert found.keys() == {job.id for job in expected}
        self.clock.advance(seconds=0.25)
        assert self.broker.settle([(found[job.id], outcome) for job in expected]) == (
            self.model.settle([(job, outcome) for job in expected])
        )

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def settle_spawning(self, data: st.DataObject) -> None:
        mine, theirs = data.draw(st.sampled_from(self.claims[-5:]))
        place = member_of(mine.body)
        flow, jobs = self.a_flow(data, None if place is None else place.id)
        outcome = msgspec.structs.replace(succeeded(b"2"), spawned=tuple(jobs), flow=flow)
        self.clock.advance(seconds=0.25)
        [accepted] = self.model.settle([(mine, outcome)])
        assert self.broker.settle([(theirs, outcome)]) == [accepted]
        if accepted:
            self.sent += jobs
            if place is None:
                self.flows.append((flow, jobs))

    @precondition(lambda self: self.flows)
    @rule(pick=st.integers(0, 5), verb=st.sampled_from(["cancel", "retry", "retry", "delete"]))
    def look_after_a_flow(self, pick: int, verb: str) -> None:
        """The whole of it, in one call."""
        _, jobs = self.flows[pick % len(self.flows)]
        self.both("act", verb, [job.id for job in jobs], "ada", "because")

    @property
    def flows(self) -> list[tuple[Flow, list[Job[Any]]]]:
        return self.__dict__.setdefault("_flows", [])

    @invariant()
    def agree_on_flows(self) -> None:
        for flow, _ in self.flows:
            mine, theirs = self.model.flow(flow.id), self.broker.flow(flow.id)
            assert shown(theirs) == shown(mine)
            for node in () if mine is None else mine.nodes:
                assert self.broker.outputs(node.id) == self.model.outputs(node.id)


def shown(row: Any) -> Any:
    """A flow as a caller sees it; the order of nodes that do not need one another is free."""
    if row is None:
        return None
    nodes = {
        node.id: msgspec.structs.replace(node, needs=tuple(sorted(node.needs)))
        for node in row.nodes
    }
    places = {node.id: place for place, node in enumerate(row.nodes)}
    assert all(places[need] < places[node.id] for node in row.nodes for need in node.needs)
    return msgspec.structs.replace(row, nodes=()), nodes


def test_every_broker_agrees_with_memory_about_flows(fresh_broker):
    examples = fewer_apart(fresh_broker, EXAMPLES, 5)
    agree(FlowAgreement, fresh_broker, examples, derandomize=True)
