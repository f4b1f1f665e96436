"""Look over REST: counts, queues, workers, rules, flows; lakes, the audit, the doctor."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.lake_mark import Mark
from penstock.broker.views import Count, by_queue
from penstock.errors import Refused
from penstock.flows.status import FlowJson, flow_json
from penstock.operate.audit import audit_query, deed_json
from penstock.operate.doctor import Finding
from penstock.operate.refusals import NotFound
from penstock.operate.sentences import no_such_flow
from penstock.operate.to_json import RuleJson, iso, rule_json
from penstock.operate.typed_values import pairs_of
from penstock.rules.rule import RuleKind, rule_over
from penstock.web.request import Asked

MOST_FLOWS = 100
MOST_DEEDS = 1000


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


class Lakes(msgspec.Struct):
    """Every lake that the store keeps history for, with what it misses."""

    lakes: list[Mark]


class Forget(msgspec.Struct, forbid_unknown_fields=True):
    """A lake by its id."""

    lake: str
    reason: str = ""


class Forgotten(msgspec.Struct):
    """Whether there was such a lake."""

    forgotten: bool


class DeedJson(msgspec.Struct):
    """Something that somebody did; `says` is what else the history has of it."""

    position: str
    at: str | None
    kind: str
    author: str
    reason: str
    job: str | None
    queue: str | None
    task: str | None
    says: dict[str, Any]


class Audit(msgspec.Struct):
    """Deeds, newest first; `before` goes into the next call, and null means that there are no more.

    `looked` is how many rows were looked at: a page may be short, or empty, with more to come.
    """

    deeds: list[DeedJson]
    before: str | None
    looked: int


class Findings(msgspec.Struct):
    """What the doctor finds, as of `at`; null: it has not been asked yet, or is under way."""

    findings: list[Finding]
    at: str | None
    under_way: bool


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
    find = pairs_of(asked.request.query_params.getlist("find"), "find")
    if find and name is None:
        raise Refused("find goes with a name: write name=NAME&find=PROPERTY=VALUE")
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
    id = asked.id()
    found = asked.verbs.flow(id)
    if found is None:
        raise NotFound(no_such_flow(id))
    return flow_json(found, asked.verbs.look_at_flow(found))


def lakes(asked: Asked) -> Lakes:
    return Lakes(asked.verbs.lakes())


def forget(asked: Asked) -> Forgotten:
    given = asked.json(Forget)
    return Forgotten(asked.verbs.forget_lake(given.lake, given.reason))


def audit(asked: Asked) -> Audit:
    kinds = [asked.word("kind")] if asked.word("kind") else []
    times = (asked.word("since"), asked.word("until"))
    wanted = audit_query(kinds, asked.word("author"), *times, asked.verbs.now)
    before = asked.word("before")
    limit = asked.number("limit", 100, 1, MOST_DEEDS)
    found = asked.verbs.audit(wanted, before or None, limit)
    return Audit([DeedJson(**deed_json(deed)) for deed in found.deeds], found.before, found.looked)


def doctor(asked: Asked) -> Findings:
    site, verbs = asked.site, asked.verbs
    known = None if site.app is None else site.app.known_tasks()
    site.examining.examine(lambda: verbs.examine(site.url, known), verbs.now)
    last = site.examining.last
    findings = [] if last is None else list(last.findings)
    at = None if last is None else iso(last.at)
    return Findings(findings, at, site.examining.under_way)
