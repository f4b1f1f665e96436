"""A route: a method and a path, the role that it needs, and the function that answers.

The dashboard does not start if a route declares no role.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.errors import Refused
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.roles import OPERATIONS, Person, Role
from penstock.operate.rule_fields import CLEAR_OPERATIONS
from penstock.operate.sentences import SCHEDULE_TEXTS
from penstock.rules.rule import RuleKind
from penstock.web.request import WebRequest

METHODS = ("GET", "POST")


class Parameter(NamedTuple):
    """A parameter of REST, in the query or in the path; its schema is that of the type."""

    name: str
    kind: Any
    says: str
    required: bool = False


class Route(NamedTuple):
    """One line of the table.

    `handle` answers with a response, or with a value that goes out as JSON; a plain function runs
    on the pool, a coroutine function on the event loop.
    """

    method: str
    path: str
    name: str
    handle: Callable[[WebRequest], Any]
    role: Role | None = None
    nav: str = ""  # its title in the navigation
    says: str = ""  # what it does, for OpenAPI
    parameters: tuple[Parameter, ...] = ()
    takes: Any = None  # the type of the body
    gives: Any = None  # the type of the answer
    does: str = ""  # the operation that it carries out


# What people with an access list may use: all that is shown there, and done, is cut to the list. A
# route that is not here is not for them; nor is what shows the store as a whole.
FOR_LISTED = frozenset({
    *("overview", "jobs", "suggestions", "enqueue form", "enqueue job", "job", "copy job"),
    *(f"{verb} {what}" for verb in BULK_VERBS for what in ("chosen jobs", "job")),
    *("queues page", "queue page", "set queue form", "reset queue form", "rules page", "rule form"),
    *(f"{name} form".replace("_", " ") for name in (*RuleKind, *CLEAR_OPERATIONS.values())),
    *("schedules page", "schedule page", *(f"{verb} schedule form" for verb in SCHEDULE_TEXTS)),
    *("operations page", "operation form", "begin", "operation page", "stop"),
    *("live", "workers page", "reports", "audit", "audit as CSV", "audit as JSON lines"),
    *("enter", "log in at the provider", "back from the provider", "leave", "style", "file"),
    # REST
    *("openapi", "find", "get many", "get", "why", "why named", "show", "notes"),
    *("history of a job", "history", "count", "queues", "options of queues", "set queue"),
    *("reset queue", "drop queue", "trends", "workers", "rules", "schedules", "enqueue", "copy"),
    *(*BULK_VERBS, *RuleKind, "resume", "unblock"),
    *(f"{verb} schedule" for verb in SCHEDULE_TEXTS),
    *("audit over REST", "preview", "operations", "operation", "begin operation"),
    "cancel operation",
})  # fmt: skip


def may_use(person: Person, route: Route) -> bool:
    """Whether this person's role and access list let them use the route."""
    enough = route.role is not None and person.role >= route.role
    return enough and (person.only is None or route.name in FOR_LISTED)


def form_route(operation: str, path: str, name: str, handle: Callable[[WebRequest], Any]) -> Route:
    """The route of a form, with the role of its operation."""
    role = OPERATIONS[operation].role
    return Route("POST", path, name, handle, role, does=operation)


def check_routes(routes: Sequence[Route]) -> Sequence[Route]:
    """The routes; refused if one declares no role, or two have one name or path."""
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    for route in routes:
        what = f"the route {route.method} {route.path}"
        if not isinstance(route.role, Role):
            raise Refused(f"{what} declares no role: write role=Role.VIEW, for example")
        if route.method not in METHODS:
            raise Refused(f"{what}: reading is GET, everything else is POST")
        if (route.method, route.path) in seen or route.name in names:
            raise Refused(f"{what} ({route.name}) is in the table twice")
        if route.role is Role.ANYBODY and "{" in route.path:
            raise Refused(f"{what} is open to anybody, so its path may have no parameter")
        seen.add((route.method, route.path))
        names.add(route.name)
    return routes
