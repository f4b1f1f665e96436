"""Model of whole flows: named, merged into, found, cancelled, retried and deleted at random.

As test_flow_model, whose operations go on in between; every broker agrees with memory.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from penstock.broker.views import Note
from penstock.testing.conformance.models.agreeing import agree, fewer_apart
from penstock.testing.conformance.models.test_flow_model import FlowAgreement, shown

STEPS = 30
EXAMPLES = 40


class WholeFlowAgreement(FlowAgreement):
    """Flows as a whole."""

    @rule(data=st.data(), user=st.integers(1, 2), roles=st.lists(st.sampled_from("ab")))
    def enqueue_named(self, data: st.DataObject, user: int, roles: list[str]) -> None:
        flow, jobs = self.a_flow(data)
        find = {"user": user, "role": roles}
        flow = msgspec.structs.replace(flow, name="access", find=find, state=b'{"a":{"b":1}}')
        self.both("enqueue", jobs, flow=flow)
        self.sent += jobs
        self.flows.append((flow, jobs))

    @precondition(lambda self: self.flows)
    @rule(pick=st.integers(0, 5), verb=st.sampled_from(["cancel", "retry", "retry", "delete"]))
    def whole_flow(self, pick: int, verb: str) -> None:
        flow, _ = self.flows[pick % len(self.flows)]
        self.clock.advance(seconds=0.25)
        mine = self.model.act(verb, (), "ada", "because", flow=flow.id)
        theirs = self.broker.act(verb, (), "ada", "because", flow=flow.id)
        assert sorted(theirs) == sorted(mine), verb

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        patch=st.sampled_from([{"a": {"c": 2}}, {"a": 1}, {"d": {"e": {"f": None}}}, {}]),
    )
    def merge(self, data: st.DataObject, patch: dict[str, Any]) -> None:
        mine, theirs = data.draw(st.sampled_from(self.claims[-5:]))
        self.clock.advance(seconds=0.25)
        note = Note("state", "", msgspec.json.encode(patch), self.clock.now())
        assert self.broker.note(theirs, note) == self.model.note(mine, note)

    @invariant()
    def agree_on_what_is_found(self) -> None:
        if not hasattr(self, "broker"):
            return
        for name, find in ((None, {}), ("access", {}), ("access", {"user": "1", "role": "a"})):
            mine = self.model.flows(name, find, limit=2)
            theirs = self.broker.flows(name, find, limit=2)
            assert [shown(row) for row in theirs.flows] == [shown(row) for row in mine.flows]
            assert theirs.after == mine.after


def test_every_broker_agrees_with_memory_about_whole_flows(fresh_broker):
    examples = fewer_apart(fresh_broker, EXAMPLES, 10)
    agree(WholeFlowAgreement, fresh_broker, examples, steps=STEPS, derandomize=True)
