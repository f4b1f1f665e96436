"""The options of tasks, of their jobs and of their schedules: each name, type and meaning, once.

Signatures take them as `**options: Unpack[...]`, so that editors and type checkers know them;
`check_options` refuses any other keyword where nobody checked the types. The default of an option
stands in its line here, and is applied where the option is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Generic, Literal, Never, TypedDict, TypeVar

from penstock.flows.flow import OnFailure
from penstock.schedules.schedule import Missed, Overlap
from penstock.task.retry import Retry, Strategy

Unset = TypeVar("Unset")  # None for jobs, where it means "as the task says"; Never for tasks


class _Placing(TypedDict, Generic[Unset], total=False):
    """Of tasks, also declared ones, and of jobs."""

    queue: str | Unset
    """Where its jobs wait; "default"."""
    priority: int | Unset
    """-100 to 100, higher goes first; 0."""
    tags: Mapping[str, str] | None
    """Texts to find jobs by."""


class _Ending(TypedDict, Generic[Unset], total=False):
    """Of tasks with code, and of jobs."""

    timeout: float | timedelta | None
    """How long an attempt may run, in seconds; None: for ever."""
    retry: Retry | None
    """Which exceptions are tried again, when and how often; None: none for a task."""
    on_success: Strategy | Unset
    """What becomes of a job that succeeded; "keep"."""
    on_error: Strategy | Unset
    """What becomes of one that failed, with no retry left; "keep"."""
    on_timeout: Strategy | None
    """What becomes of one that ran out of time; None: it is an error."""
    crash_budget: int | None
    """How many crashes of its process end a job; None: as its queue or app says, else 3."""


class _Describing(_Placing[Never], total=False):
    """Of every task."""

    version: int
    """Counts up when arguments change meaning: a worker is handed no newer job than it knows; 1."""
    runs_on: Collection[str]
    """Worker tags that it requires."""
    search: Collection[str]
    """Argument fields that `find` has indexed."""
    secret: Collection[str]
    """Arguments that are never logged or shown."""
    keep_secrets: float | timedelta | None
    """Seconds that a failed or cancelled job keeps them, encrypted: for a retry; None: not."""


class _Detachable(TypedDict, total=False):
    detached: bool
    """It runs in a process of its own, which goes on when the worker is restarted; False."""


class DeclareOptions(_Describing, _Detachable, total=False):
    """`@app.declare(name, ...)`."""

    app: str | None
    """The name of the program that runs it; None: one of this app's own name."""


class _Keeping(TypedDict, total=False):
    keep: float | timedelta | Literal["forever"] | None
    """Seconds that arguments and result stay after the end; None: as its queue says, or 14 days."""


class _WithCode(_Describing, _Ending[Never], _Keeping, total=False):
    """Of tasks whose code is here."""

    name: str | None
    """None: module:function."""
    aliases: Collection[str]
    """Names that the task had before."""
    keep_messages: bool
    """With `secret`: what an exception says is kept, and not only its class and place; False."""


class TaskOptions(_WithCode, _Detachable, total=False):
    """`@app.task(...)`."""

    mode: Literal["thread", "process"] | None
    """What a plain function runs in; None: a thread."""
    at_most_once: bool
    """A crash ends a job for good; False."""
    max_memory: int | None
    """Bytes above which a detached job is ended, with all that it started."""
    max_cpu: float | timedelta | None
    """Seconds of CPU time above which a detached job is ended, with all that it started."""


class BatchOptions(_WithCode, total=False):
    """`@app.batch_task(size=..., ...)`."""

    linger: float | timedelta
    """Seconds that the first job waits for others; 0."""
    by_key: bool
    """Only jobs of one key are handed over together; False."""


class DatasetOptions(TaskOptions, total=False):
    """`@app.dataset(...)`: those of a task, and what is a dataset's own."""

    partition: Literal["hour", "day", "week", "month"] | Sequence[str]
    """The intervals that it is made of, or names; required."""
    table: str | Path
    """The folder of its Delta table, relative to the project, or a URL as s3://…; required."""
    inputs: Sequence[Any]
    """Datasets, `dataset.past(n)`, names of datasets, functions of (spark, interval) or Source."""
    after: Sequence[Any]
    """Datasets that must be current before, without being an input; "previous": its own last."""
    check: Any
    """`Expect(...)`, a function of the frame that counts bad rows, or several of them."""
    zone: str
    """Whose midnight begins a day; that of its first input, or "UTC"."""
    start: str | date | datetime | None
    """The first partition; None: that of its inputs."""
    freshness: float | timedelta | None
    """Seconds after the end of an interval by which it is to be current."""
    spark: Mapping[str, Any] | Callable[[], Any] | None
    """Settings of its Spark session, or a function that makes one."""


class EnqueueOptions(_Placing[None], _Ending[None], total=False):
    """`task.options(...)`."""

    delay: float | timedelta | None
    """Seconds from now until it may run."""
    at: datetime | None
    """When it may run, with a time zone; instead of `delay`."""
    late: bool
    """No job is there before its time: none is found, counted or explained; False."""
    key: str | None
    """What the job is about: rules, limits and order may go by it."""
    unique: str | None
    """While a job under this key stands, no second one is stored."""
    unique_for: float | timedelta | None
    """Seconds that `unique` holds at the most."""
    unique_until: Literal["started", "ended", "time"]
    """How long `unique` holds; "ended"."""
    replace: bool
    """A second job under `unique` takes the place of the first until that is claimed; False."""
    headers: Mapping[str, str] | None
    """Texts that the job carries, for `current_job().headers`."""
    expires: float | timedelta | None
    """Seconds from now after which it is not begun any more."""
    connection: Any
    """Joins the caller's transaction: the job is there if, and only if, that commits."""
    on_failure: OnFailure | None
    """When a job that it needs did not succeed: "cancel" it, or "continue"; None: as the flow."""


class QueueDeclaration(_Ending[None], _Keeping, total=False):
    """`app.queue(name, ...)`, `App(queue_defaults=...)`, and what `penstock.presets` are.

    Of its jobs, where their task and they themselves say nothing.
    """

    lease: float | timedelta | None
    """Seconds without a sign of life after which a worker's jobs are recovered; None: 15."""
    ordered: Literal["wait", "skip", "batch"] | None
    """One job of each key at a time, in order; after one failed, "wait" or "skip"; or a "batch"."""
    fair: bool
    """Keys take turns, so that none waits for all the jobs of another; False."""
    running: int | None
    """Most jobs that run at a time, over all workers together."""
    rate: str | tuple[int, float] | None
    """Most starts in a time: "10/s", "100/min", or (jobs, seconds)."""
    per_key: bool
    """`running` and `rate` count each key by itself; False."""
    relaxed: bool
    """Enqueue and settle do not wait for the disk, see the guarantees; False."""
    require: Collection[str]
    """Options that must be said, by a job, its task or its queue; a job without one is refused."""


class ScheduleOptions(TypedDict, total=False):
    """`@app.schedule(cron, ...)` and `app.schedules.put(name, task, cron, ...)`."""

    zone: str
    """Whose clocks a cron goes by; "UTC"."""
    every: float | timedelta | None
    """Seconds from slot to slot, instead of a cron."""
    at: datetime | None
    """Once, then, with a time zone; instead of a cron."""
    args: Sequence[Any]
    """Arguments of the call."""
    kwargs: Mapping[str, Any] | None
    """Arguments by name; a parameter `slot` that is left out receives the nominal time."""
    missed: Missed
    """Of slots that were missed, "one" (the last) runs, none ("skip") or "all"; "one"."""
    window: float | timedelta | None
    """Seconds after which a missed slot is missed for good; None: by `missed`."""
    overlap: Overlap
    """When the job before has not ended: "allow", "skip" the new one, "cancel" it; "allow"."""
    at_once: bool
    """Also when it is first put; False."""


def names_of(kind: Any) -> frozenset[str]:
    """The names of the options of one kind."""
    return frozenset(kind.__annotations__)


def check_options(what: str, known: frozenset[str], given: Iterable[str]) -> None:
    """Refuse a keyword that is no option, as Python does for a plain signature: TypeError."""
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"{what}({name}=...): there is no such option; {hint}")
