"""Values of the broker protocol as bytes, in MessagePack; errors too. See `wire_verbs`.

Nothing here is pickled. A field that the other side does not know is passed over: fields of values
are added with a default, and never taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import force_setattr, replace

from penstock import errors
from penstock.broker.checks import legible
from penstock.broker.lake_mark import Mark
from penstock.broker.records import PLAIN_KINDS, Record
from penstock.broker.values import (
    Settlement,
)
from penstock.enqueue.subscription import Subscription
from penstock.errors import PenstockError, Refused
from penstock.flows.flow import Flow
from penstock.job import Job, Outcome, Parcel
from penstock.rules.rule import Rule
from penstock.schedules.schedule import Decision, Schedule

AnyJob = Job[Any]
KINDS: Mapping[str, type[Record]] = {
    kind.__name__: kind for kind in (Rule, Schedule, Mark, *(each.type for each in PLAIN_KINDS))
}


class Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job or a parcel: two classes that MessagePack alone cannot tell apart."""

    job: AnyJob | None = None
    parcel: Parcel | None = None


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A claimed job, how its attempt ended, and what that spawned."""

    job: AnyJob
    outcome: Outcome
    spawned: tuple[Piece, ...] = ()
    flow: Flow | None = None


class KeptRecord(msgspec.Struct, frozen=True):
    """A record and the name of its class."""

    kind: str
    value: msgspec.Raw


class Failure(msgspec.Struct, frozen=True):
    """An error of `penstock.errors`: its class, its sentence, and what else it says."""

    kind: str
    message: str
    fields: Mapping[str, str | int | float | None] = {}


def to_pieces(jobs: Iterable[AnyJob | Parcel]) -> list[Piece]:
    return [Piece(None, job) if isinstance(job, Parcel) else Piece(bare(job)) for job in jobs]


def from_pieces(pieces: Iterable[Piece]) -> list[AnyJob | Parcel]:
    jobs = [piece.parcel if piece.job is None else piece.job for piece in pieces]
    if None in jobs:
        raise Refused("the message has a piece that is neither a job nor a parcel")
    return cast("list[AnyJob | Parcel]", jobs)


def to_ended(pairs: Iterable[Settlement]) -> list[Ended]:
    return [_ended(job, outcome) for job, outcome in pairs]


def _ended(job: AnyJob, outcome: Outcome) -> Ended:
    if not outcome.spawned and outcome.flow is None and outcome.fault is None:
        return Ended(bare(job), outcome)
    plain = replace(outcome, spawned=(), flow=None, fault=None)
    return Ended(bare(job), plain, tuple(to_pieces(outcome.spawned)), outcome.flow)


def from_ended(ended: Iterable[Ended]) -> list[Settlement]:
    return [_settlement(each) for each in ended]


def _settlement(ended: Ended) -> Settlement:
    outcome = ended.outcome
    if ended.spawned or ended.flow is not None:
        outcome = replace(outcome, spawned=tuple(from_pieces(ended.spawned)), flow=ended.flow)
    return held(ended.job), outcome


def held(job: AnyJob) -> AnyJob:
    """The job with the store's note of its claim as a tuple again, which MessagePack has not."""
    if isinstance(job.lease, list):
        force_setattr(job, "lease", tuple(cast("list[Any]", job.lease)))
    return job


def bare(job: AnyJob) -> AnyJob:
    """Without what means something only in the process that made it."""
    if job.owner is None and job.given is None and job.provisional is None:
        return job
    return replace(job, owner=None, given=None, provisional=None)


def to_record(record: Record) -> KeptRecord:
    if type(record) not in KINDS.values():
        raise Refused(f"{type(record).__name__} is no record of a store; there are {_kinds()}")
    if isinstance(record, Schedule | Subscription):
        record = replace(record, job=bare(record.job))
    return KeptRecord(type(record).__name__, msgspec.Raw(encode(record)))


def from_record(kept: KeptRecord) -> Any:
    return decode(kept.value, kind_named(kept.kind))


def kind_named(name: str) -> type[Record]:
    try:
        return KINDS[name]
    except KeyError:
        raise Refused(f"{name!r} is no record of a store; there are {_kinds()}") from None


def _kinds() -> str:
    return ", ".join(sorted(KINDS))


def bare_schedule(schedule: Schedule) -> Schedule:
    """The schedule, with the job that its jobs are made of as `bare` makes it."""
    return replace(schedule, job=bare(schedule.job))


def to_decisions(decisions: Iterable[Decision]) -> list[Decision]:
    return [each if each.job is None else replace(each, job=bare(each.job)) for each in decisions]


def encode(value: Any) -> bytes:
    """As MessagePack; refused where it has no form."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError as error:
        raise Refused(
            f"{_without_utf8(value, 'a text')}: a lone surrogate cannot be stored as text"
        ) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused(f"this cannot be sent to a manager: {error}") from error


def _without_utf8(value: Any, name: str) -> str:
    """Which field it is, and what it says; empty if all of the value has a form in UTF-8."""
    if isinstance(value, str):
        return "" if value.isascii() or legible(value) == value else f"{name} {value[:60]!r}"
    fields: Iterable[tuple[str, Any]] = ()
    if isinstance(value, msgspec.Struct):
        fields = ((each, getattr(value, each)) for each in value.__struct_fields__)
    elif isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        fields = (pair for key, item in items for pair in ((name, key), (key, item)))
    elif isinstance(value, Collection) and not isinstance(value, bytes):
        fields = ((name, item) for item in cast("Collection[Any]", value))
    return next((found for each, item in fields if (found := _without_utf8(item, each))), "")


def _no_form(value: Any) -> Any:
    raise TypeError(f"a value of the class {type(value).__name__} has no form there")


_encoder = msgspec.msgpack.Encoder(enc_hook=_no_form)


def decode(message: bytes | msgspec.Raw, form: Any) -> Any:
    """Read a message as a value of this type; refused if it is none."""
    try:
        return msgspec.msgpack.decode(message, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"a message that this Penstock cannot read: {error}") from error


def to_failure(error: BaseException) -> Failure:
    """An error as the nearest class of `penstock.errors` that it is an instance of."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if _is_ours(kind)]
    if not kinds:
        message = f"the manager failed with {type(error).__name__}: {error}; its log has more"
        return Failure(PenstockError.__name__, message)
    fields = {
        name: value
        for name, value in vars(error).items()
        if value is None or isinstance(value, (str, int, float))
    }
    return Failure(kinds[0], str(error), fields)


def from_failure(failure: Failure, jobs: Sequence[AnyJob | Parcel] = ()) -> BaseException:
    """The error; `jobs` are those of an UnknownOutcome, as they were sent."""
    named = getattr(errors, failure.kind, None)
    ours = isinstance(named, type) and _is_ours(named)
    kind: Any = named if ours else PenstockError  # of a newer Penstock
    error: Any = kind.__new__(kind)
    error.args = (failure.message,)
    error.__dict__.update(failure.fields)
    if isinstance(error, errors.UnknownOutcome):
        error.jobs = list(jobs)
    return error


def _is_ours(kind: type) -> bool:
    return kind.__module__ == errors.__name__ and issubclass(kind, BaseException)


def as_list(values: Collection[str] | None) -> list[str] | None:
    """Any collection of texts, in a form that is sent as it is."""
    return None if values is None else list(values)
