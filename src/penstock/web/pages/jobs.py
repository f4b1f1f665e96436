"""The page Jobs: those that match a filter, newest first; the filter is part of the address."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from starlette.responses import Response

from penstock.broker.filter import parse_filter, words_of
from penstock.errors import Refused
from penstock.job import Job, State
from penstock.operate.bulk_actions import BULK_VERBS
from penstock.operate.roles import Role
from penstock.operate.sentences import jobs_text
from penstock.rules.rule import Rule, RuleKind, rule_over_job
from penstock.web.checked_store import MOST_IDS
from penstock.web.request import WebRequest, id_in

PAGE = 50
MOST_SHOWN = 500


def show(request: WebRequest) -> Response:
    text = request.word("q").strip()
    if (id := id_in(text)) is not None:
        return request.go(f"/jobs/{id}")
    after, limit = request.word("after"), request.number("limit", PAGE, 1, MOST_SHOWN)
    # Who may act on jobs tells them apart by their arguments; others ask for them.
    wanted = request.word("arguments")
    acts = request.person.role >= Role.OPERATE and not request.site.hide_arguments
    arguments = wanted == "shown" or (acts and wanted != "hidden")
    found, mistake, status = None, "", 200
    try:
        filter = parse_filter(words_of(text), request.store.now)
        found = request.store.find(filter, after or None, limit)
    except Refused as error:
        mistake, status = str(error), 422
    more, looked_at = None, 0
    jobs: Sequence[Job[Any]] = () if found is None else found.jobs
    if found is not None and found.after is not None:
        looked_at = found.examined if len(found.jobs) < limit else 0
        more = request.link("/jobs", q=text or None, after=found.after, arguments=wanted or None)
    return request.page(
        "jobs_rows.html" if request.is_htmx and after else "jobs.html",
        status,
        title="Jobs",
        cli=f"penstock find {_quoted(text)}".rstrip(),
        q=text,
        after=after,
        arguments=arguments,
        asked=wanted or None,
        mistake=mistake,
        jobs=jobs,
        held=held_by_rules(request, jobs),
        acted=_acted(request),
        choosing=request.person.role >= Role.OPERATE,
        has_app=request.site.app is not None,
        looked_at=looked_at,
        more=more,
        states=list(State),
    )


def action(verb: str) -> Callable[[WebRequest], Response]:
    """Cancel, retry or delete the jobs that were chosen in the list."""

    def act(request: WebRequest) -> Response:
        fields = request.fields()
        ids = [value for name, value in fields if name == "id"]
        form = dict(fields)
        if not ids:
            raise Refused(f"{verb} what? Choose jobs in the list first")
        result = request.store.act(verb, ids, form.get("reason", ""))
        return request.go(
            "/jobs",
            q=form.get("q") or None,
            arguments=form.get("arguments") or None,
            verb=verb,
            done=len(result.done),
            left=len(result.left),
        )

    return act


def _acted(request: WebRequest) -> str:
    """What was done to chosen jobs, in a sentence: the answer to their form."""
    verb = BULK_VERBS.get(request.word("verb"))
    if verb is None:
        return ""
    done = request.number("done", 0, 0, MOST_IDS)
    left = request.number("left", 0, 0, MOST_IDS)
    asked = " or asked to stop" if verb.name == "cancel" else ""
    unchanged = f"; {jobs_text(left)} left as they were" if left else ""
    return f"{jobs_text(done)} {verb.done}{asked}{unchanged}."


def held_by_rules(request: WebRequest, jobs: Sequence[Job[Any]]) -> dict[str, list[Rule]]:
    """The pause or block over each due job, and the limit over it if jobs wait for that."""
    now = request.store.now
    due = [
        job
        for job in jobs
        if job.state is State.READY and (job.run_at is None or job.run_at <= now)
    ]
    if not due:
        return {}
    rules = [rule for rule in request.store.rules() if rule.in_force(now)]
    if not rules:
        return {}
    limits = [rule for rule in rules if rule.kind is RuleKind.LIMIT]
    waiting = {(count.queue, count.task) for count in request.store.count() if count.limited}
    held: dict[str, list[Rule]] = {}
    for job in due:
        over = rule_over_job(rules, job, now)
        found = [] if over is None else [over]
        if (job.queue, job.task) in waiting:
            found += [
                rule
                for rule in limits
                if rule.holds(job.queue, job.task, now)
                and (job.key is not None or not rule.per_key)
            ][:1]
        if found:
            held[job.id] = found
    return held


def _quoted(text: str) -> str:
    """The filter, quoted for a shell."""
    try:
        return shlex.join(words_of(text))
    except Refused:
        return shlex.quote(text)
