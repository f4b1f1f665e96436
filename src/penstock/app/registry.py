"""What a program registers: its tasks, and what is called around their calls.

Tasks are known by name, so that a job never says what to import; two functions of one name are
refused when the second is made.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK
from penstock.job import Job
from penstock.schedules.registered import Schedules
from penstock.task.batch import AsyncBatchTask, PlainBatchTask
from penstock.task.dataset import DATASETS, Dataset, runner_of
from penstock.task.file_task import FileTask, folders_of, function_for
from penstock.task.option_types import (
    BatchOptions,
    DatasetOptions,
    DeclareOptions,
    TaskOptions,
    check_options,
    names_of,
)
from penstock.task.signature import check_function, name_of, visible_names
from penstock.task.task import AsyncTask, PlainTask, Task, stub

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.enqueue.tracing import Tracing

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Hook = Literal["claimed", "succeeded", "failed", "timed_out", "crashed", "expired", "cancelled"]
_HOOKS: tuple[Hook, ...] = get_args(Hook)
_TASK, _BATCH, _DECLARE = map(names_of, (TaskOptions, BatchOptions, DeclareOptions))
_DATASET = names_of(DatasetOptions)
_TASKS, _BATCH_TASKS = (PlainTask, AsyncTask), (PlainBatchTask, AsyncBatchTask)


class TaskMaker(Protocol):
    """`@app.task(...)` with options: makes a Task of the function below it."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]  the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class BatchTaskMaker(Protocol):
    """`@app.batch_task(...)`: makes a BatchTask of the function below it."""

    # The first that fits is meant, from the narrowest result to the widest.
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /
    ) -> AsyncBatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> AsyncBatchTask[T, R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception] | None]], /
    ) -> AsyncBatchTask[T, R | None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> PlainBatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R | Exception]], /
    ) -> PlainBatchTask[T, R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Sequence[R | Exception] | None], /
    ) -> PlainBatchTask[T, R | None]: ...


class SparkTaskMaker(Protocol):
    """`@app.task(spark=True)`: the function's first parameter is the session, the task's is not."""

    def __call__(
        self, function: Callable[Concatenate[SparkSession, P], R], /
    ) -> PlainTask[P, R]: ...


class DatasetMaker(Protocol):
    """`@app.dataset(...)`: makes a Dataset of the function below it."""

    def __call__(
        self, function: Callable[Concatenate[SparkSession, P], DataFrame], /
    ) -> Dataset[P]: ...


class Registry:
    """The tasks of a program, its hooks and its middleware."""

    schedules: Schedules

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}
        self._aliases: dict[str, Task[..., Any]] = {}
        self.task_places: dict[str, str] = {}  # of those that are not named after their function
        self.datasets: dict[str, Dataset[...]] = {}
        self.hooks: dict[str, tuple[Callable[..., Any], ...]] = {}
        self.middlewares: tuple[Callable[..., Any], ...] = ()
        self.async_middlewares: tuple[Callable[..., Any], ...] = ()
        self.enqueue_hooks: tuple[Callable[..., Any], ...] = ()
        self.tracing: Tracing | None = None  # None: off, and then this is all that it costs

    # Tasks

    @overload
    def task(  # pyright: ignore[reportOverlappingOverload]  the first that fits is meant
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskMaker: ...
    @overload
    def task(
        self,
        *,
        spark: Literal[True] | Callable[[], object],  # not what a checker without pyspark lacks
        **options: Unpack[TaskOptions],
    ) -> SparkTaskMaker: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        *,
        spark: Literal[True] | Callable[[], object] | None = None,
        **options: Unpack[TaskOptions],
    ) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue="mail", timeout=60)`.

        The options are those of `penstock.task.option_types.TaskOptions`. `spark`: the first
        parameter is a Spark session, given where the task runs; True for
        `penstock.spark.session()`, or a function that makes one.
        """
        check_options("@app.task", _TASK, options)
        if function is not None:
            return self._make(function, _caller(), _TASKS, options, spark)
        return self._maker(_TASKS, options, spark)

    def batch_task(self, *, size: int, **options: Unpack[BatchOptions]) -> BatchTaskMaker:
        """Make a task of a function that takes the jobs of up to `size` calls at once, as a list.

        A worker calls it when `size` jobs are there (with `by_key`: of one key), or `linger`
        seconds after the first. It returns a list with an entry for each of them, in order: a value
        succeeds the job, an exception fails it, as if raised by it alone, RetryLater puts it back.
        None: all succeeded. What it raises fails them all, and then each is called alone.
        """
        check_options("@app.batch_task", _BATCH, options)
        return cast("BatchTaskMaker", self._maker(_BATCH_TASKS, {**options, "size": size}))

    def file_task(
        self, *folders: str | os.PathLike[str], **options: Unpack[TaskOptions]
    ) -> FileTask[Concatenate[str, ...], Any]:
        """Make a detached task that runs Python files below these folders, and no others.

        A job names a file by its absolute path, and the arguments of its function `main`, which is
        called in a folder of the job's own. What that returns is the result. The options are those
        of `penstock.task.option_types.TaskOptions`; the name is "run_file".
        """
        check_options("app.file_task", _TASK, options)
        name = options.get("name") or "run_file"
        if name in self.tasks:
            raise Refused(f"app.file_task(name={name!r}): there is a task of that name already")
        allowed = folders_of(folders)
        function = function_for(cast("Any", self), allowed)
        given: dict[str, Any] = {**options, "name": name, "detached": True}
        task = self._make(function, _caller(), (FileTask, AsyncTask), given, None)
        file_task = cast("FileTask[Concatenate[str, ...], Any]", task)
        file_task.folders = allowed
        return file_task

    def dataset(self, **options: Unpack[DatasetOptions]) -> DatasetMaker:
        """Make a dataset of a function of (spark, interval, inputs...) that returns a frame.

        `partition="day"` and `table="lake/rides"` are required. Each partition is made by a job,
        and committed once. The options are those of `penstock.task.option_types.DatasetOptions`.
        """
        check_options("@app.dataset", _DATASET, options)
        frame = _caller()

        def make(function: Any) -> Dataset[...]:
            check_function(function)
            dataset: Dataset[...] = Dataset(cast("Any", self), function, options)
            task_options: dict[str, Any] = {
                "queue": DATASETS,
                **{name: value for name, value in options.items() if name in _TASK},
            }
            runner = runner_of(dataset)
            dataset.task = self._make(runner, frame, _TASKS, task_options, None)
            self.schedules.adopt(function, dataset.task)
            self.datasets[dataset.name] = dataset
            return dataset

        return cast("DatasetMaker", make)

    def declare(self, name: str, **options: Unpack[DeclareOptions]) -> TaskMaker:
        """Over a typed stub: a task whose code lives elsewhere; enqueued, not run, here."""
        check_options("@app.declare", _DECLARE, options)
        given: dict[str, Any] = {**options, "name": name, "declared": True}
        given["app_name"] = given.pop("app", None)
        return cast("TaskMaker", self._maker(_TASKS, given))

    def _maker(
        self, kinds: tuple[Any, Any], options: Mapping[str, Any], spark: Any = None
    ) -> Callable[[Any], Task[..., Any]]:
        def make(function: Any) -> Task[..., Any]:
            return self._make(function, _caller(), kinds, options, spark)

        return make

    def _make(
        self,
        function: Any,
        frame: Any,
        kinds: tuple[Any, Any],
        options: Mapping[str, Any],
        spark: Any,
    ) -> Task[..., Any]:
        check_function(function)
        written = function
        kind = kinds[inspect.iscoroutinefunction(function)]
        names = visible_names(function, frame)
        if spark:
            from penstock.spark.task import spark_function

            detached = bool(options.get("detached"))
            function = spark_function(cast("Any", self), function, spark, detached=detached)
        if options.get("declared"):
            function = stub(options["name"], function)
        task: Task[..., Any] = kind(self, function, names=names, **options)
        self._register(task)
        self.schedules.adopt(written, task)
        return task

    def _register(self, task: Task[..., Any]) -> None:
        for name in (task.name, *task.aliases):
            if name == WAIT_TASK:
                raise Refused(f"a task cannot be called {name}: that is what wait_for(...) makes")
            other = self.task_named(name)
            if other is not None and _origin(other) != _origin(task):
                raise Refused(
                    f"two tasks are called {name}: {_origin(other)} and {_origin(task)};"
                    " give one of them another name=..."
                )
        self.tasks[task.name] = task
        self._aliases.update(dict.fromkeys(task.aliases, task))
        place = name_of(task.function)
        if not task.declared:
            names = {task.name, *task.aliases} - {place}
            self.task_places = {**self.task_places, **dict.fromkeys(names, place)}

    def task_named(self, name: str) -> Task[..., Any] | None:
        """The task of this name, or one that once had it; None if there is none."""
        return self.tasks.get(name) or self._aliases.get(name)

    def task_of(self, job: Job[Any]) -> Task[..., Any] | None:
        """The task that this job is a call of; None if this program does not have it."""
        task = self.task_named(job.task)
        return None if task is None or task.app_name != job.app else task

    def known_tasks(self, *, detached: bool | None = None) -> dict[str, int]:
        """What workers of this app can run: names, aliases too, each with its version.

        `detached`: only those tasks that are, or only those that are not.
        """
        known = {**self._aliases, **self.tasks}
        return {
            name: task.version
            for name, task in known.items()
            if not task.declared and detached in (None, task.detached)
        }

    # Around the calls

    def hook(self, kind: Hook) -> Callable[[F], F]:
        """Call the function when a job was "claimed", or an attempt or the job itself has ended.

        "succeeded", "failed", "timed_out" and "crashed" are ends of an attempt: `outcome.state`
        says whether the job will run again. "expired" and "cancelled" are ends of the job. It gets
        the job, and the outcome unless it was claimed. What it raises is logged, and changes
        nothing.
        """
        if kind not in _HOOKS:
            raise Refused(f"hook({kind!r}): there are {', '.join(_HOOKS)}")

        def add(function: F) -> F:
            self.hooks = {**self.hooks, kind: (*self.hooks.get(kind, ()), function)}
            return function

        return add

    def middleware(self, function: F) -> F:
        """Wrap every call: `function(call_next, job)` returns `call_next()`, or does otherwise.

        A plain function wraps plain tasks; an `async def` one wraps `async def` tasks and awaits
        `call_next()`. The first one registered is the outermost. `current_job()` is there.
        """
        if inspect.iscoroutinefunction(function):
            self.async_middlewares = (*self.async_middlewares, function)
        else:
            self.middlewares = (*self.middlewares, function)
        return function

    def on_enqueue(self, function: F) -> F:
        """Call `function(headers, task)` whenever jobs are made, once per `enqueue_many`.

        It may add headers, such as a tenant or a trace id, that the job then finds in
        `current_job().headers`.
        """
        self.enqueue_hooks = (*self.enqueue_hooks, function)
        return function


def _caller() -> Any:
    return sys._getframe(2)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  to see the names around a nested task


def _origin(task: Task[..., Any]) -> str:
    code = task.function if not task.declared else task.__wrapped__
    return f"{code.__module__}.{code.__qualname__}"
