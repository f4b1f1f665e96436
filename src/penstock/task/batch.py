"""Batch tasks: a function that takes many jobs in one call, and says of each what became of it.

To everybody else a batch task is a task of one argument: `function` is a call for a single job,
made of the one for many, so that jobs are stored, tried alone and tested as those of any other
task. Only a worker that has gathered several makes the call of `many`, see `run.batch`.
"""

from __future__ import annotations

import ast
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, cast

from penstock.app.resources import Resource
from penstock.enqueue.codec import ResultCodec
from penstock.errors import Refused
from penstock.run.current import CURRENT, gathered
from penstock.task.option_checks import check_seconds
from penstock.task.signature import hints_of
from penstock.task.task import Task

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.run.current import CurrentJob
    from penstock.task.option_types import BatchOptions, TaskOptions

T = TypeVar("T")
R = TypeVar("R")

LARGEST_SIZE = 1000
_LONGEST_LINGER = 60.0
_LISTS = (list, Sequence)
_LIST_NAMES = {"list", "List", "Sequence"}


class BatchTask(Task[[T], R], Generic[T, R]):
    """A task whose function takes up to `size` jobs; made by `@app.batch_task`.

    `enqueue` takes one argument, an item of the list that the function gets.
    """

    def __init__(
        self,
        app: App,
        function: Callable[..., Any],
        *,
        size: int,
        names: Mapping[str, Any] | None = None,
        **options: Unpack[BatchOptions],
    ) -> None:
        what = f"@app.batch_task over {function.__qualname__}"
        self.many = function
        self.size = _check_size(what, size)
        linger = options.pop("linger", 0.0)
        self.by_key = bool(options.pop("by_key", False))
        self.linger = check_seconds("linger", linger) or 0.0
        if self.linger > _LONGEST_LINGER:
            raise Refused(f"{what}: linger={linger!r}: at most {_LONGEST_LINGER:.0f} seconds")
        own = cast("TaskOptions", options)
        super().__init__(app, _for_one(what, function), names=names, **own)
        self.__wrapped__ = function

    @cached_property
    def results(self) -> ResultCodec:
        """How the result of one of its jobs is stored."""
        hint = hints_of(self.many, self._names, ("return",)).get("return", Any)
        return ResultCodec(_result_of_one(hint))


class PlainBatchTask(BatchTask[T, R]):
    """A batch task over a plain function."""

    def __call__(self, items: Sequence[T], /, **resources: Any) -> Sequence[R | Exception] | None:  # pyright: ignore[reportIncompatibleMethodOverride]  a call is for many, a job is for one
        """A plain call: runs here and now for these items, with its resources filled in."""
        missing = {name: each for name, each in self.resources.items() if name not in resources}
        return self.many(items, **resources, **self.app.resources.fill(missing))


class AsyncBatchTask(BatchTask[T, R]):
    """A batch task over an `async def` function; a plain call is awaited."""

    async def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]  as above
        self, items: Sequence[T], /, **resources: Any
    ) -> Sequence[R | Exception] | None:
        missing = {name: each for name, each in self.resources.items() if name not in resources}
        filled = await self.app.resources.fill_async(missing)
        return await self.many(items, **resources, **filled)


def as_batch_task(task: Task[..., Any] | None) -> BatchTask[Any, Any] | None:
    """The task, if it takes many jobs in one call."""
    return cast("BatchTask[Any, Any]", task) if isinstance(task, BatchTask) else None


def entries_of(task: str, value: Any, jobs: int) -> Sequence[Any]:
    """What a call returned, one entry for each of its jobs; an error if it is anything else."""
    if value is None:
        return [None] * jobs
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"batch task {task} returned {type(value).__name__} for {jobs} jobs; return a list with"
            " an entry for each, or None"
        )
    entries = cast("Sequence[Any]", value)
    if len(entries) != jobs:
        raise ValueError(
            f"batch task {task} returned {len(entries)} entries for {jobs} jobs; return one for"
            " each, in order, or None"
        )
    return entries


def _check_size(what: str, size: object) -> int:
    if type(size) is not int or not 1 <= size <= LARGEST_SIZE:
        raise Refused(f"{what}: size={size!r}: a whole number from 1 to {LARGEST_SIZE}")
    return size


def _for_one(what: str, many: Callable[..., Any]) -> Callable[..., Any]:
    """The function for a single job: what `many` would return for it, or raise."""
    signature = inspect.signature(many)
    parameters = list(signature.parameters.values())
    name = many.__qualname__
    kinds = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    if (
        not parameters
        or parameters[0].kind not in kinds
        or parameters[0].default is not inspect.Parameter.empty
    ):
        raise Refused(f"{what}: it must take a list, one item for each job")
    if not all(isinstance(each.default, Resource) for each in parameters[1:]):
        raise Refused(
            f"{what}: it takes one list and, beside it, resources only: use(...); put the values of"
            " a job into one item, a dataclass or a tuple"
        )

    def taken(value: Any) -> Any:
        [entry] = entries_of(name, value, 1)
        if isinstance(entry, BaseException):
            raise entry
        return entry

    one: Any
    if inspect.iscoroutinefunction(many):

        async def one_async(item: Any, /, **resources: Any) -> Any:
            with gathered([cast("CurrentJob", CURRENT.get())]):
                return taken(await many([item], **resources))

        one = one_async
    else:

        def one_plain(item: Any, /, **resources: Any) -> Any:
            with gathered([cast("CurrentJob", CURRENT.get())]):
                return taken(many([item], **resources))

        one = one_plain
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(one, attribute, getattr(many, attribute))
    first = parameters[0]
    item = _item_of(what, first.annotation)
    one.__wrapped__ = many  # whoever resolves annotations finds its globals there
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters[0] = first.replace(annotation=item, kind=kind)
    one.__signature__ = signature.replace(
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    kept = {
        each: annotation for each, annotation in many.__annotations__.items() if each != "return"
    }
    one.__annotations__ = kept if item is first.empty else {**kept, first.name: item}
    return one


def _item_of(what: str, annotation: Any) -> Any:
    """Message, of list[Message]; of a text, which may name what is defined later, a text."""
    if annotation is inspect.Parameter.empty or annotation is list:
        return Any
    if isinstance(annotation, str):
        written = ast.parse(annotation, mode="eval").body
        if isinstance(written, ast.Constant):  # a text within the text
            return _item_of(what, written.value)
        if ast.unparse(written) == "list":
            return Any
        if isinstance(written, ast.Subscript):
            outer = ast.unparse(written.value).rpartition(".")[2]
            if outer in _LIST_NAMES:
                return ast.unparse(written.slice)
    elif typing.get_origin(annotation) in _LISTS:
        return typing.get_args(annotation)[0]
    raise Refused(
        f"{what}: its first parameter is annotated {annotation!r}; write list[...] with what one"
        " job carries"
    )


def _result_of_one(annotation: Any) -> Any:
    """Receipt, of list[Receipt | Exception]; with None where the call may return that."""
    if annotation is Any or annotation is None or annotation is type(None):
        return annotation
    kept: list[Any] = []
    for part in _members(annotation):
        if part is type(None):
            kept.append(part)
        elif typing.get_args(part):
            kept += [each for each in _members(typing.get_args(part)[0]) if not _is_error(each)]
        else:
            kept.append(Any)
    return typing.Union[tuple(kept)] if kept else None  # noqa: UP007  of as many as there are


def _members(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return typing.get_args(annotation)
    return (annotation,)


def _is_error(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseException)
