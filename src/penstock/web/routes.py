"""Every route of the dashboard, in one table: deny by default begins here.

A page is a module in `pages`, a template of its name, and a line here.
"""

from __future__ import annotations

from penstock.web import live, metrics
from penstock.web.access import Role
from penstock.web.pages import (
    audit,
    backfills,
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
    static_files,
    suggestions,
    workers,
)
from penstock.web.rest.table import REST
from penstock.web.route import Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", "overview", overview.show, Role.VIEW, nav="Overview"),
    Route("GET", "/jobs", "jobs", jobs.show, Role.VIEW, nav="Jobs"),
    Route("GET", "/jobs/suggestions", "suggestions", suggestions.show, Role.VIEW),
    Route("GET", "/jobs/{id}", "job", job.show, Role.VIEW),
    Route("POST", "/jobs/{id}/cancel", "cancel job", job.cancel, Role.OPERATE),
    Route("POST", "/jobs/{id}/retry", "retry job", job.retry, Role.OPERATE),
    Route("POST", "/jobs/{id}/copy", "copy job", job.copy, Role.OPERATE),
    Route("POST", "/jobs/{id}/delete", "delete job", job.delete, Role.OPERATE),
    # Flows
    Route("GET", "/flows", "flows page", flows.show, Role.VIEW, nav="Flows"),
    Route("GET", "/flows/{id}", "flow page", flows.one, Role.VIEW),
    Route("GET", "/flows/{id}/column", "column of a flow page", flows.column, Role.VIEW),
    Route("GET", "/flows/{id}/nodes/{node}", "node of a flow page", flows.node, Role.VIEW),
    Route("POST", "/flows/{id}/cancel", "cancel flow form", flows.cancel, Role.OPERATE),
    Route("POST", "/flows/{id}/retry", "retry flow form", flows.retry, Role.OPERATE),
    Route("POST", "/flows/{id}/delete", "delete flow form", flows.delete, Role.OPERATE),
    # Queues and rules
    Route("GET", "/queues", "queues page", queues.show, Role.VIEW, nav="Queues"),
    Route("GET", "/queues/one", "queue page", queues.one, Role.VIEW),
    Route("GET", "/rules", "rules page", rules.show, Role.VIEW),
    Route("GET", "/rules/new", "rule form", rules.form, Role.VIEW),
    Route("POST", "/rules/pause", "pause form", rules.pause, Role.OPERATE),
    Route("POST", "/rules/resume", "resume form", rules.resume, Role.OPERATE),
    Route("POST", "/rules/block", "block form", rules.block, Role.ADMIN),
    Route("POST", "/rules/unblock", "unblock form", rules.unblock, Role.ADMIN),
    Route("POST", "/rules/limit", "limit form", rules.limit, Role.OPERATE),
    Route("POST", "/rules/limit-off", "limit off form", rules.limit_off, Role.OPERATE),
    Route("POST", "/rules/order", "order form", rules.order, Role.OPERATE),
    Route("POST", "/rules/order-off", "order off form", rules.order_off, Role.OPERATE),
    # Schedules; a name may hold anything, and so is no part of a path
    Route("GET", "/schedules", "schedules page", schedules.show, Role.VIEW, nav="Schedules"),
    Route("GET", "/schedules/one", "schedule page", schedules.one, Role.VIEW),
    Route("POST", "/schedules/pause", "pause schedule form", schedules.pause, Role.OPERATE),
    Route("POST", "/schedules/resume", "resume schedule form", schedules.resume, Role.OPERATE),
    Route("POST", "/schedules/run", "run schedule form", schedules.run, Role.OPERATE),
    Route("POST", "/schedules/remove", "remove schedule form", schedules.remove, Role.OPERATE),
    # Backfills
    Route("GET", "/backfills", "backfills page", backfills.show, Role.VIEW, nav="Backfills"),
    Route("GET", "/backfills/one", "backfill page", backfills.one, Role.VIEW),
    Route("POST", "/backfills/retry", "retry backfill form", backfills.retry, Role.OPERATE),
    Route("POST", "/backfills/again", "backfill form", backfills.again, Role.OPERATE),
    Route("GET", "/operations", "operations page", operations.show, Role.VIEW),
    Route("GET", "/operations/new", "operation form", operations.prepare, Role.OPERATE),
    Route("POST", "/operations", "begin", operations.begin, Role.OPERATE),
    Route("GET", "/operations/{id}", "operation page", operations.one, Role.VIEW),
    Route("POST", "/operations/{id}/cancel", "stop", operations.cancel, Role.OPERATE),
    Route("GET", "/live", "live", live.watch, Role.VIEW),
    Route("GET", "/workers", "workers page", workers.show, Role.VIEW, nav="Workers"),
    Route("GET", "/reports", "reports", reports.show, Role.VIEW, nav="Reports"),
    Route("GET", "/reports/lake", "report of the lake", reports.lake, Role.VIEW),
    Route("GET", "/health", "health", health.show, Role.VIEW, nav="Health"),
    Route("GET", "/health/findings", "findings", health.findings, Role.VIEW),
    Route("POST", "/health", "examine", health.examine, Role.VIEW),
    Route("GET", "/audit", "audit", audit.show, Role.VIEW, nav="Audit"),
    Route("GET", "/audit.csv", "audit as CSV", audit.table, Role.VIEW),
    Route("GET", "/audit.jsonl", "audit as JSON lines", audit.lines, Role.VIEW),
    Route("GET", "/metrics", "metrics", metrics.show, Role.VIEW),
    # Who comes in, and who leaves
    Route("POST", "/enter", "enter", login.enter, Role.ANYBODY),
    Route("POST", "/leave", "leave", login.leave, Role.VIEW),
    # Files
    Route("GET", "/static/style.css", "style", static_files.style, Role.ANYBODY),
    Route("GET", "/static/{file:path}", "file", static_files.show, Role.VIEW),
    *REST,
)
