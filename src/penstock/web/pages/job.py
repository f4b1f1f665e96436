"""The page of one job: what `operate.job_view` reads, with its attempts as bars, and actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.responses import Response

from penstock.enqueue.secrets import is_sealed
from penstock.errors import Refused
from penstock.operate.bulk_actions import allowed_actions
from penstock.operate.job_view import Attempt, JobView, view_job
from penstock.operate.refusals import Conflict
from penstock.operate.sentences import left_unchanged_text, secrets_gone_text
from penstock.run.error_text import traceback_in
from penstock.run.traceback_frames import own_frames
from penstock.web.request import WebRequest

MOST_LINES = 1000
FORM_PREFIX = "secret."  # in a form, before the name of the argument


class AttemptBar(NamedTuple):
    """An attempt on the timeline, in thousandths of the width."""

    left: float = 0.0
    width: float = 0.0
    due: float = 0.0  # where its wait begins


def show(request: WebRequest) -> Response:
    return _page(request)


def _page(request: WebRequest, typed: str | None = None, mistake: str = "") -> Response:
    """The page; after a refused copy with the arguments that were `typed`, and the mistake."""
    store, id = request.store, request.id()
    view = view_job(store, id)
    job = view.job
    bars, spread = _timeline(view, store.now)
    error = _error(view)
    task = None if job is None or request.site.app is None else request.site.app.task_of(job)
    return request.page(
        "job.html",
        422 if mistake else 200,
        title=id if job is None else f"{job.task} {id}",
        cli=f"penstock show {id}",
        view=view,
        id=id,
        job=job,
        why=view.why,
        member=view.place,
        attempts=view.attempts,
        bars=bars,
        spread=spread,
        error=error,
        frames=own_frames(traceback_in(error)),
        lines=view.lines[-MOST_LINES:],
        allowed=set() if job is None else allowed_actions(job),
        gone_secrets=store.gone_secrets(id),
        sealed=job is not None and is_sealed(job.body),
        signature=None if task is None else task.signature_text,
        hidden=request.site.hide_arguments,
        typed=typed,
        mistake=mistake,
    )


def _error(view: JobView) -> str:
    """The error that the job has now, else that of its last attempt."""
    if view.job is not None and view.job.error:
        return view.job.error
    return (view.attempts[-1].error or "") if view.attempts else ""


def action(verb: str) -> Callable[[WebRequest], Response]:
    """Cancel, retry or delete it."""

    def act(request: WebRequest) -> Response:
        id, form = request.id(), request.form()
        secrets = {
            name.removeprefix(FORM_PREFIX): value
            for name, value in form.items()
            if name.startswith(FORM_PREFIX) and value
        }
        result = request.store.act(verb, [id], form.get("reason", ""), secrets=secrets)
        if result.secrets_gone:
            raise Conflict(secrets_gone_text(id, request.store.gone_secrets(id)))
        if result.left:
            raise Conflict(left_unchanged_text(id, request.store.why(id).sentence))
        return request.go(f"/jobs/{id}")

    return act


def copy(request: WebRequest) -> Response:
    """A new job like this one, with the arguments that were typed."""
    form = request.form()
    typed = form.get("arguments")
    try:
        made = request.store.copy(request.id(), request.site.app, typed, form.get("reason", ""))
    except Refused as error:
        return _page(request, typed, str(error))
    return request.go(f"/jobs/{made}")


def _timeline(view: JobView, now: float) -> tuple[list[AttemptBar], float]:
    """A bar for each attempt, and the seconds that the whole timeline covers."""
    attempts, job = view.attempts, view.job
    starts = [each.started_at for each in attempts if each.started_at is not None]
    if not starts:
        return [AttemptBar() for _ in attempts], 0.0
    first = min([*starts, job.enqueued_at] if job is not None and job.enqueued_at else starts)
    whole = max(max(each.ended_at or now for each in attempts) - first, 1e-6)
    return [_bar(each, first, whole, now) for each in attempts], whole


def _bar(each: Attempt, first: float, whole: float, now: float) -> AttemptBar:
    if each.started_at is None:
        return AttemptBar()
    left = 992 * (each.started_at - first) / whole
    return AttemptBar(
        left,
        max(8.0, 1000 * ((each.ended_at or now) - each.started_at) / whole),
        max(0.0, left - 992 * (each.waited or 0.0) / whole),
    )
