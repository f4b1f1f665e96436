"""The pages of flows: the list, the drawing of one flow, one column of it, the jobs of a node.

A flow of thousands of nodes is drawn piece by piece: a bounded number of columns at a time, with a
bounded number of boxes each.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from starlette.responses import Response

from penstock.broker.filter import words_of
from penstock.errors import Refused
from penstock.flows.flow import FlowRow, levels_of
from penstock.job import State
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.flow_progress import flow_progress
from penstock.operate.job_view import spawner_of
from penstock.operate.parse_input import parse_pairs
from penstock.operate.refusals import Conflict, NotFound
from penstock.operate.sentences import flow_acted_text, no_such_flow_text, secrets_gone_count
from penstock.web.flow_drawing import draw, slowest
from penstock.web.request import WebRequest, id_in

PAGE = 25
NODES = 100  # of a column, in a list
DEEPEST = 10**9


def show(request: WebRequest) -> Response:
    text, after = request.word("q").strip(), request.word("after")
    if (id := id_in(text)) is not None:
        return request.go(f"/flows/{id}")
    name, find, mistake = _parse_query(text)
    page = request.store.flows(name, find, after or None, PAGE) if not mistake else None
    more = None
    if page is not None and page.after is not None:
        more = request.link("/flows", q=text or None, after=page.after)
    return request.page(
        "flows_rows.html" if request.is_htmx and after else "flows.html",
        422 if mistake else 200,
        title="Flows",
        cli=_command(name, find),
        q=text,
        after=after,
        mistake=mistake,
        flows=[] if page is None else [flow_progress(flow) for flow in page.flows],
        more=more,
    )


def one(request: WebRequest) -> Response:
    flow = _flow(request)
    store, first = request.store, request.number("column", 0, 0, DEEPEST)
    look, drawing = store.look_at_flow(flow), draw(flow.nodes, first)
    times = store.flow_times(flow, [box.node for box in drawing.boxes])
    return request.page(
        "flow_drawing.html" if request.is_htmx else "flow.html",
        title=f"Flow {flow.name or flow.id}",
        cli=f"penstock flow {flow.id}",
        progress=flow_progress(flow),
        flow=flow,
        carried=flow.state if flow.state != b"{}" else None,
        spawner=spawner_of(store, flow.id),
        drawing=drawing,
        states={box.node.id: look.state_of(box.node) for box in drawing.boxes},
        awaited=look.awaited,
        times=times,
        slow=slowest({node: took.seconds for node, took in times.items()}),
        failed=[job for jobs in look.failed.values() for job in jobs][:10],
        running=[job for jobs in look.running.values() for job in jobs][:10],
        more=None
        if drawing.next is None
        else request.link(f"/flows/{flow.id}", column=drawing.next),
    )


def column(request: WebRequest) -> Response:
    """All nodes of a column, also those that the drawing leaves out."""
    flow, level = _flow(request), request.number("level", 0, 0, DEEPEST)
    page = request.number("page", 1, 1, DEEPEST)
    levels = levels_of(flow.nodes)
    nodes = [node for node in flow.nodes if levels.get(node.id, 0) == level]
    first = (page - 1) * NODES
    here = f"/flows/{flow.id}/column"
    shown = nodes[first : first + NODES]
    look = request.store.look_at_flow(flow)
    return request.page(
        "flow_column.html",
        title=f"Flow {flow.name or flow.id}, column {level + 1}",
        cli=f"penstock flow {flow.id}",
        flow=flow,
        level=level,
        nodes=shown,
        states={node.id: look.state_of(node) for node in shown},
        all_nodes=len(nodes),
        first=first,
        before=request.link(here, level=level, page=page - 1) if page > 1 else None,
        after=request.link(here, level=level, page=page + 1)
        if first + NODES < len(nodes)
        else None,
    )


def node(request: WebRequest) -> Response:
    """The jobs of a node."""
    flow, id = _flow(request), request.id("node")
    found = next((each for each in flow.nodes if each.id == id), None)
    if found is None:
        raise NotFound(f"The flow {flow.id} has no node {id}.")
    if found.jobs == 1 and request.store.get(id) is not None:  # None for a map of one item
        return request.go(f"/jobs/{id}")
    text, after = request.word("state"), request.word("after")
    if text and text not in set(State):
        raise Refused(f"state {text[:40]!r} does not exist; the states are {', '.join(State)}")
    page = request.store.flow_jobs(flow, id, State(text) if text else None, after or None)
    here = f"/flows/{flow.id}/nodes/{id}"
    return request.page(
        "flow_node.html",
        title=f"{found.task} in flow {flow.name or flow.id}",
        cli=f"penstock flow {flow.id} --json",
        flow=flow,
        node=found,
        look=request.store.look_at_flow(flow).state_of(found),
        state=text,
        states=list(State),
        jobs=page.jobs,
        examined=page.examined,
        after=after,
        arguments=False,
        held={},
        choosing=False,
        more=None
        if page.after is None
        else request.link(here, state=text or None, after=page.after),
    )


def action(verb: str) -> Callable[[WebRequest], Response]:
    """Cancel, retry or delete all of it."""

    def act(request: WebRequest) -> Response:
        reason = request.form().get("reason", "")
        flow, result = request.store.act_on_flow(verb, request.id(), reason)
        if not result.done or result.secrets_gone:
            gone = secrets_gone_count(len(result.secrets_gone))
            raise Conflict(flow_acted_text(BULK_VERBS[verb], flow, result.done) + gone)
        return request.go("/flows" if verb == "delete" else f"/flows/{flow}")

    return act


def _flow(request: WebRequest) -> FlowRow:
    id = request.id()
    found = request.store.flow(id)
    if found is None:
        raise NotFound(no_such_flow_text(id))
    return found


def _parse_query(text: str) -> tuple[str | None, dict[str, str], str]:
    """A name and properties from `access user=62`, or a sentence about what is wrong."""
    try:
        words = words_of(text)
        names = [word for word in words if "=" not in word]
        if len(names) > 1 or (words and not names):
            raise Refused("write the flow's name, and properties after it: access user=62")
        find = parse_pairs([word for word in words if "=" in word], "property")
    except Refused as error:
        return None, {}, str(error)
    return (names[0] if names else None), find, ""


def _command(name: str | None, find: dict[str, str]) -> str:
    if name is None:
        return "penstock flow ID"
    properties = (["--find", f"{field}={value}"] for field, value in find.items())
    return shlex.join(
        ["penstock", "flow", "--name", name, *(word for each in properties for word in each)]
    )
