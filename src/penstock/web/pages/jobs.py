"""Jobs: found by the filter of the command line, which stays in the address; newest first."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.broker.filter import parse_filter, words_of
from penstock.errors import Refused
from penstock.job import State
from penstock.web.request import Asked, id_in

PAGE = 50
MOST_SHOWN = 500


def show(asked: Asked) -> Response:
    text = asked.word("q").strip()
    if (id := id_in(text)) is not None:
        return asked.go(f"/jobs/{id}")
    after, limit = asked.word("after"), asked.number("limit", PAGE, 1, MOST_SHOWN)
    arguments = asked.word("arguments") == "shown"
    found, mistake, status = None, "", 200
    try:
        wanted = parse_filter(words_of(text), asked.verbs.now)
        found = asked.verbs.find(wanted, after or None, limit)
    except Refused as error:
        mistake, status = str(error), 422
    more, looked_at = None, 0
    if found is not None and found.after is not None:
        looked_at = found.examined if len(found.jobs) < limit else 0
        more = asked.link(
            "/jobs", q=text or None, after=found.after, arguments="shown" if arguments else None
        )
    rows_only = asked.request.headers.get("hx-request") == "true" and bool(after)
    return asked.page(
        "jobs_rows.html" if rows_only else "jobs.html",
        status,
        title="Jobs",
        cli=f"penstock find {_typed(text)}".rstrip(),
        q=text,
        after=after,
        arguments=arguments,
        mistake=mistake,
        jobs=[] if found is None else found.jobs,
        looked_at=looked_at,
        more=more,
        states=list(State),
    )


def _typed(text: str) -> str:
    """The filter as one types it in a shell."""
    try:
        return shlex.join(words_of(text))
    except Refused:
        return shlex.quote(text)
