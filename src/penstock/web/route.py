"""A route: a method and a path, the role that it needs, and the function that answers.

The dashboard does not start if a route declares no role.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.errors import Refused
from penstock.operate.roles import OPERATIONS, Role
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
