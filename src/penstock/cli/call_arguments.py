"""A call from the command line: the task, and its arguments.

    penstock run tasks:add 2 3          JSON if it is JSON, else text
    penstock run mail:send to=ada       name=value for keywords

The annotation decides what a word means: 5 for a `str` parameter stays the text "5", and a
dataclass is written as a JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.settings import resolve_app_target
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
    module, colon, _ = name.rpartition(":")
    if target is None and not (colon and module):
        target = resolve_app_target()
    if target is None:
        if not colon or not module:
            raise Refused(
                f"{name!r} does not say where the task is: write module:function, for example "
                "tasks:add, or name its app with --app, or as app in penstock.toml"
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
    from penstock.operate.typed_words import ParameterTypes, read_word

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
    types = ParameterTypes(task)
    return (
        tuple(read_word(word, types.at(index)) for index, word in enumerate(positional)),
        {name: read_word(word, types.of(name)) for name, word in keywords.items()},
    )


def parse_rows(task: Task[..., Any], file: Path) -> Iterator[tuple[Any, ...] | dict[str, Any]]:
    """The rows of a file of JSON lines: a list of arguments each, or an object of keywords."""
    from penstock.operate.typed_words import ParameterTypes

    types = ParameterTypes(task)
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


def _typed(value: Any, annotation: Any) -> Any:
    from penstock.enqueue.codec import decode_value

    if annotation is Any or annotation in {str, int, bool}:
        return value
    try:
        return decode_value(msgspec.json.encode(value), annotation)
    except Exception:
        return value  # enqueue refuses it, with the row's number and the signature
