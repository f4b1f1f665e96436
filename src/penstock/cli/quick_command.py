"""Commands that start quickly: text is taken as it was typed, and only what is called is made.

typer has pydantic convert each option, given or not. Importing pydantic and preparing it takes
longer than most commands do, and the text of an option stays the same text. A choice and a whole
number are converted here as well, because pydantic's sentences are not for people. What this cannot
say by itself (a path, a fraction) is still typer's.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

import typer
from typer.core import TyperCommand

_DIGITS = re.compile("[0-9]{1,9}")
_WHOLE = re.compile("-?[0-9]{1,4000}")


class QuickCommand(TyperCommand):
    """A command that asks typer to convert only what needs it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        take_as_typed(self, ctx)
        return super().parse_args(ctx, args)


def take_as_typed(command: Any, ctx: Any) -> None:
    """Have typer prepare no option of this command before it has to be converted."""
    for option in command.get_params(ctx):  # --help too
        # None: typer has not prepared it yet. Older releases of typer have no such attribute.
        if getattr(option, "_runtime_param", option) is None:
            option._runtime_param = _AsTyped()  # noqa: SLF001  no public way


class _AsTyped:
    """How the value of an option is converted, for as long as nothing has to be."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        described = param.type_descriptor
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if described.parameter_info.parser is None:
            if not many and (
                fault := _fault(value, described.annotation, described.parameter_info)
            ):
                raise typer.BadParameter(fault, ctx=ctx, param=param)
            if _is_choice(described.annotation):
                return described.annotation(value)
            number = described.annotation is int and type(value) is str and _DIGITS.fullmatch(value)
            plain = int(value) if number else value
            if not many and _is_already(plain, described.annotation, described.parameter_info):
                return plain
            if many and described.annotation == list[str] and not isinstance(value, str):
                texts: list[Any] = list(value)
                if all(type(text) is str for text in texts):
                    return texts
        param._runtime_param = None  # noqa: SLF001  typer prepares it, then
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _is_choice(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, StrEnum)


def _fault(value: Any, annotation: Any, given: Any) -> str:
    """What is wrong with a choice or a whole number, as it was typed; empty if nothing is."""
    if _is_choice(annotation):
        choices = ", ".join(annotation)
        return "" if value in list(annotation) else f"{value!r} is not one of {choices}"
    if annotation is not int:
        return ""
    if type(value) is str and not _WHOLE.fullmatch(value):
        return f"{value!r} is not a whole number"
    if given.min is not None and int(value) < given.min:
        return f"{value} is less than {given.min}"
    if given.max is not None and int(value) > given.max:
        return f"{value} is more than {given.max}"
    return ""


def _is_already(value: Any, annotation: Any, given: Any) -> bool:
    """Whether the value is what the command takes: a text, or a default within its bounds."""
    return type(value) is annotation and (
        annotation is str
        or (
            annotation in (int, float)
            and (given.min is None or given.min <= value)
            and (given.max is None or value <= given.max)
        )
    )
