"""Flows: how far each is; one of them drawn, from its first jobs to its last; the jobs of a node.

A flow of thousands of nodes is drawn piece by piece: a bounded number of columns at a time, and of
a column a bounded number of boxes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.broker.filter import as_text, words_of
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, levels_of
from penstock.job import State
from penstock.operate.bulk_actions import ACTS
from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.sentences import acted_on_flow, no_such_flow
from penstock.operate.typed_values import pairs_of
from penstock.web.flow_drawing import draw, slowest
from penstock.web.request import Asked, id_in

PAGE = 25
NODES = 100  # of a column, in a list
DEEPEST = 10**9


class Far(NamedTuple):
    """How far a flow is."""

    flow: FlowRow
    find: list[str]
    jobs: int
    left: int
    bad: int

    @property
    def state(self) -> str:
        if self.flow.ended_at is None:
            return "running"
        return "failed" if self.bad else "succeeded"

    @property
    def word(self) -> str:
        if self.flow.ended_at is None:
            return "going on"
        return "not all succeeded" if self.bad else "succeeded"


def show(asked: Asked) -> Response:
    text, after = asked.word("q").strip(), asked.word("after")
    if (id := id_in(text)) is not None:
        return asked.go(f"/flows/{id}")
    name, find, mistake = _asked_for(text)
    page = asked.verbs.flows(name, find, after or None, PAGE) if not mistake else None
    more = None
    if page is not None and page.after is not None:
        more = asked.link("/flows", q=text or None, after=page.after)
    rows_only = asked.request.headers.get("hx-request") == "true" and bool(after)
    return asked.page(
        "flows_rows.html" if rows_only else "flows.html",
        422 if mistake else 200,
        title="Flows",
        cli=_typed(name, find),
        q=text,
        after=after,
        mistake=mistake,
        flows=[] if page is None else [_far(each) for each in page.flows],
        more=more,
    )


def one(asked: Asked) -> Response:
    flow = _flow(asked)
    verbs, first = asked.verbs, asked.number("column", 0, 0, DEEPEST)
    look, drawing = verbs.look_at_flow(flow), draw(flow.nodes, first)
    times = verbs.flow_times(flow, [box.node for box in drawing.boxes])
    part = asked.request.headers.get("hx-request") == "true"
    return asked.page(
        "flow_drawing.html" if part else "flow.html",
        title=f"Flow {flow.name or flow.id}",
        cli=f"penstock flow {flow.id}",
        far=_far(flow),
        flow=flow,
        carried=flow.state if flow.state != b"{}" else None,
        drawing=drawing,
        states={box.node.id: look.state_of(box.node) for box in drawing.boxes},
        awaited=look.awaited,
        times=times,
        slow=slowest({node: took.seconds for node, took in times.items()}),
        failed=[job for jobs in look.failed.values() for job in jobs][:10],
        running=[job for jobs in look.running.values() for job in jobs][:10],
        more=None if drawing.next is None else asked.link(f"/flows/{flow.id}", column=drawing.next),
    )


def column(asked: Asked) -> Response:
    """All nodes of a column, also those that are not drawn."""
    flow, level = _flow(asked), asked.number("level", 0, 0, DEEPEST)
    page = asked.number("page", 1, 1, DEEPEST)
    levels = levels_of(flow.nodes)
    nodes = [node for node in flow.nodes if levels.get(node.id, 0) == level]
    first = (page - 1) * NODES
    here = f"/flows/{flow.id}/column"
    shown = nodes[first : first + NODES]
    look = asked.verbs.look_at_flow(flow)
    return asked.page(
        "flow_column.html",
        title=f"Flow {flow.name or flow.id}, column {level + 1}",
        cli=f"penstock flow {flow.id}",
        flow=flow,
        level=level,
        nodes=shown,
        states={node.id: look.state_of(node) for node in shown},
        all_nodes=len(nodes),
        first=first,
        before=asked.link(here, level=level, page=page - 1) if page > 1 else None,
        after=asked.link(here, level=level, page=page + 1) if first + NODES < len(nodes) else None,
    )


def node(asked: Asked) -> Response:
    """The jobs of a node."""
    flow, id = _flow(asked), asked.id("node")
    found = next((each for each in flow.nodes if each.id == id), None)
    if found is None:
        raise NotFound(f"The flow {flow.id} has no node {id}.")
    if found.jobs == 1 and asked.verbs.get(id) is not None:  # else a map, of one item
        return asked.go(f"/jobs/{id}")
    text, after = asked.word("state"), asked.word("after")
    if text and text not in set(State):
        raise Refused(f"state {text[:40]!r}: the six are {', '.join(State)}")
    page = asked.verbs.flow_jobs(flow, id, State(text) if text else None, after or None)
    here = f"/flows/{flow.id}/nodes/{id}"
    return asked.page(
        "flow_node.html",
        title=f"{found.task} in flow {flow.name or flow.id}",
        cli=f"penstock flow {flow.id} --json",
        flow=flow,
        node=found,
        look=asked.verbs.look_at_flow(flow).state_of(found),
        state=text,
        states=list(State),
        jobs=page.jobs,
        examined=page.examined,
        after=after,
        arguments=False,
        more=None if page.after is None else asked.link(here, state=text or None, after=page.after),
    )


def acting(verb: str) -> Callable[[Asked], Response]:
    """Cancel, retry or delete all of it."""

    def act(asked: Asked) -> Response:
        reason = asked.form().get("reason", "")
        flow, done = asked.verbs.act_on_flow(verb, asked.id(), reason)
        if not done:
            raise Conflict(acted_on_flow(ACTS[verb], flow, done))
        return asked.go("/flows" if verb == "delete" else f"/flows/{flow}")

    return act


def _flow(asked: Asked) -> FlowRow:
    id = asked.id()
    found = asked.verbs.flow(id)
    if found is None:
        raise NotFound(no_such_flow(id))
    return found


def _asked_for(text: str) -> tuple[str | None, dict[str, str], str]:
    """A name and properties, as `access user=62`; a sentence for what cannot be read."""
    try:
        words = words_of(text)
        names = [word for word in words if "=" not in word]
        if len(names) > 1 or (words and not names):
            raise Refused("write the flow's name, and properties after it: access user=62")
        find = pairs_of([word for word in words if "=" in word], "property")
    except Refused as error:
        return None, {}, str(error)
    return (names[0] if names else None), find, ""


def _typed(name: str | None, find: dict[str, str]) -> str:
    if name is None:
        return "penstock flow ID"
    properties = (["--find", f"{field}={value}"] for field, value in find.items())
    return shlex.join(
        ["penstock", "flow", "--name", name, *(word for each in properties for word in each)]
    )


def _far(flow: FlowRow) -> Far:
    find: dict[str, Any] = dict(flow.find)
    return Far(
        flow,
        [f"{field}={as_text(value)}" for field, value in find.items()],
        sum(node.jobs for node in flow.nodes),
        sum(node.jobs_left for node in flow.nodes),
        sum(node.bad for node in flow.nodes),
    )
