"""How far a flow is: its jobs added up, and one word for it."""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.filter import as_text
from penstock.flows.flow import FlowRow


class FlowProgress(NamedTuple):
    """The jobs of all nodes together; `bad` ended without success."""

    flow: FlowRow
    find: list[str]  # its properties, NAME=VALUE
    jobs: int
    left: int
    bad: int

    @property
    def state(self) -> str:
        """The job state whose colour a page shows it in."""
        if self.flow.ended_at is None:
            return "running"
        return "failed" if self.bad else "succeeded"

    @property
    def word(self) -> str:
        return {"failed": "not all succeeded"}.get(self.state, self.state)


def flow_progress(flow: FlowRow) -> FlowProgress:
    return FlowProgress(
        flow,
        [f"{name}={as_text(value)}" for name, value in flow.find.items()],
        sum(node.jobs for node in flow.nodes),
        sum(node.jobs_left for node in flow.nodes),
        sum(node.bad for node in flow.nodes),
    )
