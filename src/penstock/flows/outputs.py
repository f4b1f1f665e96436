"""Outputs: what stands among a job's arguments for what another job will return.

An encoder meets one as a value that it does not know, so that arguments without any cost nothing
more. Their places are found in the encoded arguments, not in the objects: that is where they are
filled in, under whatever names the annotations give their fields.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import msgspec

from penstock.errors import Refused

Path = tuple[str | int, ...]


class Output:
    """Stands, among the arguments of a job, for what another one returns.

    `source` is a Job, or the Jobs of a map; `empty` if there are none of these, and the output is
    known to be an empty list. Nothing can be done with it but to hand it on.
    """

    __slots__ = ("empty", "source")

    def __init__(self, source: Any, *, empty: bool = False) -> None:
        self.source = source
        self.empty = empty

    def __repr__(self) -> str:
        return f"<output of {self.source.task}, {self.source.id}>"

    def __bool__(self) -> bool:
        raise self._unknown()

    def __iter__(self) -> NoReturn:
        raise self._unknown()

    def _unknown(self) -> Refused:
        return Refused(
            f"{self!r} is not known before that job has run: hand it on as an argument, and look "
            "at it in the task that gets it"
        )


class OutputInside(Exception):
    """Among the values is the output of another job, which nobody knows yet."""

    def __init__(self) -> None:
        super().__init__("the output of another job can only be an argument of a task's job")


def taken_out(value: Any, to_plain: Callable[[Any], Any]) -> tuple[Any, list[tuple[Path, Output]]]:
    """The value as plain JSON with null in place of outputs, and the path of each of them.

    `to_plain` is the encoder's hook for everything else.
    """
    outputs: list[Output] = []
    # A text that is in no value: where it comes out, the output belongs.
    mark = uuid.uuid4().hex

    def hook(unknown: Any) -> Any:
        if not isinstance(unknown, Output):
            return to_plain(unknown)
        outputs.append(unknown)
        return f"{mark}{len(outputs) - 1}"

    plain = msgspec.json.decode(msgspec.json.encode(value, enc_hook=hook))
    found: list[tuple[Path, Output]] = []
    for holder, number, path in _marked(plain, mark):
        holder[path[-1]] = [] if outputs[number].empty else None
        found.append((path, outputs[number]))
    return plain, found


def _steps(holder: Any) -> Any:
    return holder.keys() if hasattr(holder, "keys") else range(len(holder))


def _marked(plain: Any, mark: str) -> Iterator[tuple[Any, int, Path]]:
    """Every text that begins with the mark: what holds it, the number after it, and its path."""
    stack: list[tuple[Any, Path]] = [(plain, ())]
    while stack:
        holder, path = stack.pop()
        steps: list[Any] = list(_steps(holder))
        for step in steps:
            part = holder[step]
            if isinstance(part, str) and part.startswith(mark):
                yield holder, int(part[len(mark) :]), (*path, step)
            elif isinstance(part, (dict, list)):
                stack.append((cast("Any", part), (*path, step)))
