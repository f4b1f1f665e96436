"""The page Jobs: those that match a filter, newest first; the filter is part of the address."""

from __future__ import annotations

import shlex

from starlette.responses import Response

from penstock.broker.filter import parse_filter, words_of
from penstock.errors import Refused
from penstock.job import State
from penstock.web.request import WebRequest, id_in

PAGE = 50
MOST_SHOWN = 500


def show(request: WebRequest) -> Response:
    text = request.word("q").strip()
    if (id := id_in(text)) is not None:
        return request.go(f"/jobs/{id}")
    after, limit = request.word("after"), request.number("limit", PAGE, 1, MOST_SHOWN)
    arguments = request.word("arguments") == "shown"
    found, mistake, status = None, "", 200
    try:
        filter = parse_filter(words_of(text), request.store.now)
        found = request.store.find(filter, after or None, limit)
    except Refused as error:
        mistake, status = str(error), 422
    more, looked_at = None, 0
    if found is not None and found.after is not None:
        looked_at = found.examined if len(found.jobs) < limit else 0
        more = request.link(
            "/jobs", q=text or None, after=found.after, arguments="shown" if arguments else None
        )
    return request.page(
        "jobs_rows.html" if request.is_htmx and after else "jobs.html",
        status,
        title="Jobs",
        cli=f"penstock find {_quoted(text)}".rstrip(),
        q=text,
        after=after,
        arguments=arguments,
        mistake=mistake,
        jobs=[] if found is None else found.jobs,
        looked_at=looked_at,
        more=more,
        states=list(State),
    )


def _quoted(text: str) -> str:
    """The filter, quoted for a shell."""
    try:
        return shlex.join(words_of(text))
    except Refused:
        return shlex.quote(text)
