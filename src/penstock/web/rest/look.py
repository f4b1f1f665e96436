"""Look over REST: counts, queues, workers, flows, lakes."""

from __future__ import annotations

import msgspec

from penstock.as_json import RuleJson, iso, rule_json
from penstock.errors import Refused
from penstock.flow_look import FlowJson, flow_json
from penstock.ids import parse_id
from penstock.rule import RuleKind, rule_over
from penstock.views import Count, by_queue
from penstock.web.asked import Asked, NotFound

MOST_FLOWS = 100


class Counts(msgspec.Struct):
    """Where jobs stand, a row for each task of each queue."""

    counts: list[Count]


class QueueJson(msgspec.Struct):
    """Where the jobs of a queue stand, and the rule that keeps all of it back, if one does."""

    queue: str
    ready: int
    scheduled: int
    waiting: int
    paused: int
    limited: int
    running: int
    failed: int
    held_by: RuleKind | None


class Queues(msgspec.Struct):
    """Every queue that holds something."""

    queues: list[QueueJson]


class WorkerJson(msgspec.Struct):
    """One worker process."""

    id: str
    host: str
    pid: int
    alive: bool
    running: int
    queues: list[str] | None
    tags: list[str]
    tasks: dict[str, int]
    penstock: str
    started_at: str | None
    claimed_at: str | None


class Workers(msgspec.Struct):
    """Every worker, those that lapsed included until they are recovered."""

    workers: list[WorkerJson]


class FlowSummary(msgspec.Struct):
    """A flow in a list."""

    id: str
    name: str
    jobs: int
    jobs_left: int
    bad: int
    created_at: str | None
    ended_at: str | None


class Flows(msgspec.Struct):
    """Flows, newest first; `after` goes into the next call, and null means no more."""

    flows: list[FlowSummary]
    after: str | None


class Rules(msgspec.Struct):
    """Every rule."""

    rules: list[RuleJson]


def count(asked: Asked) -> Counts:
    return Counts(asked.verbs.count())


def queues(asked: Asked) -> Queues:
    held, now = asked.verbs.rules(), asked.verbs.now
    rows: list[QueueJson] = []
    for each in by_queue(asked.verbs.count()):
        over = rule_over([rule for rule in held if rule.task is None], each.queue, "", now)
        rows.append(
            QueueJson(
                each.queue,
                each.ready,
                each.scheduled,
                each.waiting,
                each.paused,
                each.limited,
                each.running,
                each.failed,
                None if over is None else over.kind,
            )
        )
    return Queues(rows)


def workers(asked: Asked) -> Workers:
    return Workers(
        [
            WorkerJson(
                row.id,
                row.host,
                row.pid,
                row.alive,
                row.running,
                None if row.queues is None else list(row.queues),
                sorted(row.tags),
                dict(row.tasks),
                row.penstock,
                iso(row.started_at or None),
                iso(row.claimed_at),
            )
            for row in asked.verbs.workers()
        ]
    )


def rules(asked: Asked) -> Rules:
    return Rules([rule_json(rule) for rule in asked.verbs.rules()])


def flows(asked: Asked) -> Flows:
    name = asked.word("name") or None
    find: dict[str, str] = {}
    for word in asked.request.query_params.getlist("find"):
        name_of, equals, value = word.partition("=")
        if not name_of or not equals or name is None:
            raise Refused(f"find={word[:60]}: write name=NAME&find=PROPERTY=VALUE")
        find[name_of] = value
    limit = asked.number("limit", 20, 1, MOST_FLOWS)
    page = asked.verbs.flows(name, find, asked.word("after") or None, limit)
    return Flows(
        [
            FlowSummary(
                flow.id,
                flow.name,
                sum(node.jobs for node in flow.nodes),
                sum(node.jobs_left for node in flow.nodes),
                sum(node.bad for node in flow.nodes),
                iso(flow.created_at or None),
                iso(flow.ended_at),
            )
            for flow in page.flows
        ],
        page.after,
    )


def flow(asked: Asked) -> FlowJson:
    try:
        id = parse_id(asked.part("id"))
    except Refused as error:
        raise NotFound(str(error)) from None
    found = asked.verbs.flow(id)
    if found is None:
        raise NotFound(f"{id} is no flow that is stored here, and no job of one.")
    return flow_json(found, asked.verbs.look_at_flow(found))
