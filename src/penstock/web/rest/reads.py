"""Reads over REST: counts, queues, workers, rules, flows, lakes, the audit, the doctor."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.lake_mark import Mark
from penstock.broker.views import Count, by_queue
from penstock.errors import Refused
from penstock.flows.status import FlowJson, flow_json
from penstock.operate.audit import AuditQuery, audit_entry_json, audit_query
from penstock.operate.counts import COLUMNS
from penstock.operate.doctor import Finding
from penstock.operate.flow_progress import flow_progress
from penstock.operate.parse_input import parse_pairs
from penstock.operate.refusals import NotFound
from penstock.operate.sentences import no_such_flow_text
from penstock.operate.task_places import defined_twice
from penstock.operate.to_json import RuleJson, iso, rule_json
from penstock.operate.trends import Trend, TrendFilter
from penstock.operate.worker_settings import jobs_by_worker
from penstock.rules.rule import RuleKind, rule_over
from penstock.web.request import WebRequest

MOST_FLOWS = 100
MOST_ENTRIES = 1000


class Counts(msgspec.Struct):
    """Counts of jobs, a row for each task of each queue."""

    counts: list[Count]


class QueueJson(msgspec.Struct):
    """Counts of a queue's jobs, and the kind of rule that holds back the whole queue, if any."""

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
    """Every queue that has jobs."""

    queues: list[QueueJson]


class WorkerJson(msgspec.Struct):
    """One worker process."""

    id: str
    host: str
    pid: int
    alive: bool
    running: int
    group: str  # the name of the worker whose process this is
    threads: int
    async_slots: int
    quiet: bool
    jobs: list[str]  # ids of what it runs now
    queues: list[str] | None
    tags: list[str]
    tasks: dict[str, int]
    places: dict[str, str]  # module:function, of each task that is named otherwise
    penstock: str
    started_at: str | None
    claimed_at: str | None


class Workers(msgspec.Struct):
    """Every worker; lapsed ones until they are recovered."""

    workers: list[WorkerJson]
    warnings: list[str]  # tasks that live workers define in several places


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


class AuditEntryJson(msgspec.Struct):
    """One action of a person; `says` is what else the history row has."""

    position: str
    at: str | None
    kind: str
    author: str
    login: str | None
    reason: str
    job: str | None
    queue: str | None
    task: str | None
    says: dict[str, Any]


class Audit(msgspec.Struct):
    """Entries, newest first; `before` goes into the next call, null means no more.

    `looked` is the number of history rows that were read: a page may be short or empty, with more
    to come.
    """

    deeds: list[AuditEntryJson]
    before: str | None
    looked: int


class Findings(msgspec.Struct):
    """What the doctor finds, as of `at`; null: it has not run yet, or is still running."""

    findings: list[Finding]
    at: str | None
    under_way: bool


def trends(request: WebRequest) -> Trend:
    return request.store.trend(request.word("over"), trend_filter(request))


def trend_filter(request: WebRequest) -> TrendFilter:
    """Of which queue, task and worker."""
    words = (request.word(name) or None for name in TrendFilter._fields)
    return TrendFilter(*words)


class WhyNamed(msgspec.Struct):
    """Why a queue, a task, a worker, a flow or a schedule is as it is."""

    of: str
    findings: list[Finding]


def why_named(request: WebRequest) -> WhyNamed:
    return WhyNamed(*request.store.why_named(request.word("of")))


def count(request: WebRequest) -> Counts:
    return Counts(request.store.count())


def queues(request: WebRequest) -> Queues:
    held = [rule for rule in request.store.rules() if rule.task is None]
    now = request.store.now
    rows: list[QueueJson] = []
    for count in by_queue(request.store.count()):
        over = rule_over(held, count.queue, "", now)
        numbers = {column: getattr(count, column) for column in COLUMNS}
        rows.append(QueueJson(count.queue, **numbers, held_by=over and over.kind))
    return Queues(rows)


def workers(request: WebRequest) -> Workers:
    held, rows = jobs_by_worker(request.store.find), request.store.workers()
    return Workers(
        [
            WorkerJson(
                row.id,
                row.host,
                row.pid,
                row.alive,
                row.running,
                row.group,
                row.threads,
                row.async_slots,
                row.quiet,
                [job.id for job in held.get(row.id, [])],
                None if row.queues is None else list(row.queues),
                sorted(row.tags),
                dict(row.tasks),
                dict(row.places),
                row.penstock,
                iso(row.started_at or None),
                iso(row.claimed_at),
            )
            for row in rows
        ],
        [str(each) for each in defined_twice(rows)],
    )


def rules(request: WebRequest) -> Rules:
    return Rules([rule_json(rule) for rule in request.store.rules()])


def flows(request: WebRequest) -> Flows:
    name = request.word("name") or None
    find = parse_pairs(request.http.query_params.getlist("find"), "find")
    if find and name is None:
        raise Refused("find goes with a name: write name=NAME&find=PROPERTY=VALUE")
    limit = request.number("limit", 20, 1, MOST_FLOWS)
    page = request.store.flows(name, find, request.word("after") or None, limit)
    return Flows(
        [
            FlowSummary(
                flow.id,
                flow.name,
                progress.jobs,
                progress.left,
                progress.bad,
                iso(flow.created_at or None),
                iso(flow.ended_at),
            )
            for flow, progress in ((flow, flow_progress(flow)) for flow in page.flows)
        ],
        page.after,
    )


def flow(request: WebRequest) -> FlowJson:
    id = request.id()
    found = request.store.flow(id)
    if found is None:
        raise NotFound(no_such_flow_text(id))
    return flow_json(found, request.store.look_at_flow(found))


def lakes(request: WebRequest) -> Lakes:
    return Lakes(request.store.lakes())


def forget(request: WebRequest) -> Forgotten:
    given = request.json(Forget)
    return Forgotten(request.store.forget_lake(given.lake, given.reason))


def audit(request: WebRequest) -> Audit:
    before = request.word("before")
    limit = request.number("limit", 100, 1, MOST_ENTRIES)
    found = request.store.audit(audit_query_of(request), before or None, limit)
    return Audit(
        [AuditEntryJson(**audit_entry_json(entry)) for entry in found.entries],
        found.before,
        found.looked,
    )


def audit_query_of(request: WebRequest) -> AuditQuery:
    names = ("kind", "author", "since", "until")
    kind, author, since, until = (request.word(name).strip() for name in names)
    return audit_query([kind] if kind else [], author, since, until, request.store.now)


def doctor(request: WebRequest) -> Findings:
    request.site.run_doctor(request.store)
    last, under_way = request.site.doctor_runs.last, request.site.doctor_runs.under_way
    if last is None:
        return Findings([], None, under_way)
    return Findings(list(last.findings), iso(last.at), under_way)
