"""Arguments as people type them, in a terminal or in a form: the annotation says what a word means.

5 for a `str` parameter stays the text "5", and a dataclass is written as a JSON object.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.enqueue.codec import decode_value
from penstock.task.signature import hints_of

if TYPE_CHECKING:
    from penstock.task.task import Task


class ParameterTypes:
    """The annotations of a task's parameters, by position and by name."""

    def __init__(self, task: Task[..., Any]) -> None:
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


def read_word(word: str, annotation: Any) -> Any:
    """The word as JSON if the annotation accepts it, else as text; enqueue checks it again."""
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
