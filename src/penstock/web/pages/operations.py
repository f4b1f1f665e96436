"""Operations: everything that a filter means, counted first, then begun with a reason, and watched.

Above a hundred jobs the number has to be typed: nobody deletes a million by a slip.
"""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.broker.filter import words_of
from penstock.operate.refusals import Conflict
from penstock.web.bulk_operations import preview
from penstock.web.request import Asked

TYPED_ABOVE = 100


def show(asked: Asked) -> Response:
    return asked.page(
        "operations.html",
        title="Operations",
        cli="penstock history",
        operations=asked.site.operations.all(),
    )


def prepare(asked: Asked) -> Response:
    verb, text = asked.word("verb"), asked.word("q").strip()
    counted = preview(asked.verbs, verb, text)
    return asked.page(
        "operation_new.html",
        title=f"{verb.capitalize()} by filter",
        cli=f"penstock {verb} {shlex.join(words_of(text))}",
        counted=counted,
        typed=counted.more or counted.count > TYPED_ABOVE,
    )


def begin(asked: Asked) -> Response:
    form = asked.form()
    verb, text = form.get("verb", ""), form.get("q", "").strip()
    counted = preview(asked.verbs, verb, text)
    if counted.more or counted.count > TYPED_ABOVE:
        typed = form.get("typed", "").replace(",", "").strip()
        if typed != str(counted.count):
            raise Conflict(
                f"{counted.count:,} jobs match now, and {typed[:20] or 'nothing'!r} was typed: "
                "look at the number, and type it"
            )
    begun = asked.site.operations.begin(asked.verbs, counted, form.get("reason", ""))
    return asked.go(f"/operations/{begun.id}")


def one(asked: Asked) -> Response:
    operation = asked.site.operations.expected(asked.part("id"))
    part = asked.request.headers.get("hx-request") == "true"
    return asked.page(
        "operation_progress.html" if part else "operation.html",
        title=f"{operation.verb.capitalize()} by filter",
        cli=f"penstock {operation.verb} {shlex.join(words_of(operation.filter))}",
        operation=operation,
    )


def cancel(asked: Asked) -> Response:
    operation = asked.site.operations.expected(asked.part("id"))
    if not asked.site.operations.cancel(asked.verbs, operation.id):
        raise Conflict(f"operation {operation.id} has ended: {operation.state}")
    return asked.go(f"/operations/{operation.id}")
