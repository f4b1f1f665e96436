"""The role of each column: an argument of the task, or an option of the job; checked by schema."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any, NamedTuple

from pyspark.sql import types as spark

from penstock.app.app import App
from penstock.app.locate import load_app
from penstock.errors import Refused
from penstock.spark.sink.column_types import Fit, check_storable, fit, takes_none
from penstock.spark.sink.options import SinkOptions
from penstock.task.signature import type_text
from penstock.task.task import Task

_TEXTS = (spark.StringType, spark.CharType, spark.VarcharType)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_TYPES: dict[str, tuple[tuple[type[spark.DataType], ...], str]] = {
    "args": ((spark.StructType,), "a struct"),
    "at": ((spark.TimestampType,), "a timestamp"),
    "hash": (_TEXTS, "a string"),
    "id": ((*_TEXTS, *_WHOLE), "a string or a whole number"),
    "key": (_TEXTS, "a string"),
    "priority": (_WHOLE, "a whole number"),
    "queue": (_TEXTS, "a string"),
    "tags": ((spark.MapType,), "a map of strings"),
    "task": (_TEXTS, "a string"),
    "unique": (_TEXTS, "a string"),
}


class Layout(NamedTuple):
    """The columns of a DataFrame by role."""

    arguments: tuple[str, ...]  # columns, or fields of the struct `args`
    roles: dict[str, str]  # role -> column
    rows_argument: str | None  # gets the list of rows with rows_per_job; None: a job per row
    check_rows: bool  # the schema does not prove that rows fit: decode each
    never_null: tuple[str, ...]  # arguments whose annotation does not accept null


def tasks_of(options: SinkOptions) -> App | None:
    """The app that the option `app` names, if it is given."""
    return None if options.app is None else load_app(options.app)


def task_of(app: App, name: str) -> Task[..., Any]:
    """The task of this name or alias."""
    if name in app.tasks:
        return app.tasks[name]
    for task in app.tasks.values():
        if name in task.aliases:
            return task
    near = get_close_matches(name, app.tasks, 1)
    raise Refused(f"the app has no task {name!r}" + (f"; did you mean {near[0]}?" if near else ""))


def lay_out(schema: spark.StructType, options: SinkOptions, app: App | None) -> Layout:
    """Assign the columns to roles; refused where they cannot be arguments of the task."""
    fields = {field.name: field for field in schema.fields}
    if len(fields) < len(schema.fields):
        raise Refused("two columns have the same name; rename one")
    if not fields:
        # Arrow batches without columns have no rows.
        raise Refused("the frame has no column, and its rows would be lost; add one, as an id")
    roles = dict(options.columns)
    for role, column in roles.items():
        _check_role(role, column, fields)
    source = fields
    struct = fields[roles["args"]].dataType if "args" in roles else None
    if isinstance(struct, spark.StructType):
        source = {field.name: field for field in struct.fields}
        names = tuple(source)
    elif options.arguments is not None:
        names = options.arguments
        for name in names:
            _check_column(f"arguments={','.join(names)!r}", name, fields)
    else:
        taken = set(roles.values())
        names = tuple(name for name in fields if name not in taken)
    for name in names:
        check_storable(name, source[name].dataType)
    task = None if app is None or options.task is None else task_of(app, options.task)
    if options.rows_per_job is not None:
        return Layout(names, roles, _rows_argument(options, task), app is not None, ())
    if task is None:
        return Layout(names, roles, None, app is not None, ())
    fits = _check_call(task, {name: source[name].dataType for name in names})
    check_rows = Fit.MAYBE in fits.values()
    kinds = task.codec.kinds
    never_null = tuple(name for name in names if not takes_none(kinds[name]))
    return Layout(names, roles, None, check_rows, never_null)


def _check_role(role: str, column: str, fields: dict[str, spark.StructField]) -> None:
    _check_column(f"{role}_column={column!r}", column, fields)
    kinds, text = _TYPES[role]
    kind = fields[column].dataType
    strings = not isinstance(kind, spark.MapType) or (
        isinstance(kind.keyType, _TEXTS) and isinstance(kind.valueType, _TEXTS)
    )
    if not isinstance(kind, kinds) or not strings:
        raise Refused(f"column {column} is {kind.simpleString()}; {role}_column must be {text}")


def _check_column(option: str, column: str, fields: dict[str, spark.StructField]) -> None:
    if column not in fields:
        raise Refused(f"{option}: the frame has no such column; there are {', '.join(fields)}")


def _rows_argument(options: SinkOptions, task: Task[..., Any] | None) -> str:
    if task is None:
        return options.rows_argument or "rows"
    names = list(task.codec.kinds)
    name = options.rows_argument or (names[0] if names else "")
    if name not in names:
        raise Refused(f"{task.codec.text} has no argument {name!r} to take the rows")
    return name


def _check_call(task: Task[..., Any], given: dict[str, spark.DataType]) -> dict[str, Fit]:
    """How well each column fits its parameter; refused if the columns are no call of the task."""
    codec = task.codec
    parameters = inspect.signature(task.function).parameters
    for name in given:
        if name not in codec.kinds or parameters[name].kind in _VARIADIC:
            raise Refused(
                f"{codec.text} has no argument {name!r}; drop the column, or name the arguments:"
                ' .option("arguments", "a,b")'
            )
    for name, parameter in parameters.items():
        required = name in codec.kinds and parameter.default is parameter.empty
        if required and name not in given and parameter.kind not in _VARIADIC:
            raise Refused(f"{codec.text}: the frame has no column for {name!r}")
    fits = {name: fit(kind, codec.kinds[name]) for name, kind in given.items()}
    for name, fitness in fits.items():
        if fitness is Fit.NO:
            annotation = type_text(parameters[name].annotation)
            raise Refused(
                f"{codec.text}: column {name} is {given[name].simpleString()}, and the task takes"
                f" {annotation}; cast it"
            )
    return fits
