"""Every route of the dashboard, in one table, each with the role it needs.

A page is a module in `pages`, a template of its name, and a line here.
"""

from __future__ import annotations

from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.roles import Role
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.sentences import SCHEDULE_TEXTS
from penstock.rules.rule import RuleKind
from penstock.web import live, metrics
from penstock.web.pages import (
    audit,
    backfills,
    datasets,
    enqueue,
    flows,
    health,
    job,
    jobs,
    login,
    operations,
    overview,
    queues,
    reports,
    rules,
    schedules,
    shards,
    static_files,
    suggestions,
    workers,
)
from penstock.web.rest.table import REST
from penstock.web.route import Route, form_route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", "overview", overview.show, Role.VIEW, nav="Overview"),
    Route("GET", "/jobs", "jobs", jobs.show, Role.VIEW, nav="Jobs"),
    Route("GET", "/jobs/suggestions", "suggestions", suggestions.show, Role.VIEW),
    *(
        form_route(verb, f"/jobs/chosen/{verb}", f"{verb} chosen jobs", jobs.action(verb))
        for verb in BULK_VERBS
    ),
    Route("GET", "/jobs/new", "enqueue form", enqueue.show, Role.OPERATE),
    form_route("enqueue", "/jobs/new", "enqueue job", enqueue.send),
    Route("GET", "/jobs/{id}", "job", job.show, Role.VIEW),
    *(
        form_route(verb, f"/jobs/{{id}}/{verb}", f"{verb} job", job.action(verb))
        for verb in BULK_VERBS
    ),
    form_route("copy", "/jobs/{id}/copy", "copy job", job.copy),
    # Flows
    Route("GET", "/flows", "flows page", flows.show, Role.VIEW, nav="Flows"),
    Route("GET", "/flows/{id}", "flow page", flows.one, Role.VIEW),
    Route("GET", "/flows/{id}/column", "column of a flow page", flows.column, Role.VIEW),
    Route("GET", "/flows/{id}/nodes/{node}", "node of a flow page", flows.node, Role.VIEW),
    *(
        form_route(verb, f"/flows/{{id}}/{verb}", f"{verb} flow form", flows.action(verb))
        for verb in BULK_VERBS
    ),
    # Queues and rules
    Route("GET", "/queues", "queues page", queues.show, Role.VIEW, nav="Queues"),
    Route("GET", "/queues/one", "queue page", queues.one, Role.VIEW),
    form_route("set_queue", "/queues/set", "set queue form", queues.set_options),
    form_route("reset_queue", "/queues/reset", "reset queue form", queues.reset),
    Route("GET", "/rules", "rules page", rules.show, Role.VIEW),
    Route("GET", "/rules/new", "rule form", rules.form, Role.VIEW),
    *(
        form_route(kind, f"/rules/{kind}", f"{kind} form", rules.set_action(kind))
        for kind in RuleKind
    ),
    *(
        form_route(
            off,
            f"/rules/{off.replace('_', '-')}",
            f"{off.replace('_', ' ')} form",
            rules.clear_action(kind),
        )
        for kind, off in CLEAR_OPERATIONS.items()
    ),
    # Schedules; a name may hold anything, and so is no part of a path
    Route("GET", "/schedules", "schedules page", schedules.show, Role.VIEW, nav="Schedules"),
    Route("GET", "/schedules/one", "schedule page", schedules.one, Role.VIEW),
    *(
        form_route(
            f"{verb}_schedule",
            f"/schedules/{verb}",
            f"{verb} schedule form",
            schedules.action(verb),
        )
        for verb in SCHEDULE_TEXTS
    ),
    # Backfills
    Route("GET", "/backfills", "backfills page", backfills.show, Role.VIEW, nav="Backfills"),
    Route("GET", "/backfills/one", "backfill page", backfills.one, Role.VIEW),
    form_route("retry", "/backfills/retry", "retry backfill form", backfills.retry),
    form_route("rerun_backfill", "/backfills/again", "backfill form", backfills.again),
    # Datasets; names may hold anything
    Route("GET", "/datasets", "datasets page", datasets.show, Role.VIEW, nav="Datasets"),
    Route("GET", "/datasets/one", "dataset page", datasets.one, Role.VIEW),
    Route("GET", "/datasets/partition", "partition page", datasets.partition, Role.VIEW),
    Route("GET", "/datasets/run", "dataset run form", datasets.prepare, Role.OPERATE),
    form_route("run_datasets", "/datasets/run", "run dataset form", datasets.run),
    Route("GET", "/operations", "operations page", operations.show, Role.VIEW),
    Route("GET", "/operations/new", "operation form", operations.prepare, Role.OPERATE),
    form_route("record_operation", "/operations", "begin", operations.begin),
    Route("GET", "/operations/{id}", "operation page", operations.one, Role.VIEW),
    form_route("record_operation", "/operations/{id}/cancel", "stop", operations.cancel),
    Route("GET", "/live", "live", live.watch, Role.VIEW),
    Route("GET", "/workers", "workers page", workers.show, Role.VIEW, nav="Workers"),
    form_route("set_worker", "/workers/set", "set worker form", workers.set_worker),
    form_route("reset_worker", "/workers/reset", "reset worker form", workers.reset_worker),
    Route("GET", "/shards", "shards page", shards.show, Role.VIEW),
    Route("GET", "/reports", "reports", reports.show, Role.VIEW, nav="Reports"),
    Route("GET", "/reports/lake", "report of the lake", reports.lake, Role.VIEW),
    Route("GET", "/health", "health", health.show, Role.VIEW, nav="Health"),
    Route("GET", "/health/findings", "findings", health.findings, Role.VIEW),
    Route("POST", "/health", "examine", health.examine, Role.VIEW),
    Route("POST", "/health/alert", "test alert", health.test_alert, Role.OPERATE),
    Route("GET", "/audit", "audit", audit.show, Role.VIEW, nav="Audit"),
    Route("GET", "/audit.csv", "audit as CSV", audit.table, Role.VIEW),
    Route("GET", "/audit.jsonl", "audit as JSON lines", audit.lines, Role.VIEW),
    Route("GET", "/metrics", "metrics", metrics.show, Role.VIEW),
    # Login
    Route("POST", "/enter", "enter", login.enter, Role.ANYBODY),
    Route("GET", "/oidc/begin", "log in at the provider", login.begin, Role.ANYBODY),
    Route("GET", "/oidc/back", "back from the provider", login.back, Role.ANYBODY),
    Route("POST", "/leave", "leave", login.leave, Role.VIEW),
    # Files
    Route("GET", "/static/style.css", "style", static_files.style, Role.ANYBODY),
    Route("GET", "/static/{file:path}", "file", static_files.show, Role.VIEW),
    *REST,
)
