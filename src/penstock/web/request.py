"""One request, as pages and REST see it: who asks, for what, and the verbs to answer it with.

Handlers are plain functions on a small pool of threads: a dashboard with many readers opens no more
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
from penstock.operate.refusals import NotFound
from penstock.operate.roles import Person
from penstock.operate.typed_values import number_of
from penstock.web.guard import SAFE, local
from penstock.web.verbs import Verbs

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.web.site import Dashboard

T = TypeVar("T")


def id_in(text: object) -> str | None:
    """The id, if that is what it is."""
    try:
        return parse_id(text) if isinstance(text, str) and text else None
    except Refused:
        return None


MOST_FIELDS = 2000
_FARTHEST = 1_000_000  # page of a list


class Malformed(PenstockError):
    """The request cannot be read."""


class Asked:
    """One request."""

    def __init__(self, site: Dashboard, request: Request, person: Person, body: bytes) -> None:
        self.site = site
        self.request = request
        self.person = person
        self.body = body
        self.root: str = request.scope.get("root_path", "")

    @cached_property
    def verbs(self) -> Verbs:
        """What the person may do to the store, which this opens if nobody did before."""
        return Verbs(
            self.site.broker,
            self.person,
            may_change=self.request.method not in SAFE,
            hide_arguments=self.site.hide_arguments,
            counting=self.site.counting,
        )

    @property
    def app(self) -> App:
        """The app whose tasks can be enqueued here."""
        if self.site.app is None:
            raise Refused("this dashboard knows no tasks: penstock dashboard TARGET names the app")
        return self.site.app

    # What was asked for

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query_params

    def word(self, name: str, default: str = "") -> str:
        """A text of the query, as a store can be asked for it."""
        return legible(self.query.get(name, default))

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number of the query; refused if it is none, or not within these bounds."""
        text = self.query.get(name)
        if text is None or not text:
            return default
        try:
            return number_of(text, name, least, most)
        except Refused as error:
            raise Malformed(str(error)) from None

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])

    def id(self, name: str = "id") -> str:
        """The id that a part of the path names; what is none is not there."""
        try:
            return parse_id(self.part(name))
        except Refused as error:
            raise NotFound(str(error)) from None

    def form(self) -> dict[str, str]:
        """The fields of a form; of one that stands in it twice, the last."""
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
        """The address of a page here; what is None is left out."""
        given = urlencode([(name, value) for name, value in query.items() if value is not None])
        return f"{self.root}{path}" + (f"?{given}" if given else "")

    def pager(self, path: str, size: int, total: int, **query: Any) -> dict[str, Any]:
        """Which rows of a list are on the page that was asked for, and where others are."""
        page = self.number("page", 1, 1, _FARTHEST)
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
        """What a form that did something answers: look there."""
        target = local(self.link(path, **query), self.root)
        return RedirectResponse(target, status_code=303)
