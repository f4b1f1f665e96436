"""Every route of the dashboard, in one table: deny by default begins here.

A page is a module in `pages`, a template of its name, and a line here.
"""

from __future__ import annotations

from penstock.web import live, metrics
from penstock.web.access import Role
from penstock.web.pages import (
    audit,
    entrance,
    files,
    health,
    job,
    jobs,
    operations,
    overview,
    reports,
    workers,
)
from penstock.web.rest.table import REST
from penstock.web.route import Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", "overview", overview.show, Role.VIEW, nav="Overview"),
    Route("GET", "/jobs", "jobs", jobs.show, Role.VIEW, nav="Jobs"),
    Route("GET", "/jobs/{id}", "job", job.show, Role.VIEW),
    Route("POST", "/jobs/{id}/cancel", "cancel job", job.cancel, Role.OPERATE),
    Route("POST", "/jobs/{id}/retry", "retry job", job.retry, Role.OPERATE),
    Route("POST", "/jobs/{id}/delete", "delete job", job.delete, Role.OPERATE),
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
    Route("POST", "/health", "examine", health.examine, Role.VIEW),
    Route("GET", "/audit", "audit", audit.show, Role.VIEW, nav="Audit"),
    Route("GET", "/audit.csv", "audit as CSV", audit.table, Role.VIEW),
    Route("GET", "/audit.jsonl", "audit as JSON lines", audit.lines, Role.VIEW),
    Route("GET", "/metrics", "metrics", metrics.show, Role.VIEW),
    # Who comes in, and who leaves
    Route("POST", "/enter", "enter", entrance.enter, Role.ANYBODY),
    Route("POST", "/leave", "leave", entrance.leave, Role.VIEW),
    # Files
    Route("GET", "/static/style.css", "style", files.style, Role.ANYBODY),
    Route("GET", "/static/{file:path}", "file", files.show, Role.VIEW),
    *REST,
)
