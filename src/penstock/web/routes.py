"""Every route of the dashboard, in one table: deny by default begins here.

A page is a module in `pages`, a template of its name, and a line here.
"""

from __future__ import annotations

from penstock.web.access import Role
from penstock.web.pages import (
    backfills,
    entrance,
    files,
    flows,
    job,
    jobs,
    overview,
    queues,
    rules,
    schedules,
)
from penstock.web.route import Route

ROUTES: tuple[Route, ...] = (
    Route("GET", "/", "overview", overview.show, Role.VIEW, nav="Overview"),
    Route("GET", "/jobs", "jobs", jobs.show, Role.VIEW, nav="Jobs"),
    Route("GET", "/jobs/{id}", "job", job.show, Role.VIEW),
    Route("POST", "/jobs/{id}/cancel", "cancel job", job.cancel, Role.OPERATE),
    Route("POST", "/jobs/{id}/retry", "retry job", job.retry, Role.OPERATE),
    Route("POST", "/jobs/{id}/delete", "delete job", job.delete, Role.OPERATE),
    # Flows
    Route("GET", "/flows", "flows", flows.show, Role.VIEW, nav="Flows"),
    Route("GET", "/flows/{id}", "flow", flows.one, Role.VIEW),
    Route("GET", "/flows/{id}/column", "column of a flow", flows.column, Role.VIEW),
    Route("GET", "/flows/{id}/nodes/{node}", "node of a flow", flows.node, Role.VIEW),
    Route("POST", "/flows/{id}/cancel", "cancel flow", flows.cancel, Role.OPERATE),
    Route("POST", "/flows/{id}/retry", "retry flow", flows.retry, Role.OPERATE),
    Route("POST", "/flows/{id}/delete", "delete flow", flows.delete, Role.OPERATE),
    # Queues and rules
    Route("GET", "/queues", "queues", queues.show, Role.VIEW, nav="Queues"),
    Route("GET", "/queue", "queue", queues.one, Role.VIEW),
    Route("GET", "/rules", "rules", rules.show, Role.VIEW),
    Route("GET", "/rules/new", "new rule", rules.form, Role.VIEW),
    Route("POST", "/rules/pause", "pause", rules.pause, Role.OPERATE),
    Route("POST", "/rules/resume", "resume", rules.resume, Role.OPERATE),
    Route("POST", "/rules/block", "block", rules.block, Role.ADMIN),
    Route("POST", "/rules/unblock", "unblock", rules.unblock, Role.ADMIN),
    Route("POST", "/rules/limit", "limit", rules.limit, Role.OPERATE),
    Route("POST", "/rules/limit-off", "limit off", rules.limit_off, Role.OPERATE),
    Route("POST", "/rules/order", "order", rules.order, Role.OPERATE),
    Route("POST", "/rules/order-off", "order off", rules.order_off, Role.OPERATE),
    # Schedules; a name may hold anything, and so is no part of a path
    Route("GET", "/schedules", "schedules", schedules.show, Role.VIEW, nav="Schedules"),
    Route("GET", "/schedule", "schedule", schedules.one, Role.VIEW),
    Route("POST", "/schedules/pause", "pause schedule", schedules.pause, Role.OPERATE),
    Route("POST", "/schedules/resume", "resume schedule", schedules.resume, Role.OPERATE),
    Route("POST", "/schedules/run", "run schedule", schedules.run, Role.OPERATE),
    Route("POST", "/schedules/remove", "remove schedule", schedules.remove, Role.OPERATE),
    # Backfills
    Route("GET", "/backfills", "backfills", backfills.show, Role.VIEW, nav="Backfills"),
    Route("GET", "/backfill", "backfill", backfills.one, Role.VIEW),
    Route("POST", "/backfill/retry", "retry backfill", backfills.retry, Role.OPERATE),
    # Who comes in, and who leaves
    Route("POST", "/enter", "enter", entrance.enter, Role.ANYBODY),
    Route("POST", "/leave", "leave", entrance.leave, Role.VIEW),
    # Files
    Route("GET", "/static/style.css", "style", files.style, Role.ANYBODY),
    Route("GET", "/static/{file:path}", "file", files.show, Role.VIEW),
)
