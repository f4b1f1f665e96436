"""What a route is: a method and a path, the role that it needs, and the function that answers.

A route that does not say who may use it stops the dashboard from starting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.errors import Refused
from penstock.operate.roles import OPERATIONS, Role
from penstock.web.request import Asked

METHODS = ("GET", "POST")


class Parameter(NamedTuple):
    """One that REST takes in the query or in the path; its schema is that of the type."""

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
    handle: Callable[[Asked], Any]
    role: Role | None = None
    nav: str = ""  # its word in the navigation
    says: str = ""  # what it does, for OpenAPI
    parameters: tuple[Parameter, ...] = ()
    takes: Any = None  # the type of the body
    gives: Any = None  # the type of the answer
    does: str = ""  # the operation that it carries out


def doing(operation: str, path: str, name: str, handle: Callable[[Asked], Any]) -> Route:
    """A form's route: the role is that of its operation."""
    role = OPERATIONS[operation].role
    return Route("POST", path, name, handle, role, does=operation)


def check_routes(routes: Sequence[Route]) -> Sequence[Route]:
    """The routes, if each says who may use it, and none stands in another's way."""
    seen: set[tuple[str, str]] = set()
    names: set[str] = set()
    for route in routes:
        what = f"the route {route.method} {route.path}"
        if not isinstance(route.role, Role):
            raise Refused(f"{what} does not say which role it needs: role=Role.VIEW, for example")
        if route.method not in METHODS:
            raise Refused(f"{what}: looking is GET, and all else is POST")
        if (route.method, route.path) in seen or route.name in names:
            raise Refused(f"{what} ({route.name}) is in the table twice")
        if route.role is Role.ANYBODY and "{" in route.path:
            raise Refused(f"{what} is open to anybody, and so must be one exact path")
        seen.add((route.method, route.path))
        names.add(route.name)
    return routes
