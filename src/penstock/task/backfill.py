"""Backfill: a job per partition of a range, each of them once.

A partition is a value of the task's first parameter: a day, an hour, a number. Its job's id is
derived from the task and the partition, so that whoever fills the same range again, also at the
same moment, finds the jobs that are there. A further run of a partition that is done has an id of
its own, counted up: what happened before stays in the history.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.enqueue.handle import Handle
from penstock.enqueue.ids import lasting_id
from penstock.errors import Refused
from penstock.job import ENDED, Job, State
from penstock.rules.rule import Rule, RuleKind
from penstock.task.signature import hints_of

if TYPE_CHECKING:
    from penstock.task.task import Task

Partition = date | datetime | int
Step = timedelta | int

KEY = "backfill"
TAG = "partition"
_MOST = 100_000
_AT_ONCE = 1000
_PER_ROW = 50
_APART = 0.001
_SIGNS = {
    State.WAITING: ".",
    State.READY: ".",
    State.RUNNING: ">",
    State.SUCCEEDED: "+",
    State.FAILED: "x",
    State.CANCELLED: "-",
    None: " ",
}


class Backfill:
    """The jobs of a range, by partition; printed it is a grid of where each of them is."""

    def __init__(self, task: Task[..., Any], handles: dict[Partition, Handle[Any]]) -> None:
        self.task = task.name
        self.handles = handles

    def __len__(self) -> int:
        return len(self.handles)

    def states(self) -> dict[Partition, State | None]:
        """Where each partition is now; None: ended so long ago that the store has forgotten."""
        return {partition: handle.state() for partition, handle in self.handles.items()}

    def done(self) -> bool:
        """Whether every partition has succeeded."""
        return all(state in {State.SUCCEEDED, None} for state in self.states().values())

    def __str__(self) -> str:
        states = self.states()
        counted = Counter(states.values())
        counts = ", ".join(f"{counted[state]:,} {state}" for state in State if counted[state])
        head = f"{self.task}: {len(states):,} partitions" + (f", {counts}" if counts else "")
        rows = [
            f"{name:<12} {''.join(_SIGNS[states[partition]] for partition in row)}"
            for name, row in rows_of(list(states))
        ]
        legend = ". to run   > running   + succeeded   x failed   - cancelled"
        return "\n".join([head, *rows, legend])

    __repr__ = __str__  # a notebook shows it


def backfill(
    task: Task[..., Any],
    start: Partition | str,
    end: Partition | str,
    *,
    max_running: int | None,
    skip_done: bool,
    step: Step | None,
    author: str = "",
    reason: str = "",
) -> Backfill:
    """What `Task.backfill` does; by whom and why, if a person asked for it."""
    partitions = list(_partitions(task, start, end, step))
    if max_running is not None:
        _bound(task, max_running)
    author_and_reason = (author or KEY, reason or "filled again")
    if author:
        ends = {"first": _text(partitions[0]), "last": _text(partitions[-1])}
        event_data = {"task": task.name, "queue": task.queue, **ends, "jobs": len(partitions)}
        task.app.broker.audit(KEY, author, reason, event_data)
    handles: dict[Partition, Handle[Any]] = {}
    remaining = iter(partitions)
    while part := list(islice(remaining, _AT_ONCE)):
        part_of = KEY if author else None
        ids = _store(task, part, author_and_reason, part_of, skip_done=skip_done)
        handles |= {each: Handle(task.app, id) for each, id in zip(part, ids, strict=True)}
    return Backfill(task, handles)


def _store(
    task: Task[..., Any],
    partitions: list[Partition],
    author_and_reason: tuple[str, str],
    part_of: str | None,
    *,
    skip_done: bool,
) -> list[str]:
    """Have a job for each partition that is to run; the ids of the jobs that stand for them."""
    broker = task.app.broker
    current_run = dict.fromkeys(partitions, 0)  # the run that stands for a partition
    # Ids say nothing of their order: the first partition has been due for longest.
    due_at = task.app.clock.now() - len(partitions) * _APART
    order = {partition: due_at + n * _APART for n, partition in enumerate(partitions)}
    to_store: list[Job[Any]] = [
        _job(task, partition, 0, order[partition]) for partition in partitions
    ]
    undecided = dict(zip(partitions, to_store, strict=True))
    failed: list[str] = []
    while to_store:
        with task.app.sending(to_store) as jobs:
            known = broker.enqueue(jobs).known
        to_store = []
        for partition, job in list(undecided.items()):
            if job.id not in known:
                del undecided[partition]  # stored now
                continue
            stored = broker.get(job.id)
            following = _job(task, partition, current_run[partition] + 1, order[partition])
            if stored is not None and stored.state not in ENDED:
                del undecided[partition]  # it will run, or runs
            elif stored is not None and stored.state is not State.SUCCEEDED:
                failed.append(job.id)
                del undecided[partition]
            elif broker.get(following.id) is not None or not skip_done:
                current_run[partition] += 1
                undecided[partition] = following
                to_store.append(following)
            else:
                del undecided[partition]  # done
    if failed:
        broker.act("retry", failed, *author_and_reason, part_of=part_of)
    return [_id(task, partition, run) for partition, run in current_run.items()]


def _job(task: Task[..., Any], partition: Partition, run: int, due_at: float) -> Job[Any]:
    job = task.options(key=KEY, tags={TAG: _text(partition)}).job(partition)
    return msgspec.structs.replace(job, id=_id(task, partition, run), run_at=due_at)


def _id(task: Task[..., Any], partition: Partition, run: int) -> str:
    return run_id(task.name, _text(partition), run, task.app_name)


def run_id(task: str, partition: str, run: int, app: str = "") -> str:
    """The id of a run of a partition, which is as its tag has it; the first run is 0."""
    parts = (KEY, task, partition, str(run)) if run else (KEY, task, partition)
    # Two programs with a task of this name do not share its partitions.
    return lasting_id(*parts, *(["app", app] if app else []), bucket=KEY)


def _bound(task: Task[..., Any], most: int) -> None:
    """Let at most so many run at a time; jobs of the task without a key are not counted."""
    if most < 1:
        raise Refused(f"max_running={most}: 1 or more, or None for no bound")
    rule = Rule(RuleKind.LIMIT, None, task.name, KEY, "backfill", running=most, per_key=True)
    for other in task.app.broker.records(Rule):
        if other.identity == rule.identity and other.author != KEY:
            raise Refused(
                f"{other.target} has a limit per key already ({other.bound}), which holds for this"
                " as well: write max_running=None, or take it back first"
            )
    task.app.broker.put(rule)


def _partitions(
    task: Task[..., Any], start: Partition | str, end: Partition | str, step: Step | None
) -> Iterator[Partition]:
    kind = _kind(task)
    first, last = (_read(kind, each, task) for each in (start, end))
    length: Any = step
    if length is None:
        length = {date: timedelta(days=1), datetime: timedelta(hours=1), int: 1}[kind]
    elif kind is not int and isinstance(length, int):
        length = timedelta(days=length)
    if (kind is int) is not isinstance(length, int) or not length > type(length)():
        raise Refused(f"step={step!r}: a timedelta above 0, or for whole numbers one of those")
    if kind is date and length % timedelta(days=1):
        raise Refused(f"step={step!r}: whole days, for a partition is a date")
    if first > last:
        raise Refused(f"backfill({start!r}, {end!r}): the range ends before it begins")
    if (last - first) // length >= _MOST:
        raise Refused(
            f"backfill({start!r}, {end!r}): more than {_MOST:,} partitions; do it in parts"
        )
    for n in range((last - first) // length + 1):
        yield first + n * length


def _kind(task: Task[..., Any]) -> Any:
    """What a partition is: the type of the task's first parameter."""
    names = [name for name in task.parameters if name not in task.resources]
    if not names:
        raise Refused(f"task {task.name} takes no partition: its first parameter would be a date")
    hint = hints_of(task.function, {}, names[:1]).get(names[0], date)
    kinds = [each for each in (typing.get_args(hint) or (hint,)) if each in (date, datetime, int)]
    if not kinds:
        raise Refused(
            f"task {task.name}: a partition is its first parameter, {names[0]}, which is no date,"
            " datetime or int"
        )
    return kinds[0]


def _read(kind: Any, given: Any, task: Task[..., Any]) -> Any:
    value: Any = given
    try:
        value = kind.fromisoformat(given) if isinstance(given, str) and kind is not int else given
    except ValueError:
        value = None
    if type(value) is not kind:
        example = {date: "'2026-01-31'", datetime: "'2026-01-31T00:00Z'", int: "7"}[kind]
        raise Refused(
            f"backfill({given!r}): a partition of {task.name} is of type {kind.__name__}, as"
            f" {example}"
        )
    if kind is datetime and value.tzinfo is None:
        raise Refused(f"backfill({given!r}): has no time zone; write 2026-01-01T00:00Z")
    return value


def _text(partition: Partition) -> str:
    if isinstance(partition, datetime):
        # The same moment is the same partition, whoever writes it.
        return partition.astimezone(UTC).isoformat()
    return str(partition)


def rows_of(partitions: list[Partition]) -> Iterator[tuple[str, list[Partition]]]:
    """A row per month for days and per day for hours; else so many to a row."""
    if partitions and isinstance(partitions[0], datetime):
        for day, row in groupby(partitions, lambda each: cast("datetime", each).date()):
            yield day.isoformat(), list(row)
    elif partitions and isinstance(partitions[0], date):
        for month, row in groupby(partitions, lambda each: f"{each:%Y-%m}"):
            days = list(row)
            yield month, days
    else:
        for at in range(0, len(partitions), _PER_ROW):
            yield str(partitions[at]), partitions[at : at + _PER_ROW]
