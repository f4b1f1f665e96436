"""The page that calls a task: a form made of its signature.

The form has the id of the job that it makes, so that sending it twice stores one job.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from penstock.errors import Refused
from penstock.operate.parse_input import parse_duration
from penstock.operate.typed_words import ParameterTypes, read_word
from penstock.task.signature import type_text
from penstock.task.task import Task
from penstock.web.request import WebRequest

PREFIX = "arg."  # of the fields that are arguments
OPTIONS = ("queue", "delay", "key")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Field(NamedTuple):
    """An argument in the form. A secret is typed unseen, and is not shown again."""

    name: str
    kind: str
    default: str | None  # None: it has to be given
    secret: bool
    typed: str


def show(request: WebRequest) -> Response:
    return _page(request, request.word("task"), {}, "")


def send(request: WebRequest) -> Response:
    """Enqueue it; what cannot be enqueued leads back to the form, with what was typed."""
    form = request.form()
    name = form.get("task", "")
    try:
        task = request.task(name)
        args, kwargs = _arguments(task, form)
        options: dict[str, Any] = {each: form[each] for each in OPTIONS if form.get(each)}
        if "delay" in options:
            options["delay"] = parse_duration(options["delay"], "delay")
        author = {"author": request.store.author}
        job = task.options(headers=author, **options).job(*args, **kwargs)
        stored = request.store.enqueue(job, form.get("id") or None, form.get("reason", ""))
    except Refused as error:
        return _page(request, name, form, str(error))
    return request.go(f"/jobs/{stored.id}")


def _arguments(task: Task[..., Any], form: Mapping[str, str]) -> tuple[list[Any], dict[str, Any]]:
    """What was typed, by the annotations; an empty field is an argument that is not given."""
    types = ParameterTypes(task)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter in _parameters(task):
        word = form.get(f"{PREFIX}{parameter.name}", "")
        if not word:
            continue
        value = read_word(word, types.of(parameter.name))
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            args.append(value)
        else:
            kwargs[parameter.name] = value
    return args, kwargs


def _parameters(task: Task[..., Any]) -> list[inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, *_NAMED)
    return [
        parameter
        for parameter in inspect.signature(task.function).parameters.values()
        if parameter.name not in task.resources and parameter.kind in kinds
    ]


def _fields(task: Task[..., Any], form: Mapping[str, str]) -> list[Field]:
    return [
        Field(
            parameter.name,
            "" if parameter.annotation is parameter.empty else type_text(parameter.annotation),
            None if parameter.default is parameter.empty else repr(parameter.default),
            secret,
            "" if secret else form.get(f"{PREFIX}{parameter.name}", ""),
        )
        for parameter in _parameters(task)
        for secret in [parameter.name in task.secret]
    ]


def _page(request: WebRequest, name: str, form: Mapping[str, str], mistake: str) -> Response:
    app = request.app
    # Of an unknown one: refused, with similar names.
    task = request.task(name) if name and not mistake else request.tasks.get(name)
    return request.page(
        "enqueue.html",
        422 if mistake else 200,
        title="Enqueue a job",
        cli="penstock enqueue" if task is None else f"penstock enqueue {task.name}",
        tasks=sorted(request.tasks),
        task=task,
        fields=[] if task is None else _fields(task, form),
        given={each: form.get(each, "") for each in (*OPTIONS, "reason")},
        id=form.get("id") or app.ids.first(),
        mistake=mistake,
    )
