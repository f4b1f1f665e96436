"""One request, as pages and REST see it: the person, the parameters, and the store to read.

Handlers are plain functions on a small thread pool, so a dashboard with many readers opens no more
connections to the store than the pool has threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from penstock.broker.checks import legible
from penstock.enqueue.ids import parse_id
from penstock.errors import PenstockError, Refused
from penstock.operate.actions import task_of
from penstock.operate.parse_input import parse_integer
from penstock.operate.refusals import NotFound
from penstock.operate.roles import Person
from penstock.web.checked_store import CheckedStore
from penstock.web.guard import SAFE, local_path

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task
    from penstock.web.site import Dashboard

T = TypeVar("T")


def id_in(text: object) -> str | None:
    """The text as an id; None if it is not one."""
    try:
        return parse_id(text) if isinstance(text, str) and text else None
    except Refused:
        return None


MOST_FIELDS = 2000
_LAST_PAGE = 1_000_000  # of a list


class Malformed(PenstockError):
    """The request cannot be read."""


class WebRequest:
    """One request."""

    def __init__(self, site: Dashboard, request: Request, person: Person, body: bytes) -> None:
        self.site = site
        self.http = request
        self.person = person
        self.body = body
        self.root: str = request.scope.get("root_path", "")

    @cached_property
    def store(self) -> CheckedStore:
        """The store with the person's role checked at each call; opened on first use."""
        return self.site.store_for(self.person, may_change=self.http.method not in SAFE)

    @property
    def app(self) -> App:
        """The app whose tasks can be enqueued here."""
        if self.site.app is None:
            raise Refused(
                "this dashboard was started without an app: start it as penstock dashboard TARGET"
            )
        return self.site.app

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """The app's tasks that the person may see, by name; none without an app."""
        app, only = self.site.app, self.person.only
        if app is None or only is None:
            return {} if app is None else app.tasks
        return {
            name: task for name, task in app.tasks.items() if only.sees(task.app_name, task.queue)
        }

    def task(self, name: str) -> Task[..., Any]:
        """The app's task of this name, if the person may see it."""
        if self.person.only is None:
            return task_of(self.app, name)
        found = self.app.task_named(name)
        if found is None or found.name not in self.tasks:
            raise Refused(f"there is no task {name[:200]!r} for {self.person.name}")
        return found

    # Parameters

    @property
    def query(self) -> Mapping[str, str]:
        return self.http.query_params

    @property
    def is_htmx(self) -> bool:
        """Whether htmx asks for a part of the page."""
        return self.http.headers.get("hx-request") == "true"

    def word(self, name: str, default: str = "") -> str:
        """A text of the query, without control characters."""
        return legible(self.query.get(name, default))

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query, within these bounds."""
        text = self.query.get(name)
        if text is None or not text:
            return default
        try:
            return parse_integer(text, name, least, most)
        except Refused as error:
            raise Malformed(str(error)) from None

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.http.path_params[name])

    def id(self, name: str = "id") -> str:
        """The id in a part of the path; 404 if it is not an id."""
        try:
            return parse_id(self.part(name))
        except Refused as error:
            raise NotFound(str(error)) from None

    def form(self) -> dict[str, str]:
        """The fields of a form; of a repeated field, the last value."""
        return dict(self.fields())

    def fields(self) -> list[tuple[str, str]]:
        """The fields of a form, in their order."""
        try:
            text = self.body.decode()
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except (UnicodeDecodeError, ValueError) as error:
            raise Malformed(f"the form cannot be read: {error}") from None
        return [(legible(name), legible(value)) for name, value in pairs]

    def json(self, kind: type[T]) -> T:
        """The body as this type."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            raise Refused(f"the body: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Malformed(f"the body is not JSON: {error}") from None

    # Answers

    def link(self, path: str, /, **query: Any) -> str:
        """The address of a page here; parameters that are None are left out."""
        given = urlencode([(name, value) for name, value in query.items() if value is not None])
        return f"{self.root}{path}" + (f"?{given}" if given else "")

    def pager(self, path: str, size: int, total: int, **query: Any) -> dict[str, Any]:
        """The first row of the requested page of a list, and links to the pages around it."""
        page = self.number("page", 1, 1, _LAST_PAGE)
        first = (page - 1) * size
        return {
            "first": first,
            "before": self.link(path, **query, page=page - 1) if page > 1 else None,
            "after": self.link(path, **query, page=page + 1) if first + size < total else None,
        }

    def page(self, template: str, status: int = 200, /, **values: Any) -> Response:
        """A page, or a part of one, from a template."""
        return HTMLResponse(self.site.rendered(template, self, **values), status)

    def go(self, path: str, /, **query: Any) -> Response:
        """Redirect to a page here: the answer to a form."""
        target = local_path(self.link(path, **query), self.root)
        return RedirectResponse(target, status_code=303)
