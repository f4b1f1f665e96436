"""Signals: a job that waits for a word from outside, and what that word makes of it.

    approved = wait_for("approve-62", timeout=86400)       a Job: a value, not stored yet
    ship.job(order, approval=approved.output).enqueue()    both are stored, and nobody is held
    app.signal("approve-62", {"by": "ada"})                the wait ends, and ship runs with that

The job of a wait is always in a flow, alone if need be, and the store keeps it as `waiting` from
the start: no worker is ever handed it. All that a store looks at are its task and its tag; it does
so by `awaits`, `signalled` and `signal_data`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn, TypeVar, overload

import msgspec

from penstock.broker.checks import check_name, legible
from penstock.enqueue.ids import derived_id
from penstock.errors import Refused
from penstock.flows.compose import Given
from penstock.flows.flow import WAIT_TASK
from penstock.job import Job, Parcel, State
from penstock.task.option_checks import check_timeout

T = TypeVar("T")

TAG = "signal"  # its value is the name of the signal


class _Nowhere:
    """The app of a wait: none, because a signal is a matter of the store and not of one program."""

    def enqueue(self, *_: Any, **__: Any) -> NoReturn:
        raise Refused(
            "wait_for(...) belongs to no app: hand its output to a job of a task, or store it by "
            "itself with app.enqueue([wait_for(...)])"
        )


class _Arguments(msgspec.Struct):
    signal: str
    timeout: float | None = None


class _Body(msgspec.Struct):
    args: _Arguments


_read = msgspec.json.Decoder(_Body).decode


@overload
def wait_for(name: str, timeout: float | timedelta | None = None) -> Job[Any]: ...
@overload
def wait_for(
    name: str, timeout: float | timedelta | None = None, *, returns: type[T]
) -> Job[T]: ...
def wait_for(
    name: str, timeout: float | timedelta | None = None, *, returns: type[Any] | None = None
) -> Job[Any]:
    """A job that no worker runs: `app.signal(name, value)` ends it, and the value is its output.

    It waits from when it is stored, with the flow that it is in. Without a signal within `timeout`
    seconds it is cancelled as expired; None: it waits until it is cancelled. `returns` is for type
    checkers; whoever is handed the output checks the value by its own annotation.
    """
    del returns
    body = _Body(_Arguments(check_signal(name), check_timeout(timeout)))
    return Job(
        task=WAIT_TASK,
        body=msgspec.json.encode(body),
        # Without a time in it: there is no app here whose clock, perhaps a test's, could tell it.
        id=derived_id(WAIT_TASK, uuid.uuid4().hex),
        tags={TAG: name},
        owner=_Nowhere(),
        given=Given((), ((),)),
    )


def check_signal(name: object) -> str:
    """The name of a signal, or a refusal."""
    if not isinstance(name, str):
        raise Refused(f"signal {name!r}: its name is a text")
    check_name("signal", name)
    return name


def with_deadlines(stored: Sequence[Job[Any] | Parcel], now: float) -> list[Job[Any] | Parcel]:
    """The same jobs, about to be stored: the time of those that wait for a signal begins now."""
    return [
        _with_deadline(part, now) if isinstance(part, Job) and part.task == WAIT_TASK else part
        for part in stored
    ]


def _with_deadline(job: Job[Any], now: float) -> Job[Any]:
    timeout = _read(job.body).args.timeout
    if timeout is None:
        return job
    return msgspec.structs.replace(job, expires_at=now + timeout)


def awaits(job: Job[Any], name: str, now: float) -> bool:
    """Whether a signal of this name ends the job. One whose time is over is left to expire."""
    return (
        job.state is State.WAITING
        and job.task == WAIT_TASK
        and job.tags.get(TAG) == name
        and (job.expires_at is None or job.expires_at > now)
    )


def signalled(job: Job[Any], value: bytes, now: float) -> Job[Any]:
    """The job as the signal leaves it."""
    return msgspec.structs.replace(job, state=State.SUCCEEDED, result=value, ended_at=now)


def signal_data(name: str, author: str, reason: str) -> dict[str, str]:
    """What the history says of the signal, in the row of each job that it ended."""
    return {"signal": name, "author": legible(author), "reason": legible(reason)}
