"""A call from the command line: the task, and its arguments.

    penstock run tasks:add 2 3          JSON if it is JSON, else text
    penstock run mail:send to=ada       name=value for keywords

The annotation decides what a word means: 5 for a `str` parameter stays the text "5", and a
dataclass is written as a JSON object.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.broker.checks import is_path
from penstock.cli.store_choice import check_app_url, import_app
from penstock.errors import Refused
from penstock.operate.actions import unknown_task

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

_KEYWORD = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def find_task(name: str, target: str | None, url: str | None) -> Task[..., Any]:
    """The task that was typed: of the app `target`, else of the module in its name.

    Imports the module: never call it with a name from a store.
    """
    if is_path(name):
        raise Refused(
            f"{name!r} is a path; a task is named module:function: give its file with --app, "
            "for example penstock run tasks:add --app tasks.py"
        )
    if target is None:
        module, colon, _ = name.rpartition(":")
        if not colon or not module:
            raise Refused(
                f"{name!r} does not say where the task is: write module:function, for example "
                "tasks:add, or name its app with --app"
            )
        app = check_app_url(import_app(module), url)
    else:
        app = check_app_url(import_app(target), url)
    found = app.task_named(name) or _by_function(app, name)
    if found is None:
        raise Refused(unknown_task(name, app))
    return found


def _by_function(app: App, name: str) -> Task[..., Any] | None:
    """A task with a name of its own, found by its function."""
    module, _, function = name.rpartition(":")
    for task in app.tasks.values():
        if (task.__module__, task.__qualname__) == (module, function):
            return task
    return None


def parse_words(task: Task[..., Any], words: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments from words, each decoded by its parameter's annotation."""
    positional: list[str] = []
    keywords: dict[str, str] = {}
    for word in words:
        if (match := _KEYWORD.fullmatch(word)) is not None:
            if match[1] in keywords:
                raise Refused(f"{word!r}: {match[1]} is given twice")
            keywords[match[1]] = match[2]
        elif keywords:
            raise Refused(f"{word!r} comes after {next(iter(keywords))}=...: put keywords last")
        else:
            positional.append(word)
    types = _Types(task)
    return (
        tuple(_read(word, types.at(index)) for index, word in enumerate(positional)),
        {name: _read(word, types.of(name)) for name, word in keywords.items()},
    )


def parse_rows(task: Task[..., Any], file: Path) -> Iterator[tuple[Any, ...] | dict[str, Any]]:
    """The rows of a file of JSON lines: a list of arguments each, or an object of keywords."""
    types = _Types(task)
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row: Any = msgspec.json.decode(line)
            except msgspec.DecodeError as error:
                raise Refused(f"{file}, line {number}: {error}") from error
            if isinstance(row, list):
                values: list[Any] = row  # pyright: ignore[reportUnknownVariableType]
                yield tuple(_typed(value, types.at(index)) for index, value in enumerate(values))
            elif isinstance(row, dict):
                named: dict[str, Any] = row  # pyright: ignore[reportUnknownVariableType]
                yield {name: _typed(value, types.of(name)) for name, value in named.items()}
            else:
                raise Refused(
                    f"{file}, line {number}: write a list of arguments or an object of keywords"
                )


class _Types:
    """The annotations of a task's parameters, by position and by name."""

    def __init__(self, task: Task[..., Any]) -> None:
        from penstock.task.signature import hints_of

        parameters = [
            parameter
            for parameter in inspect.signature(task.function).parameters.values()
            if parameter.name not in task.resources
        ]
        hints = hints_of(task.function, {}, [parameter.name for parameter in parameters])
        self._named: Mapping[str, Any] = {
            parameter.name: hints.get(parameter.name, Any) for parameter in parameters
        }
        self._positional = [
            self._named[parameter.name]
            for parameter in parameters
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        ]
        self._rest: Any = Any
        self._rest_named: Any = Any
        for parameter in parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                self._rest = self._named[parameter.name]
            if parameter.kind is parameter.VAR_KEYWORD:
                self._rest_named = self._named[parameter.name]

    def at(self, index: int) -> Any:
        return self._positional[index] if index < len(self._positional) else self._rest

    def of(self, name: str) -> Any:
        return self._named.get(name, self._rest_named)


def _read(word: str, annotation: Any) -> Any:
    """The word as JSON if the annotation accepts it, else as text; enqueue checks it again."""
    from penstock.enqueue.codec import decode_value

    for candidate in (word.encode("utf-8", "surrogateescape"), msgspec.json.encode(_clean(word))):
        try:
            return decode_value(candidate, annotation)
        except Exception:  # noqa: S112  a pydantic model raises errors of its own
            continue
    try:
        return msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeError):
        return word


def _clean(word: str) -> str:
    return word.encode("utf-8", "replace").decode("utf-8")


def _typed(value: Any, annotation: Any) -> Any:
    from penstock.enqueue.codec import decode_value

    if annotation is Any or annotation in {str, int, bool}:
        return value
    try:
        return decode_value(msgspec.json.encode(value), annotation)
    except Exception:
        return value  # enqueue refuses it, with the row's number and the signature
