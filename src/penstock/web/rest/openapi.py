"""OpenAPI 3.1, generated from the table of routes and their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.app.version import RELEASE
from penstock.web.request import WebRequest
from penstock.web.route import Route

_REFERENCE = "#/components/schemas/{name}"


class Problem(msgspec.Struct):
    """What is wrong, in a sentence."""

    error: str


def show(request: WebRequest) -> dict[str, Any]:
    return document(request.site.routes, request.root)


def document(routes: Sequence[Route], root: str = "") -> dict[str, Any]:
    """The description of the routes under `/api`."""
    listed = [route for route in routes if route.path.startswith("/api/")]
    kinds = [kind for route in listed for kind in (route.takes, route.gives) if kind is not None]
    kinds += [parameter.kind for route in listed for parameter in route.parameters]
    schemas, components = msgspec.json.schema_components([*kinds, Problem], ref_template=_REFERENCE)
    by_kind = {id(kind): schema for kind, schema in zip([*kinds, Problem], schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in listed:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": RELEASE},
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, by_kind: dict[int, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": route.name.replace(" ", "_"),
        "summary": route.says,
        "description": f"Needs the role {route.role}.",
        "parameters": [
            {
                "name": each.name,
                "in": "path" if f"{{{each.name}}}" in route.path else "query",
                "required": f"{{{each.name}}}" in route.path or each.required,
                "description": each.says,
                "schema": by_kind[id(each.kind)],
            }
            for each in route.parameters
        ],
        "responses": {
            "200": _content("What was request for.", by_kind.get(id(route.gives), {})),
            "default": _content("What is wrong.", by_kind[id(Problem)]),
        },
    }
    if route.takes is not None:
        body = {"application/json": {"schema": by_kind[id(route.takes)]}}
        made["requestBody"] = {"required": True, "content": body}
    return made


def _content(says: str, schema: Any) -> dict[str, Any]:
    return {"description": says, "content": {"application/json": {"schema": schema}}}
