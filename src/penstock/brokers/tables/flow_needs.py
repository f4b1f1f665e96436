"""Flows in tables: what the end or the retry of a job changes for the nodes that need it.

A change collects the ends per node. Here nodes are counted down, a statement per node however many
jobs ended, and nodes that need them are freed or cancelled, level by level. A flow's own row is
updated first: it is the lock for all of its nodes. Locked in id order, so that two settlements
cannot deadlock, and free what follows once. Rows of jobs must be written before: one that still
looks like waiting would be counted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.settlement import cancelled, retried
from penstock.brokers.tables.db import Db, Row
from penstock.brokers.tables.rows import find_in, job_of, moved
from penstock.brokers.tables.statements import Statements
from penstock.enqueue.ids import from_bytes, to_bytes
from penstock.enqueue.secrets import gone_secrets
from penstock.flows.flow import Flow, Member, NodeRow, event_of, in_order, member_of
from penstock.flows.state import key_of, properties
from penstock.job import Job, State

if TYPE_CHECKING:
    from penstock.brokers.tables.change import Change

_FLOW = b'"flow":'

Place = tuple[bytes, bytes]  # a flow and one of its nodes
Ends = dict[Place, tuple[int, int]]  # how many jobs, and how many of them without success


def place_of(body: bytes) -> Place | None:
    """The flow and the node that a job is in, as they are stored."""
    at = body.rfind(_FLOW)
    if at < 0:
        return None
    # What follows is the same for all jobs of a map: read once, it is known. A part that is whole
    # by itself is the body's own; one out of its arguments would have a bracket too many.
    return _place_at(body[at:]) or _stored(member_of(body))


def places_of(bodies: Sequence[bytes]) -> Iterator[tuple[Place, int]]:
    """The nodes that these jobs are in, with how many of them."""
    if not bodies:
        return
    # Mostly all jobs are of the same map, or none is in a flow; the rest is for other cases.
    at = bodies[0].rfind(_FLOW)
    part = bodies[0][at:] if at >= 0 else b""
    place = _place_at(part) if part else None
    if place is not None:
        some = [body for body in bodies if not body.endswith(part)]
        yield place, len(bodies) - len(some)
    else:
        some = bodies
    parts = Counter([body[body.rfind(_FLOW) :] for body in some if _FLOW in body])
    for part, jobs in parts.items():
        place = _place_at(part)
        if place is not None:
            yield place, jobs
            continue
        for body in some:
            if body.endswith(part) and (found := place_of(body)) is not None:
                yield found, 1


@lru_cache(1024)
def _place_at(part: bytes) -> Place | None:
    return _stored(member_of(b"{" + part))


def _stored(member: Member | None) -> Place | None:
    return None if member is None else member.flow_and_node


def count_ends(change: Change) -> None:
    """Count ended jobs; nodes whose last need ended become ready, or are cancelled and counted."""
    while change.ends:
        ends, change.ends = change.ends, {}
        left = _count_flows(change, ends)
        counted = _count_nodes(change, {place: ends[place] for place in ends if place[0] in left})
        _record_ended(change, [flow for flow, jobs in left.items() if not jobs])
        decided = _needs_ended(change, [row["id"] for row in counted if row["jobs_left"] == 0])
        _free(change, [row for row in decided if row["freed"]])
        _cancel(change, [row for row in decided if not row["freed"]])
        change.write_places()


def _record_ended(change: Change, flows: Sequence[bytes]) -> None:
    found = change.db.each(change.sql.flow_end, [{"id": flow} for flow in flows])
    for flow, row in zip(flows, found, strict=True):
        if row is not None:
            find = find_in(row["find"])
            flow_data = event_of("ended", row["jobs"], row["name"], find, bad=row["bad"])
            change.flow_event(flow, flow_data)


def give_up(change: Change) -> None:
    """Decide nodes that wait for the retry of a job that was deleted since."""
    places, change.lost = change.lost, set()
    nodes = nodes_at(change, places)
    decided = _needs_ended(change, [raw for raw, row in nodes.items() if row["jobs_left"] == 0])
    _free(change, [row for row in decided if row["freed"]])
    _cancel(change, [row for row in decided if not row["freed"]])
    change.write_places()


def unretryable_nodes(change: Change, flow: bytes, stuck: Collection[bytes] = ()) -> set[bytes]:
    """Nodes that were cancelled because of jobs that no longer exist, and so cannot be retried.

    `stuck` are nodes of which a job exists that cannot be retried.
    """
    db, sql = change.db, change.sql
    nodes = {row["id"]: row for row in db.execute(sql.nodes, (flow,)).fetchall()}
    kept = {row["node"]: row["jobs"] for row in db.execute(sql.kept_bad, (flow,)).fetchall()}
    wanted_by: dict[bytes, list[bytes]] = {}
    for edge in db.execute(sql.needs, (flow,)).fetchall():
        wanted_by.setdefault(edge["need"], []).append(edge["node"])
    ended_badly = {raw for raw, row in nodes.items() if row["bad"] and not row["jobs_left"]}
    asked = [raw for raw in ended_badly if raw in stuck or kept.get(raw, 0) < nodes[raw]["bad"]]
    found: set[bytes] = set()
    for node in asked:  # grows
        new = {
            after for after in wanted_by.get(node, ()) if cancelled_by_needs(nodes[after])
        } - found
        found |= new
        asked += new & ended_badly
    return found


def _count_flows(change: Change, ends: Ends) -> dict[bytes, int]:
    """Count down and lock flows; returns the jobs left of each that exists."""
    jobs: Counter[bytes] = Counter()
    for (flow, _), (ended, _) in ends.items():
        jobs[flow] += ended
    rows = change.db.each(
        change.sql.count_flow,
        [{"id": flow, "jobs": jobs[flow], "now": change.now} for flow in sorted(jobs)],
    )
    return {row["id"]: row["jobs_left"] for row in rows if row is not None}


def _count_nodes(change: Change, ends: Ends) -> list[Row]:
    rows = change.db.each(
        change.sql.count_node,
        [{"id": node, "jobs": jobs, "bad": bad} for (_, node), (jobs, bad) in sorted(ends.items())],
    )
    return [row for row in rows if row is not None]


def _needs_ended(change: Change, nodes: Sequence[bytes]) -> list[Row]:
    """These nodes ended; returns the nodes whose last need it was."""
    wanted = change.db.every(change.sql.meet_need, [{"need": node} for node in nodes])
    met = Counter(row["node"] for rows in wanted for row in rows)
    return [row for row in _count_needs(change, met) if row["needs_left"] == 0]


def _count_needs(change: Change, needs: Mapping[bytes, int]) -> list[Row]:
    sets = [{"id": node, "needs": count} for node, count in sorted(needs.items())]
    return [row for row in change.db.each(change.sql.count_needs, sets) if row is not None]


def _free(change: Change, nodes: Sequence[Row]) -> None:
    sets = [{"node": node["id"], "now": change.now} for node in nodes]
    for rows in change.db.every(change.sql.free, sets):
        for row in rows:
            lane, jobs = row["lane"], row["jobs"]
            change.tally[lane, State.WAITING, 0] -= jobs
            change.tally[lane, State.READY, row["minute"]] += jobs
            change.woken.add(lane)


def _cancel(change: Change, nodes: Sequence[Row]) -> None:
    sets = [{"node": node["id"], "state": State.WAITING, "reason": None} for node in nodes]
    found = change.db.every(change.sql.member_rows, sets)
    for node, rows in zip(nodes, found, strict=True):
        for row in rows:
            lane = row["lane"]
            job = job_of(change.store.lane(change.db, lane), row)
            ended = cancelled(job, "needs", change.now)
            change.moved.append(moved(ended, 0))
            change.tally[lane, State.WAITING, 0] -= 1
            change.tally[lane, State.CANCELLED, 0] += 1
            change.add_event("cancel", b"{}", ended, lane)
        if rows:
            change.ends[node["flow"], node["id"]] = len(rows), len(rows)


def lock_flows(db: Db, sql: Statements, places: Iterable[Place]) -> None:
    """Lock these flows until the end of the transaction.

    Order of locks, as a settlement takes them: rows of running jobs, flows, then rows of jobs that
    wait or that a retry could revive. Any other order can deadlock.
    """
    flows = sorted({flow for flow, _ in places})
    if flows:
        db.each(sql.lock_flow, [(flow,) for flow in flows])


def nodes_at(change: Change, places: Collection[Place]) -> dict[bytes, Row]:
    """Nodes as they stand, locked with their flows."""
    lock_flows(change.db, change.sql, places)
    rows = change.db.each(change.sql.node, [(node,) for _, node in sorted(places)])
    return {row["id"]: row for row in rows if row is not None}


def take_back_ends(change: Change, ends: Ends) -> dict[bytes, tuple[Job[Any], int]]:
    """Undo the counting of ended jobs that are retried; jobs cancelled because of them wait again.

    Returns those, as they are now, with their lanes. A job that is retried alone waits for its
    needs that did not succeed.
    """
    revived: dict[bytes, tuple[Job[Any], int]] = {}
    first = True
    while ends:
        known = _count_flows(change, {place: (-jobs, 0) for place, (jobs, _) in ends.items()})
        there = {place: ends[place] for place in ends if place[0] in known}
        counted = _count_nodes(
            change, {place: (-jobs, -bad) for place, (jobs, bad) in there.items()}
        )
        if first:
            _wait_for_bad_needs(change, [row["id"] for row in counted if cancelled_by_needs(row)])
        jobs = {node: jobs for (_, node), (jobs, _) in there.items()}
        reopened = [row["id"] for row in counted if row["jobs_left"] == jobs[row["id"]]]
        ends = _wait_again(change, reopened, revived)
        first = False
    return revived


def cancelled_by_needs(node: Row) -> bool:
    """Whether the node's needs have ended, and its jobs did not run because of them."""
    return not node["freed"] and node["needs_left"] == 0


def _wait_for_bad_needs(change: Change, nodes: Sequence[bytes]) -> None:
    blamed = change.db.every(change.sql.unmeet_bad, [{"node": node} for node in nodes])
    needs = {node: -len(rows) for node, rows in zip(nodes, blamed, strict=True)}
    _free(change, [row for row in _count_needs(change, needs) if row["freed"]])


def _wait_again(
    change: Change, reopened: Sequence[bytes], revived: dict[bytes, tuple[Job[Any], int]]
) -> Ends:
    """Nodes that had ended have jobs again: nodes that need them, unless freed, wait for them."""
    needs = [{"need": node} for node in reopened]
    unmet = Counter(
        row["node"] for rows in change.db.every(change.sql.unmeet_need, needs) for row in rows
    )
    _count_needs(change, {node: -count for node, count in unmet.items()})
    places = {
        (row["flow"], row["id"])
        for rows in change.db.every(change.sql.waits_for, needs)
        for row in rows
    }
    ends: Ends = {}
    by_id = sorted(places)
    sets = [{"node": node, "state": State.CANCELLED, "reason": "needs"} for _, node in by_id]
    found = change.db.every(change.sql.member_rows, sets)
    again: list[dict[str, Any]] = []
    for place, members in zip(by_id, found, strict=True):
        rows = [row for row in members if not gone_secrets(row["body"], change.now)]
        for row in rows:
            revived[row["id"]] = revived_job(change, row, State.WAITING), row["lane"]
            again.append({"id": row["id"], "state": State.WAITING, "now": change.now, "body": None})
        if rows:
            ends[place] = len(rows), len(rows)
    if again:
        change.db.executemany(change.sql.retry, again)
    return ends


def revived_job(change: Change, row: Row, state: State) -> Job[Any]:
    """An ended job that is ready, or waits, with its counters at zero; counted, but not written."""
    lane = row["lane"]
    job = job_of(change.store.lane(change.db, lane), row)
    change.tally[lane, job.state, row["minute"]] -= 1
    change.tally[lane, state, 0] += 1
    return retried(job, state, change.now)


def spawned_places(change: Change) -> list[Place]:
    """The flows that have more nodes from now on, each with a node that is spawned."""
    return [
        (to_bytes(outcome.flow.id), to_bytes(outcome.flow.nodes[0].id))
        for _, outcome in change.spawned
        if outcome.flow is not None
    ]


def take_own_nodes(change: Change) -> dict[bytes, list[bytes]]:
    """Of jobs that wait for what they spawned: their nodes that are stored, and what these need.

    The node of such a job is the last of its outcome's flow; stored already, it is left out there.
    """
    found: dict[bytes, list[bytes]] = {}
    for index, (place, outcome) in enumerate(change.spawned):
        if outcome.state is not State.WAITING:
            continue
        *others, own = outcome.flow.nodes
        if change.db.execute(change.sql.node, (to_bytes(own.id),)).fetchone() is not None:
            found[to_bytes(own.id)] = [to_bytes(need) for need in own.needs]
            flow = msgspec.structs.replace(outcome.flow, nodes=tuple(others))
            change.spawned[index] = place, msgspec.structs.replace(outcome, flow=flow)
    return found


def wait_for_more(change: Change, waiting: Mapping[bytes, Sequence[bytes]]) -> None:
    """These nodes wait for more needs, and run whatever becomes of them."""
    for node, needs in waiting.items():
        add_needs(change, node, needs)
        change.db.execute(change.sql.run_after_all, (node,))


def add_needs(change: Change, node: bytes, needs: Sequence[bytes]) -> None:
    """This node needs these as well, which have not ended."""
    change.db.executemany(change.sql.add_need, [{"node": node, "need": need} for need in needs])
    _count_needs(change, {node: -len(needs)})


def last_of(flow: Flow) -> list[bytes]:
    """The nodes that no other of the flow needs."""
    needed = {need for node in flow.nodes for need in node.needs}
    return [to_bytes(node.id) for node in flow.nodes if node.id not in needed]


def found_keys(flow: Flow) -> list[bytes]:
    """The index keys of the flow's properties."""
    return [key_of(flow.name, *pair) for pair in properties(flow.find)]


def queued(flow: Flow) -> bytes:
    """The data of the history row of a new flow."""
    return event_of("queued", flow.jobs, flow.name, flow.find)


def node_row(row: Row, needs: Sequence[str] = ()) -> NodeRow:
    """A node from its row."""
    return NodeRow(
        id=from_bytes(row["id"]),
        flow=from_bytes(row["flow"]),
        task=row["task"],
        jobs=row["jobs"],
        needs=tuple(needs),
        needs_left=row["needs_left"],
        jobs_left=row["jobs_left"],
        bad=row["bad"],
        on_failure=row["on_failure"],
    )


def flow_rows(
    flow: Flow, place: int = 0
) -> tuple[
    list[dict[str, Any]], list[tuple[bytes, int, bytes]], list[tuple[bytes, int, bytes, bytes]]
]:
    """The rows of a flow's nodes, from this place on, of what they need, and of their members."""
    raw = to_bytes(flow.id)
    nodes: list[dict[str, Any]] = []
    needs: list[tuple[bytes, int, bytes]] = []
    members: list[tuple[bytes, int, bytes, bytes]] = []
    for number, node in enumerate(in_order(flow.nodes)):
        its = to_bytes(node.id)
        needed = [to_bytes(need) for need in dict.fromkeys(node.needs)]
        nodes.append(
            {
                "id": its,
                "flow": raw,
                "place": place + number,
                "task": node.task,
                "jobs": node.jobs,
                "on_failure": node.on_failure,
                "needs": len(needed),
            }
        )
        needs += [(its, which, need) for which, need in enumerate(needed)]
        members += [
            (its, which, *_span(to_bytes(first), count))
            for which, (first, count) in enumerate(node.members)
        ]
    return nodes, needs, members


def _span(first: bytes, count: int) -> tuple[bytes, bytes]:
    last = int.from_bytes(first[14:], "big") + count - 1
    return first, first[:14] + last.to_bytes(2, "big")


def ids_between(first: bytes, last: bytes) -> list[bytes]:
    """The ids of a range of members."""
    head = first[:14]
    numbers = range(int.from_bytes(first[14:], "big"), int.from_bytes(last[14:], "big") + 1)
    return [head + number.to_bytes(2, "big") for number in numbers]


def names_between(first: bytes, last: bytes) -> list[str]:
    """As above, in the form that people see; a call for each would cost 0.5 us."""
    head, low, high = from_bytes(first), first[14:], last[14:]
    return [
        f"{head[:-4]}{number:04x}"
        for number in range(int.from_bytes(low, "big"), int.from_bytes(high, "big") + 1)
    ]
