"""Compares calls and states, and describes them in the messages of failed assertions. Pure."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from penstock.enqueue.codec import decode_value, encode_value, read_body
from penstock.errors import Refused
from penstock.job import Job
from penstock.task.task import Task

Call = tuple[tuple[Any, ...], dict[str, Any]]

_MISSING = object()


def call_of(task: Task[..., Any] | None, job: Job[Any]) -> Call | None:
    """The arguments of a job, by name if its task is not known; None if they cannot be read."""
    try:
        if task is not None:
            _, args, kwargs = task.codec.read(job.body)
            return args, kwargs
        return (), decode_value(bytes(read_body(job.body).args), dict[str, Any])
    except (Refused, msgspec.DecodeError):
        return None


def matching(
    task: Task[..., Any] | None, job: Job[Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> bool:
    """Whether the job's arguments are these; those that are left out may be anything."""
    if not args and not kwargs:
        return True
    call = call_of(task, job)
    if call is None:
        return False
    expected: Mapping[str, Any] = kwargs
    given: Mapping[str, Any] = call[1]
    if task is not None:
        signature = inspect.signature(task.function)
        try:
            expected = signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise Refused(f"{task.signature_text}: {error}") from error
        bound = signature.bind_partial(*call[0], **call[1])
        bound.apply_defaults()
        given = bound.arguments
    return all(_same(value, given.get(name, _MISSING)) for name, value in expected.items())


def _same(expected: object, given: object) -> bool:
    if expected == given:
        return True
    # A tuple that no annotation asked for comes back as a list, an Enum as its value.
    try:
        return encode_value(expected, "") == encode_value(given, "")
    except Refused:
        return False


def described(
    task: str, args: Sequence[Any], kwargs: Mapping[str, Any], queue: str | None = None
) -> str:
    """A call as Python code, cut after 200 characters."""
    shown = [repr(value) for value in args]
    shown += [f"{name}={value!r}" for name, value in kwargs.items()]
    text = ", ".join(shown)
    where = f" in queue {queue}" if queue else ""
    return f"{task}({text if len(text) <= 200 else text[:200] + '…'}){where}"


def copied(state: Callable[[], Any]) -> Any:
    """A deep copy of what `state` returns."""
    return copy.deepcopy(state())


def difference(before: object, after: object, path: str = "state()") -> str | None:
    """The first difference between two states, in words; None if they are equal."""
    if before == after:
        return None
    parts, parts_after = _parts(before), _parts(after)
    if parts is None or parts_after is None or type(before) is not type(after):
        return f"{path}: {_short(before)} became {_short(after)}"
    for key in [*parts, *(key for key in parts_after if key not in parts)]:
        part_path = f"{path}[{key!r}]"
        if key not in parts_after:
            return f"{part_path}: {_short(parts[key])} is gone"
        if key not in parts:
            return f"{part_path}: {_short(parts_after[key])} is new"
        if text := difference(parts[key], parts_after[key], part_path):
            return text
    return f"{path}: {_short(before)} became {_short(after)}"


def _parts(value: object) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(cast("list[Any]", value)))
    return None


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"
