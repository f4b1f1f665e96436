"""Task: a function that can run later, with its policy.

    task(...)            a plain call, runs here           task.job(...)      a Job, a value
    task.enqueue(...)    stored, and type-checked alike    task.options(...)  the same, with options

A task is code; a job only names it. Its annotations are read at the first job, not at the
definition, so that they may mention what is defined further down.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Never, NoReturn, ParamSpec, TypeVar, Unpack

import msgspec

from penstock.app.resources import resources_of
from penstock.broker.queue_options import NOTHING, Options
from penstock.enqueue.codec import (
    ArgumentCodec,
    JobOptions,
    ResultCodec,
    read_body,
    retry_numbers,
)
from penstock.errors import Refused
from penstock.job import DETACHED, Job
from penstock.run.decide import Policy, retry_of
from penstock.task.option_checks import (
    check_crash_budget,
    check_identifier,
    check_keep,
    check_moment,
    check_on_failure,
    check_priority,
    check_seconds,
    check_short_text,
    check_strategy,
    check_tags,
    check_task,
    check_texts,
    check_timeout,
    check_unique,
)
from penstock.task.option_types import EnqueueOptions, TaskOptions, check_options, names_of
from penstock.task.options import Chosen, Prepared
from penstock.task.retry import NO_RETRY, Retry
from penstock.task.signature import hints_of, name_of, signature_text

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.backfill import Backfill, Partition, Step

P = ParamSpec("P")
R = TypeVar("R")

Mode = Literal["async", "thread", "process"]
_OPTIONS = names_of(EnqueueOptions)


class Task(Prepared[P, R]):
    """A function with its policy; made by `@app.task`. Its jobs return an R."""

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        *,
        declared: bool = False,
        app_name: str | None = None,
        names: Mapping[str, Any] | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        self.app = app
        self.function = function
        self.declared = declared  # its code lives elsewhere
        self._app_name = app_name and check_identifier("app", app_name)
        self.name = check_task("task", options.get("name") or _own_name(function))
        self.version = _check_version(self.name, options.get("version", 1))
        aliases = _several("aliases", options.get("aliases", ()))
        self.aliases = tuple(check_task("alias", alias) for alias in aliases)
        runs_on = _several("runs_on", options.get("runs_on", ()))
        self.runs_on = tuple(sorted(check_identifier("runs_on", tag) for tag in runs_on))
        self.search = _several("search", options.get("search", ()))
        self.secret = _several("secret", options.get("secret", ()))
        self.keep_secrets = _check_keep_secrets(self, options.get("keep_secrets"))
        self.keep_messages = bool(options.get("keep_messages"))
        self.at_most_once = bool(options.get("at_most_once"))
        self.detached = bool(options.get("detached"))
        self.max_memory = _check_memory(self.name, options.get("max_memory"))
        self.max_cpu = check_seconds("max_cpu", options.get("max_cpu"))
        if not self.detached and not (self.max_memory is self.max_cpu is None):
            raise Refused(
                f"task {self.name}: max_memory and max_cpu are for detached tasks, which have a"
                " process of their own: detached=True"
            )
        # So that a store finds these jobs without the code; in the tags, which it has indexed.
        self._marks: dict[str, str] = dict(DETACHED) if self.detached else {}
        self.keep = check_keep(options.get("keep"))
        self.timeout = check_timeout(options.get("timeout"))
        self.mode: Mode = _check_mode(self.name, function, options.get("mode"))
        self.resources = resources_of(function)
        self._check_fields()
        self.policy = Policy(
            retry=_check_retry(options.get("retry")) or NO_RETRY,
            on_success=check_strategy("on_success", options.get("on_success", "keep")),
            on_error=check_strategy("on_error", options.get("on_error", "keep")),
            on_timeout=check_strategy("on_timeout", options.get("on_timeout")),
            keep=self.keep,
        )
        said = ("retry", "on_success", "on_error", "on_timeout", "keep")
        self._own_policy = {name for name in said if options.get(name) is not None}
        self._policies: dict[str, tuple[Options, Policy]] = {}
        self._names = names or {}
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        chosen = Chosen(
            queue=check_identifier("queue", options.get("queue", "default")),
            priority=check_priority(options.get("priority", 0)),
            tags={**check_tags(options.get("tags")), **self._marks},
            body=JobOptions(
                secret=self.secret,
                keep_secrets=self.keep_secrets,
                crash_budget=check_crash_budget(options.get("crash_budget")),
            ),
        )
        self.queue = chosen.queue
        super().__init__(self, chosen)

    if TYPE_CHECKING:  # each of the two kinds below says what its call gives

        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...

    def __repr__(self) -> str:
        return f"<task {self.name}>"

    @property
    def app_name(self) -> str:
        """The program whose workers run its jobs: its app's own, or the one it is declared with."""
        return self.app.name if self._app_name is None else self._app_name

    @cached_property
    def signature_text(self) -> str:
        """The call as a person writes it, without resources."""
        return signature_text(self.function, self.resources)

    @cached_property
    def codec(self) -> ArgumentCodec:
        """How its arguments are stored."""
        return ArgumentCodec(self.function, self.resources, self._names)

    @cached_property
    def results(self) -> ResultCodec:
        """How its results are stored."""
        annotation = hints_of(self.function, self._names, ("return",)).get("return", Any)
        return ResultCodec(None if annotation in (Never, NoReturn) else annotation)

    def timeout_of(self, job: Job[Any]) -> float | None:
        """How long this job may run, in seconds; None is for ever."""
        if b'"timeout"' in job.body:
            try:
                timeout = read_body(job.body).timeout
            except Refused:
                timeout = None
            if timeout is not None:
                return timeout
        if self.timeout is not None:
            return self.timeout
        return self.app.queues.of(job.queue).timeout or None

    def policy_in(self, queue: str) -> Policy:
        """Its policy; where it says nothing, that of the queue of the job."""
        options = self.app.queues.of(queue)
        if options is NOTHING:
            return self.policy
        known = self._policies.get(queue)
        if known is None or known[0] is not options:
            known = self._policies[queue] = (options, self._policy_under(options))
        return known[1]

    @property
    def said(self) -> set[str]:
        """Which options of its queue it says itself."""
        return self._own_policy | ({"timeout"} if self.timeout is not None else set())

    def _policy_under(self, options: Options) -> Policy:
        fields: dict[str, Any] = {
            name: getattr(options, name)
            for name in ("on_success", "on_error", "on_timeout", "keep")
            if name not in self._own_policy and getattr(options, name)
        }
        if isinstance(options.keep, float) and "keep" not in self._own_policy:
            fields["keep"] = options.keep  # also if it is 0
        if options.retry and "retry" not in self._own_policy:
            fields["retry"] = retry_of(options.retry, NO_RETRY)
        return msgspec.structs.replace(self.policy, **fields)

    def options(self, **options: Unpack[EnqueueOptions]) -> Prepared[P, R]:
        """The task with options for its next jobs.

        They are those of `penstock.task.option_types.EnqueueOptions`; what is left out is as the
        task says.
        """
        check_options("options", _OPTIONS, options)
        delay, at, retry = options.get("delay"), options.get("at"), options.get("retry")
        queue, priority = options.get("queue"), options.get("priority")
        if delay is not None and at is not None:
            raise Refused("delay and at both say when the job runs: give one of them")
        unique_for = check_seconds("unique_for", options.get("unique_for"))
        own = self._chosen
        chosen = Chosen(
            queue=own.queue if queue is None else check_identifier("queue", queue),
            priority=own.priority if priority is None else check_priority(priority),
            delay=check_seconds("delay", delay),
            at=check_moment("at", at),
            late=_check_late(options.get("late", False), timed=not (delay is at is None)),
            key=check_short_text("key", options.get("key")),
            unique=check_unique(
                options.get("unique"),
                options.get("unique_until", "ended"),
                unique_for,
                replace=options.get("replace", False),
            ),
            tags={**own.tags, **check_tags(options.get("tags")), **self._marks},
            expires=check_seconds("expires", options.get("expires")),
            body=JobOptions(
                headers=check_texts("headers", options.get("headers")),
                timeout=check_timeout(options.get("timeout")),
                retry=None if retry is None else retry_numbers(self._own_retry(retry)),
                on_success=check_strategy("on_success", options.get("on_success")),
                on_error=check_strategy("on_error", options.get("on_error")),
                on_timeout=check_strategy("on_timeout", options.get("on_timeout")),
                crash_budget=check_crash_budget(options.get("crash_budget"))
                or own.body.crash_budget,
                secret=self.secret,
                keep_secrets=self.keep_secrets,
            ),
            connection=options.get("connection"),
            on_failure=check_on_failure(options.get("on_failure")),
        )
        return Prepared(self, chosen)

    def backfill(
        self,
        start: Partition | str,
        end: Partition | str,
        *,
        max_running: int | None = 4,
        skip_done: bool = True,
        step: Step | None = None,
    ) -> Backfill:
        """A job for each partition from `start` to `end`, both included; printed it is a grid.

        A partition is the first argument: a date (given as such or as "2026-01-31"), a datetime or
        an int, `step` apart (a day, an hour, 1). Asked again, also by several at once, no partition
        has two jobs: what waits or runs is left alone, what failed is tried again, and what is done
        stays done, or with `skip_done=False` runs once more. At most `max_running` of them run at a
        time over all workers, by a limit per key that stays with the task.
        """
        from penstock.task.backfill import backfill

        return backfill(self, start, end, max_running=max_running, skip_done=skip_done, step=step)

    def _own_retry(self, retry: Retry) -> Retry:
        checked = _check_retry(retry) or NO_RETRY
        for name in ("on", "never"):
            given = getattr(checked, name)
            if given not in (getattr(NO_RETRY, name), getattr(self.policy.retry, name)):
                raise Refused(
                    f"options(retry=Retry({name}=...)): exception classes are code and stay with"
                    f" the task; set {name} there, and the numbers here"
                )
        return checked

    def _check_fields(self) -> None:
        arguments = inspect.signature(self.function).parameters.keys() - self.resources.keys()
        searched = [("search", path, path.partition(".")[0]) for path in self.search]
        hidden = [("secret", name, name) for name in self.secret]
        for what, given, argument in (*searched, *hidden):
            if argument not in arguments:
                raise Refused(
                    f"task {self.name}: {what}={given!r} names no argument of"
                    f" {signature_text(self.function, self.resources)}"
                )
        for _, path, argument in searched:
            if argument in self.secret:
                raise Refused(
                    f"task {self.name}: search={path!r} is of a secret argument: what is searched"
                    " for stands in an index, as it is"
                )


class PlainTask(Task[P, R]):
    """A task over a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """A plain call: runs here and now, with its resources filled in."""
        if not self.resources:
            return self.function(*args, **kwargs)
        missing = _missing(self, args, kwargs)
        return self.function(*args, **kwargs, **self.app.resources.fill(missing))


class AsyncTask(Task[P, R]):
    """A task over an `async def` function; a plain call is awaited."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        missing = _missing(self, args, kwargs) if self.resources else {}
        return await self.function(*args, **kwargs, **await self.app.resources.fill_async(missing))


def _missing(
    task: Task[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    given = inspect.signature(task.function).bind_partial(*args, **kwargs).arguments
    return {name: each for name, each in task.resources.items() if name not in given}


def stub(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the same signature that cannot be called: the code lives elsewhere."""

    def elsewhere(*_: Any, **__: Any) -> NoReturn:
        raise Refused(
            f"task {name} is only declared here, its code lives elsewhere;"
            " enqueue it, and a worker that has the code will run it"
        )

    elsewhere.__wrapped__ = function  # pyright: ignore[reportFunctionMemberAccess]  inspect follows it to the signature
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        setattr(elsewhere, attribute, getattr(function, attribute))
    return elsewhere


def _own_name(function: Callable[..., Any]) -> str:
    if function.__name__ == "<lambda>":
        raise Refused('a lambda has no name that jobs could mention; give it one: name="mail:send"')
    return name_of(function)


def _several(what: str, names: Collection[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise Refused(f'{what}={names!r}: several names, write {what}=("{names}",)')
    return tuple(names)


def _check_retry(retry: object) -> Retry | None:
    if retry is not None and not isinstance(retry, Retry):
        raise Refused(f"retry={retry!r}: write Retry(limit=3, delay=10)")
    return retry


def needs_keys(task: str) -> Refused:
    """The refusal of `keep_secrets` in an app without a key ring."""
    return Refused(
        f"task {task}: keep_secrets stores secrets after the end of a job, and only encrypted:"
        " give the app a key ring, App(keys=KeyRing(...)) or PENSTOCK_KEY_FILE"
    )


def _check_late(late: object, *, timed: bool) -> bool:
    if not isinstance(late, bool):
        raise Refused(f"late={late!r}: True or False")
    if late and not timed:
        raise Refused("late=True is about a job with a time: give delay=... or at=..., too")
    return late


def _check_keep_secrets(task: Task[..., Any], span: float | timedelta | None) -> float | None:
    seconds = check_seconds("keep_secrets", span)
    if seconds is None:
        return None
    if seconds == 0:
        raise Refused(
            f"task {task.name}: keep_secrets={span!r}: more than 0 seconds, or leave it out"
        )
    if not task.secret:
        raise Refused(f"task {task.name}: keep_secrets needs secret=(...), the arguments to keep")
    if not task.app.seals:
        raise needs_keys(task.name)
    return seconds


def _check_memory(name: str, max_memory: object) -> int | None:
    if max_memory is not None and (type(max_memory) is not int or max_memory <= 0):
        raise Refused(f"task {name}: max_memory={max_memory!r}: bytes, as 2 * 1024**3")
    return max_memory


def _check_version(name: str, version: object) -> int:
    if type(version) is not int or version < 1:
        raise Refused(f"task {name}: version={version!r}: a whole number from 1 up")
    return version


def _check_mode(name: str, function: Callable[..., Any], mode: str | None) -> Mode:
    if inspect.iscoroutinefunction(function):
        if mode not in (None, "async"):
            raise Refused(f"task {name}: mode={mode!r}, but an `async def` runs on the event loop")
        return "async"
    if mode not in (None, "thread", "process"):
        raise Refused(
            f'task {name}: mode={mode!r}: "thread" or "process"; an `async def` is async by itself'
        )
    return "process" if mode == "process" else "thread"
