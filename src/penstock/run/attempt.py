"""Runs one attempt at a job and says where it leads: `run(app, task, job) -> Outcome`.

User code returns or raises; here that becomes a value, and only the worker writes it to the store.
Nothing that user code does gets out of here as an exception. The two ways in, for plain and for
`async def` functions, differ in one `await`; what comes before and after is shared.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.broker.values import RETENTION_SECONDS
from penstock.enqueue.codec import JobOptions, read_body
from penstock.enqueue.secrets import has_secrets, redact_text
from penstock.errors import (
    JobInterrupted,
    JobTimeout,
    PenstockError,
    Refused,
    RetryLater,
    WaitsForJobs,
)
from penstock.flows.compose import spawned
from penstock.flows.signals import with_deadlines
from penstock.flows.spawn_links import with_spawner
from penstock.job import Fault, Job, Outcome, Parcel, State
from penstock.run.current import CURRENT, CurrentJob
from penstock.run.decide import Policy, after_error, after_success, after_timeout, policy_for
from penstock.run.describe_error import Described, hides_messages, unsaid
from penstock.run.fill_outputs import STORE_SECONDS, NeedsGone, filled, has_room
from penstock.run.inherited_tags import inherited_tags
from penstock.run.other_release import seconds_until_next_try
from penstock.run.wait_for_jobs import outcome_of_waiting

if TYPE_CHECKING:
    import asyncio

    from penstock.app.app import App
    from penstock.task.task import Task

logger = logging.getLogger("penstock")

LastLook = Callable[[Job[Any]], Outcome | None]
Call = tuple[JobOptions, tuple[Any, ...], dict[str, Any]]


class Unreadable(Refused):
    """The body is not a call of this task."""


class Unstorable(Refused):
    """What the task returned cannot be stored."""


# The reason of the failure, and what it is called where the message is not kept.
_REASONS = {
    Unreadable: ("unreadable", "the stored arguments are not a call of this task"),
    Unstorable: ("unstorable", "what it returned cannot be stored"),
    NeedsGone: ("needs", "the output of a job that it needs is not kept any more"),
}


def run(
    app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook | None = None
) -> Outcome | None:
    """Call the task's function and say where the attempt leads. Never raises.

    None: the job settled itself through `transaction()`, or its settlement was refused as stale.
    `last_look` is asked when all is ready for the call, and later than `started_at`: what it
    returns stands instead of the call.
    """
    current = token = None
    try:
        current = CurrentJob(app, job, app.clock.now())
        token = CURRENT.set(current)
        if has_room(job.body):
            current.body = filled(app.broker, job)
        options, args, kwargs = decode_call(app, task, current)
        if task.resources:
            kwargs.update(app.resources.fill(task.resources))
        if last_look is not None and (instead := last_look(job)) is not None:
            return instead
        if app.middlewares:
            value = call_through(app.middlewares, job, partial(task.function, *args, **kwargs))
        else:
            value = task.function(*args, **kwargs)
        return outcome_of_value(app, task, current, options, value)
    except BaseException as error:
        return outcome_of_error(app, task, current or CurrentJob(app, job, app.clock.now()), error)
    finally:
        if token is not None:
            CURRENT.reset(token)


async def run_async(
    app: App, task: Task[..., Any], job: Job[Any], last_look: LastLook | None = None
) -> Outcome | None:
    """As `run`, for an `async def` function, on the running loop.

    Cancelling is told by its message, `task.cancel("timeout")` or `task.cancel("cancelled")`; any
    other means that the worker stops, and the job is put back.
    """
    import asyncio

    current = CurrentJob(app, job, app.clock.now())
    token = CURRENT.set(current)
    try:
        if has_room(job.body):
            current.body = await asyncio.to_thread(filled, app.broker, job)
        options, args, kwargs = decode_call(app, task, current)
        if task.resources:
            kwargs.update(await app.resources.fill_async(task.resources))
        if last_look is not None and (instead := last_look(job)) is not None:
            return instead
        if app.async_middlewares:
            call = partial(task.function, *args, **kwargs)
            value = await call_through(app.async_middlewares, job, call)
        else:
            value = await task.function(*args, **kwargs)
        return outcome_of_value(app, task, current, options, value)
    except asyncio.CancelledError as error:
        return outcome_of_error(app, task, current, meaning_of_cancellation(error))
    except BaseException as error:
        return outcome_of_error(app, task, current, error)
    finally:
        CURRENT.reset(token)


def timed_out(
    task: Task[..., Any], job: Job[Any], now: float, started_at: float, note: str = ""
) -> Outcome:
    """Where an attempt leads whose process had to be ended because its time was up."""
    text = f"{_timeout_headline(task, job)}{note and '; '}{note}"
    return after_timeout(_policy(task, job), job, text, now, started_at=started_at)


def decode_call(app: App, task: Task[..., Any], current: CurrentJob) -> Call:
    try:
        call = task.codec.read(current.body)
    except Refused as error:
        raise Unreadable(str(error)) from error
    if call[0].headers:
        current.headers = call[0].headers
    if app.hooks:
        fire(app, "claimed", current.job)
    return call


def call_through(
    middlewares: tuple[Callable[..., Any], ...], job: Job[Any], call: Callable[[], Any]
) -> Any:
    for middleware in reversed(middlewares):
        call = partial(middleware, call, job)
    return call()


def outcome_of_value(
    app: App, task: Task[..., Any], current: CurrentJob, options: JobOptions, value: Any
) -> Outcome | None:
    if current.waits is not None:  # the function caught what was to stop it
        return outcome_of_error(app, task, current, WaitsForJobs())
    try:
        results = task.results
        result = None if value is None and results.may_be_none else results.encode(value)
    except Refused as error:
        raise Unstorable(f"{error} (task {task.name}, {task.signature_text})") from error
    policy = policy_for(task.policy_in(current.job.queue), options)
    now = app.clock.now()
    outcome = after_success(policy, current.job, result, now, started_at=current.started_at)
    if options.flow is not None and outcome.state is State.SUCCEEDED:
        outcome = _keep_result_for_flow(outcome)
    if current.spawns:
        joins = None if options.flow is None else options.flow.id
        jobs, flow = spawned(current.spawns, joins)
        stored = _as_stored(app, current, jobs, now, flow=flow is not None)
        outcome = msgspec.structs.replace(outcome, spawned=stored, flow=flow)
    if current.open_transaction is not None:
        return _settle_in_transaction(app, current, outcome)
    current.close()
    if app.hooks:
        fire(app, "succeeded", current.job, outcome)
    return outcome


def _as_stored(
    app: App,
    current: CurrentJob,
    jobs: tuple[Job[Any] | Parcel, ...],
    now: float,
    *,
    flow: bool,
) -> tuple[Job[Any] | Parcel, ...]:
    """Jobs that are spawned, with what they have from the one that does so."""
    headed = with_spawner(jobs, current.id)
    stored = with_deadlines(inherited_tags(headed, flow=flow), now)
    return tuple(stored if app.tracing is None else app.tracing.spawned(current, stored))


def _keep_result_for_flow(outcome: Outcome) -> Outcome:
    """The success of a job of a flow: its result is kept for whoever needs it, as others are.

    A task that keeps its jobs for longer than the retention still does.
    """
    longer = outcome.keep_for is not None and outcome.keep_for > RETENTION_SECONDS
    keep_for = outcome.keep_for if longer else None
    if outcome.keep and keep_for == outcome.keep_for:  # as most: a new one would cost 0.5 us
        return outcome
    return msgspec.structs.replace(outcome, keep=True, keep_for=keep_for)


def _settle_in_transaction(app: App, current: CurrentJob, outcome: Outcome) -> Outcome | None:
    transaction = cast("Any", current.open_transaction)
    try:
        settled = transaction.settle(current.job, outcome)
    except PenstockError as error:
        # Committed or not, ready again is right: a job that ended is not held any more.
        logger.warning("job %s: its transaction failed: %s", current.id, error)
        current.roll_back()
        return _put_back_or_cancel(app, current, State.READY, "store")
    if not settled:
        logger.warning(
            "job %s: attempt %s is stale; its transaction was rolled back",
            current.id,
            current.attempt,
        )
    elif app.hooks:
        fire(app, "succeeded", current.job, outcome)
    return None


def outcome_of_error(
    app: App,
    task: Task[..., Any],
    current: CurrentJob,
    error: BaseException,
    described: Described | None = None,
) -> Outcome:
    job = current.job
    try:
        current.roll_back()
    except Exception as trouble:
        _log_raised(job, trouble, "job %s: its transaction could not be rolled back", job.id)
    current.close()
    if current.waits is not None and _is_of_waiting(error):
        error = WaitsForJobs()
    if isinstance(error, (RetryLater, WaitsForJobs, JobInterrupted)):
        return _outcome_of_stop(app, task, current, error)
    if described is None:
        message = unsaid(app, error) if hides_messages(task, current.body) else None
        described = Described(error, lambda text: redact_text(text, current.body), message)
    text, fault = described.text, described.fault
    # One that may run once has begun: it fails, where others begin anew.
    if app.patience.is_marked(error) and not job.at_most_once:
        logger.warning("job %s: the store was away for too long; the job is put back", job.id)
        return _put_back_or_cancel(
            app, current, State.READY, "store", after=STORE_SECONDS, note=text
        )
    now = app.clock.now()
    if isinstance(error, Unreadable) and (instead := _for_other_release(app, task, current, error)):
        return instead
    if isinstance(error, (Unreadable, Unstorable, NeedsGone)):
        reason, unnamed = _REASONS[type(error)]
        outcome = Outcome(
            State.FAILED,
            reason,
            error=_kept_text(app, task, current, error, str(error), unnamed),
            failures=1,
            started_at=current.started_at,
            ended_at=now,
        )
    elif isinstance(error, JobTimeout):
        text = described.under(_timeout_headline(task, job))
        fault = Fault("TimeoutError", fault.place)
        outcome = after_timeout(_policy(task, job), job, text, now, started_at=current.started_at)
    else:
        policy = _policy(task, job)
        outcome = after_error(policy, job, error, text, now, started_at=current.started_at)
    outcome = msgspec.structs.replace(outcome, fault=fault)
    fire(app, "timed_out" if isinstance(error, JobTimeout) else "failed", job, outcome)
    return outcome


def _is_of_waiting(error: BaseException) -> bool:
    """Whether a group says no more than that: of a TaskGroup, which cancelled its other tasks."""
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return all(map(_is_of_waiting, group.exceptions))
    return isinstance(error, WaitsForJobs)


def _outcome_of_stop(
    app: App,
    task: Task[..., Any],
    current: CurrentJob,
    error: RetryLater | WaitsForJobs | JobInterrupted,
) -> Outcome:
    """Where an attempt leads that stopped, and did not fail."""
    if isinstance(error, RetryLater):
        note = _kept_text(app, task, current, error, error.note) if error.note else None
        after = error.after if error.at is None else max(0.0, error.at - app.clock.now())
        return _put_back_or_cancel(app, current, State.READY, "later", after=after, note=note)
    if isinstance(error, WaitsForJobs):
        outcome, jobs = outcome_of_waiting(current, app.clock.now())
        stored = _as_stored(app, current, jobs, app.clock.now(), flow=True)
        return msgspec.structs.replace(outcome, spawned=stored)
    if error.args[:1] == ("cancelled",):
        outcome = _put_back_or_cancel(app, current, State.CANCELLED, "cancelled")
        fire(app, "cancelled", current.job, outcome)
        return outcome
    return _put_back_or_cancel(app, current, State.READY, "shutdown")


def _for_other_release(
    app: App, task: Task[..., Any], current: CurrentJob, error: Unreadable
) -> Outcome | None:
    """Put back if workers of another release may read the arguments."""
    job = current.job
    seconds = seconds_until_next_try(app, job)
    if seconds is None:
        return None
    logger.warning(
        "job %s: this release of %s cannot read its arguments; it is put back for %g s, for "
        "workers of another release that are alive",
        job.id,
        job.task,
        seconds,
    )
    note = _kept_text(app, task, current, error, str(error), _REASONS[Unreadable][1])
    return _put_back_or_cancel(app, current, State.READY, "unreadable", after=seconds, note=note)


def _kept_text(  # noqa: PLR0917  a text about an exception, and all that decides about it
    app: App,
    task: Task[..., Any],
    current: CurrentJob,
    error: BaseException,
    text: str,
    unnamed: str = "",
) -> str:
    """A text of an exception as it may be kept; `unnamed` says what it is about, if it may not."""
    if hides_messages(task, current.body):
        return f"{unnamed}{unnamed and ': '}{unsaid(app, error)}"
    return redact_text(text, current.body)


def _timeout_headline(task: Task[..., Any], job: Job[Any]) -> str:
    return f"TimeoutError: ran longer than its timeout of {task.timeout_of(job)} s"


def _put_back_or_cancel(
    app: App,
    current: CurrentJob,
    state: State,
    reason: str,
    *,
    after: float | None = None,
    note: str | None = None,
) -> Outcome:
    now = app.clock.now()
    return Outcome(
        state,
        reason,
        error=note,
        run_at=None if after is None else now + after,
        started_at=current.started_at,
        ended_at=now,
    )


def _policy(task: Task[..., Any], job: Job[Any]) -> Policy:
    policy = task.policy_in(job.queue)
    try:
        return policy_for(policy, read_body(job.body))
    except Refused:
        return policy


def meaning_of_cancellation(error: asyncio.CancelledError) -> BaseException:
    """What a cancellation by the worker means; one of something the task awaited is an error."""
    import asyncio

    running = asyncio.current_task()
    if running is None or not running.cancelling():
        return error
    message = error.args[0] if error.args else ""
    return (
        JobTimeout().with_traceback(error.__traceback__)
        if message == "timeout"
        else JobInterrupted(message)
    )


def fire(app: App, kind: str, job: Job[Any], *arguments: Any) -> None:
    """Call the hooks of one kind; what they raise, SystemExit too, changes nothing."""
    for hook in app.hooks.get(kind, ()):
        try:
            hook(job, *arguments)
        except (JobTimeout, JobInterrupted, KeyboardInterrupt):
            raise  # not the hook's own: thrown into this thread
        except BaseException as error:
            name = getattr(hook, "__name__", hook)
            _log_raised(job, error, "the hook %s for %s raised", name, kind)


def _log_raised(job: Job[Any], error: BaseException, message: str, *arguments: Any) -> None:
    """Log an error of a hook or a rollback; no traceback if the job has secrets."""
    if has_secrets(job.body):
        fault = Described(error, str).fault
        logger.error(message + ": %s at %s", *arguments, fault.exception, fault.place)  # noqa: G003  the caller's words first
    else:
        logger.error(message, *arguments, exc_info=error)
