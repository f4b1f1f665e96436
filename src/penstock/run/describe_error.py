"""An exception as the text and the place that a failed attempt leaves.

Of a task with secret arguments nothing is kept of what exceptions say, unless it wants that: the
class, the places and a digest have to do.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from penstock.enqueue.secrets import has_secrets
from penstock.errors import PenstockError
from penstock.job import Fault
from penstock.run.error_text import class_name, error_text, headline_of, not_kept

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.task.task import Task

LONGEST_TRACEBACK = 16 * 1024
# Folders whose frames say nothing to a user: compared with the text of code objects.
_PACKAGE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
_PENSTOCK_FOLDERS = frozenset(
    f"{_PACKAGE}{os.sep}{folder}"
    for folder in ("app", "broker", "enqueue", "flows", "rules", "run", "schedules", "task")
)

Hide = Callable[[str], str]


def hides_messages(task: Task[..., Any], body: bytes) -> bool:
    """Whether what exceptions say is not kept, because it may tell a secret argument.

    Looking for the value in the text is not enough: a message has it quoted, encoded, cut.
    """
    return not task.keep_messages and (bool(task.secret) or has_secrets(body))


def unsaid(app: App, error: BaseException) -> str:
    """What is kept instead of a message."""
    try:
        return not_kept(error, app.broker.traits.digest_key())
    except (PenstockError, KeyError, TypeError):  # the store is away, or has no key
        return not_kept(error, None)


class Described:
    """An exception as text: the traceback of the user's own code, without Penstock's frames.

    `hide` removes secrets from a text. With `message`, that stands for what the exception says, and
    of the traceback only the places are left: a line of the source, too, may tell a secret.
    """

    def __init__(self, error: BaseException, hide: Hide, message: str | None = None) -> None:
        described = traceback.TracebackException.from_exception(error)
        _drop_penstock_frames(described, set())
        frame = described.stack[-1] if described.stack else None
        place = None if frame is None else f"{frame.filename}:{frame.lineno} in {frame.name}"
        self.fault = Fault(class_name(type(error)), place)
        if message is None:
            self._traceback = hide("".join(described.format()).rstrip())
            self.text = self.under(headline_of(error, hide))
        else:
            self._traceback = "\n".join(_places(error, described, set()))
            self.text = self.under(f"{self.fault.exception}: {message}")

    def under(self, headline: str) -> str:
        """The text to store, with this headline; if too long, the end of the traceback."""
        return error_text(headline, self._traceback, LONGEST_TRACEBACK)


def _places(
    error: BaseException, described: traceback.TracebackException, seen: set[int]
) -> Iterator[str]:
    """Where an exception was raised, and those that it came from; without what they say."""
    if id(error) in seen:
        return
    seen.add(id(error))
    for before, its in (
        (error.__cause__, described.__cause__),
        (None if error.__suppress_context__ else error.__context__, described.__context__),
    ):
        if before is not None and its is not None:
            yield from _places(before, its, seen)
    yield "Traceback (most recent call last):"
    for frame in described.stack:
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
    yield class_name(type(error))
    if isinstance(error, BaseExceptionGroup):
        members = cast("tuple[BaseException, ...]", error.exceptions)
        for each, its in zip(members, described.exceptions or (), strict=False):
            yield from _places(each, its, seen)


def _drop_penstock_frames(described: traceback.TracebackException | None, seen: set[int]) -> None:
    if described is None or id(described) in seen:
        return
    seen.add(id(described))
    kept = [
        frame
        for frame in described.stack
        if os.path.dirname(frame.filename) not in _PENSTOCK_FOLDERS  # noqa: PTH120
    ]
    described.stack = traceback.StackSummary.from_list(kept)
    _drop_penstock_frames(described.__cause__, seen)
    _drop_penstock_frames(described.__context__, seen)
    for each in described.exceptions or ():
        _drop_penstock_frames(each, seen)
