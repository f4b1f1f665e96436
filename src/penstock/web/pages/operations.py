"""Operations by filter: the preview with its form, the progress, and the list.

Above a hundred jobs the number must be typed: nobody deletes a million by mistake.
"""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.broker.filter import words_of
from penstock.operate.refusals import Conflict
from penstock.web.bulk_operations import preview
from penstock.web.request import WebRequest

TYPED_ABOVE = 100


def show(request: WebRequest) -> Response:
    return request.page(
        "operations.html",
        title="Operations",
        cli="penstock history",
        operations=request.site.operations.all(request.person),
    )


def prepare(request: WebRequest) -> Response:
    verb, text = request.word("verb"), request.word("q").strip()
    counted = preview(request.store, verb, text)
    return request.page(
        "operation_new.html",
        title=f"{verb.capitalize()} by filter",
        cli=f"penstock {verb} {shlex.join(words_of(text))}",
        counted=counted,
        typed=counted.more or counted.count > TYPED_ABOVE,
    )


def begin(request: WebRequest) -> Response:
    form = request.form()
    verb, text = form.get("verb", ""), form.get("q", "").strip()
    counted = preview(request.store, verb, text)
    if counted.more or counted.count > TYPED_ABOVE:
        typed = form.get("typed", "").replace(",", "").strip()
        if typed != str(counted.count):
            raise Conflict(
                f"{counted.count:,} jobs match now, but {typed[:20] or 'nothing'!r} was typed: "
                "go back, check the number, and type it"
            )
    begun = request.site.operations.begin(request.store, counted, form.get("reason", ""))
    return request.go(f"/operations/{begun.id}")


def one(request: WebRequest) -> Response:
    operation = request.site.operations.expected(request.part("id"), request.person)
    return request.page(
        "operation_progress.html" if request.is_htmx else "operation.html",
        title=f"{operation.verb.capitalize()} by filter",
        cli=f"penstock {operation.verb} {shlex.join(words_of(operation.filter))}",
        operation=operation,
    )


def cancel(request: WebRequest) -> Response:
    operation = request.site.operations.cancel(request.store, request.part("id"))
    return request.go(f"/operations/{operation.id}")
