"""Filters: which jobs one means, said the same way to `find`, the CLI and every page.

    task:mail:send state:failed queue:mail tag.tenant:a arg.user:62 since:2h -task:heartbeat

A word with a minus excludes. Several values of one field are alternatives; fields must all match.
What goes by the time, since:2h or due:later, goes by the moment at which the filter was read.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from penstock.broker.checks import legible
from penstock.enqueue.ids import is_derived
from penstock.enqueue.secrets import redact
from penstock.errors import Refused
from penstock.job import Job, State

MOST_CHARACTERS = 8000
DUE = ("now", "later")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_WORD = re.compile(r"(?P<minus>-?)(?P<field>[a-z]+(?:\.[^:\s]+)?):(?P<value>.+)", re.DOTALL)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs must be (and, in `exclude`, must not be). Empty means any."""

    task: tuple[str, ...] = ()
    queue: tuple[str, ...] = ()
    app: tuple[str, ...] = ()
    state: tuple[State, ...] = ()
    key: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    tags: Mapping[str, tuple[str, ...]] = {}
    args: Mapping[str, tuple[str, ...]] = {}  # argument fields as text; dots go into objects
    since: float | None = None  # enqueued at or after
    until: float | None = None  # enqueued before
    due: tuple[str, ...] = ()  # of ready jobs: "now", or "later", whose time is to come
    read_at: float = 0.0  # what is now, to `due`
    derived: bool = False  # only jobs of schedules, backfills, signals and a sink's `id` column
    exclude: Filter | None = None

    @property
    def states(self) -> frozenset[State]:
        """The states that a job can be in which is meant."""
        named = frozenset(self.state or State)
        return named & {State.READY} if self.due else named

    def matches(self, job: Job[Any]) -> bool:
        """Whether this job is meant."""
        return (
            (not self.task or job.task in self.task)
            and (not self.queue or job.queue in self.queue)
            and (not self.app or job.app in self.app)
            and (not self.state or job.state in self.state)
            and (not self.key or job.key in self.key)
            and (not self.reason or job.reason in self.reason)
            and all(job.tags.get(name) in values for name, values in self.tags.items())
            and (self.since is None or job.enqueued_at >= self.since)
            and (self.until is None or job.enqueued_at < self.until)
            and (not self.due or self._is_due(job))
            and (not self.args or _has_arguments(job, self.args))
            and (not self.derived or is_derived(job.id))
            and (self.exclude is None or not self.exclude.matches_any(job))
        )

    def matches_any(self, job: Job[Any]) -> bool:
        """Whether one of the fields matches: what it takes to be excluded."""
        return (
            job.task in self.task
            or job.queue in self.queue
            or job.app in self.app
            or job.state in self.state
            or job.key in self.key
            or job.reason in self.reason
            or (bool(self.due) and self._is_due(job))
            or any(job.tags.get(name) in values for name, values in self.tags.items())
            or any(_has_arguments(job, {name: values}) for name, values in self.args.items())
        )

    def _is_due(self, job: Job[Any]) -> bool:
        later = job.run_at is not None and job.run_at > self.read_at
        return job.state is State.READY and ("later" if later else "now") in self.due


def _has_arguments(job: Job[Any], wanted: Mapping[str, Sequence[str]]) -> bool:
    try:
        # Whoever guesses a secret right must not be told so by finding the job.
        arguments = msgspec.json.decode(redact(job.body))["args"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return False
    return all(argument_text(arguments, path) in values for path, values in wanted.items())


def argument_text(arguments: object, path: str) -> str | None:
    """An argument as a filter writes it, dots going into objects; None if it is not there."""
    value: Any = arguments
    for step in path.split("."):
        value = cast("dict[str, Any]", value).get(step) if isinstance(value, dict) else None
    return None if value is None else as_text(value)


def as_text(value: object) -> str:
    """An argument as it is written in a filter: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def words_of(text: str) -> list[str]:
    """The words of a filter that was written as one line; quotes hold together what has spaces."""
    # Reading them takes the square of their length: a minute, of a million characters.
    if len(text) > MOST_CHARACTERS:
        raise Refused(f"a filter of {len(text):,} characters: {MOST_CHARACTERS:,} at most")
    try:
        return shlex.split(text)
    except ValueError:
        raise Refused(
            f"{text[:100]!r} has a quote, or a backslash, that does not end: write tag.name:'a b'"
        ) from None


def parse_filter(words: Sequence[str], now: float) -> Filter:
    """Read a filter from words; each mistake is named with what would be right."""
    wanted: dict[str, Any] = {}
    excluded: dict[str, Any] = {}
    for word in words:
        match = _WORD.fullmatch(legible(word))
        if match is None:
            raise Refused(
                f"{word!r} is not a filter: write field:value, as state:failed or -task:ping"
            )
        into = excluded if match["minus"] else wanted
        _add(into, word, match["field"], match["value"], now)
    if excluded.keys() & {"since", "until"}:
        message = "since and until cannot be excluded: use the other one of the two"
        raise Refused(message)
    return Filter(**wanted, exclude=Filter(**excluded) if excluded else None)


def _add(into: dict[str, Any], word: str, field: str, value: str, now: float) -> None:
    name, _, path = field.partition(".")
    if name in {"tag", "arg"} and path:
        group = into.setdefault("tags" if name == "tag" else "args", {})
        group[path] = (*group.get(path, ()), value)
    elif field in {"task", "queue", "app", "key", "reason"}:
        into[field] = (*into.get(field, ()), value)
    elif field == "state":
        if value not in set(State):
            known = f"the six are {', '.join(State)}; those that wait for their time are due:later"
            message = f"{word!r}: no such state; {known}"
            raise Refused(message)
        into["state"] = (*into.get("state", ()), State(value))
    elif field == "due":
        if value not in DUE:
            raise Refused(
                f"{word!r}: write due:now, or due:later of those that wait for their time"
            )
        into["due"], into["read_at"] = (*into.get("due", ()), value), now
    elif field in {"since", "until"}:
        into[field] = parse_time(value, now)
    else:
        raise Refused(
            f"{word!r}: no such field; there are task, queue, state, due, key, reason, app, "
            "tag.NAME, arg.NAME, since, until"
        )


def parse_time(text: str, now: float) -> float:
    """A moment: `90s`, `2h`, `3d` ago, or an ISO date or time (UTC unless it says)."""
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text):
        return now - float(match[1]) * _UNITS[match[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text!r} is not a time: write 90s, 2h or 3d (ago), or 2026-11-15T08:00"
        raise Refused(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
