"""The verbs of the broker protocol as messages: arguments by name, and answers.

Between `brokers.remote` and the manager, which may be of two releases: a verb or an argument is
added with a default, and never taken away. An argument that the other side does not know is
refused, since leaving it out would change what the call means. Nothing is run that a message names
but the verbs below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.filter import Filter
from penstock.broker.position import BEGINNING, Position
from penstock.broker.protocol import Broker
from penstock.broker.slice import Reach, Selection, Slice
from penstock.broker.values import (
    Action,
    Batch,
    Claimed,
    Committed,
    Enqueued,
    Epoch,
    Renewed,
    Wanted,
)
from penstock.broker.views import Count, Event, Note, Page, Why, WorkerRow
from penstock.broker.wire import (
    AnyJob,
    Ended,
    KeptRecord,
    Piece,
    decode,
    encode,
    from_ended,
    from_pieces,
    from_record,
    held,
    kind_named,
    to_record,
)
from penstock.errors import Refused
from penstock.flows.flow import Flow, FlowPage, FlowRow, JobOutput
from penstock.schedules.schedule import Decision, Schedule


class Verb(msgspec.Struct, frozen=True):
    """How a verb's call is read, carried out and answered."""

    arguments: type[msgspec.Struct]
    answer: Any
    run: Callable[[Broker, Any], Any]

    def carry_out(self, broker: Broker, arguments: bytes) -> bytes:
        """Call the verb of a broker with these arguments; its answer."""
        return encode(self.run(broker, decode(arguments, self.arguments)))


class Arguments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a verb was called with. A field here that is not known there must change nothing."""

    def by_name(self, *without: str) -> dict[str, Any]:
        names = self.__struct_fields__
        return {name: getattr(self, name) for name in names if name not in without}


class _None(Arguments):
    pass


class _Enqueue(Arguments):
    jobs: list[Piece]
    batch: Batch | None = None
    flow: Flow | None = None


class _Claim(Arguments):
    wanted: list[Wanted]
    settlements: list[Ended] = []


class _Settle(Arguments):
    pairs: list[Ended]


class _Renew(Arguments):
    workers: list[WorkerRow]
    holding: list[str] | None = None


class _Note(Arguments):
    job: AnyJob
    note: Note


class _Recover(Arguments):
    by: str | None = None
    dead: str | None = None
    started: list[str] | dict[str, str | None] | None = None


class _Prune(Arguments):
    before: float


class _Job(Arguments):
    job_id: str


class _History(Arguments):
    after: Position | None = BEGINNING
    limit: int = 1000
    job: str | None = None
    kind: str | list[str] | None = None
    before: Position | None = None


class _Act(Arguments):
    action: Action
    ids: list[str] = []
    author: str = ""
    reason: str = ""
    flow: str | None = None
    part_of: str | None = None
    secrets: dict[str, Any] | None = None


class _Signal(Arguments):
    name: str
    value: bytes
    author: str = ""
    reason: str = ""


class _Put(Arguments):
    record: KeptRecord
    author: str = ""
    reason: str = ""


class _Clear(Arguments):
    kind: str
    record_id: str
    author: str = ""
    reason: str = ""


class _Decide(Arguments):
    schedule: Schedule
    decisions: list[Decision]


class _Audit(Arguments):
    kind: str
    author: str
    reason: str = ""
    data: dict[str, Any] | None = None


class _Notes(Arguments):
    job_id: str
    kind: str | None = None


class _Find(Arguments):
    filter: Filter
    after: str | None = None
    limit: int = 100


class _Flow(Arguments):
    flow_id: str


class _Flows(Arguments):
    name: str | None = None
    find: dict[str, str] | None = None
    after: str | None = None
    limit: int = 100


class _Outputs(Arguments):
    node: str


class _Records(Arguments):
    kind: str


class _Stage(Arguments):
    write: str
    part: str
    jobs: list[Piece]


class _CommitWrite(Arguments):
    write: str
    parts: dict[str, int]
    token: str = ""
    epoch: Epoch | None = None


class _Discard(Arguments):
    write: str


class _GetMany(Arguments):
    ids: list[str]


class _Reach(Arguments):
    selection: Selection
    after: Position = BEGINNING
    at_most: int | None = None
    patience: float = 0.5
    until: Position | None = None


class _Slices(Arguments):
    selection: Selection
    after: Position = BEGINNING
    until: Position | None = None
    at_most: int = 1


class _App(Arguments):
    app: str


def _plain(verb: str) -> Callable[[Broker, Any], Any]:
    """The verb with its arguments as they are."""

    def run(broker: Broker, arguments: Arguments) -> Any:
        return getattr(broker, verb)(**arguments.by_name())

    return run


def _enqueue(broker: Broker, call: _Enqueue) -> Enqueued:
    return broker.enqueue(from_pieces(call.jobs), batch=call.batch, flow=call.flow)


def _claim(broker: Broker, call: _Claim) -> Claimed:
    return broker.claim(call.wanted, from_ended(call.settlements))


def _settle(broker: Broker, call: _Settle) -> Sequence[bool | None]:
    return broker.settle(from_ended(call.pairs))


def _note(broker: Broker, call: _Note) -> bool:
    return broker.note(held(call.job), call.note)


def _put(broker: Broker, call: _Put) -> KeptRecord:
    record = from_record(call.record)
    return to_record(broker.put(record, author=call.author, reason=call.reason))


def _clear(broker: Broker, call: _Clear) -> bool:
    kind = kind_named(call.kind)
    return broker.clear(kind, call.record_id, author=call.author, reason=call.reason)


def _records(broker: Broker, call: _Records) -> list[KeptRecord]:
    return [to_record(record) for record in broker.records(kind_named(call.kind))]


def _stage(broker: Broker, call: _Stage) -> int:
    return broker.stage(call.write, call.part, from_pieces(call.jobs))


def _digest_key(broker: Broker, _: _None) -> bytes:
    return broker.traits.digest_key()


def _sealed_apps(broker: Broker, _: _None) -> frozenset[str]:
    return broker.traits.sealed_apps()


def _mark_sealed(broker: Broker, call: _App) -> None:
    broker.traits.mark_sealed(call.app)


def _rules_version(_: Broker, __: _None) -> None:
    """The answer of every call has it."""


# `wait`, `wake`, `close` and `scan` are not calls: see the streams of the contract.
VERBS: Mapping[str, Verb] = {
    "enqueue": Verb(_Enqueue, Enqueued, _enqueue),
    "claim": Verb(_Claim, Claimed, _claim),
    "settle": Verb(_Settle, list[bool | None], _settle),
    "renew": Verb(_Renew, Renewed, _plain("renew")),
    "note": Verb(_Note, bool, _note),
    "recover": Verb(_Recover, int, _plain("recover")),
    "prune": Verb(_Prune, int, _plain("prune")),
    "gauge": Verb(_None, int, _plain("gauge")),
    "get": Verb(_Job, AnyJob | None, _plain("get")),
    "count": Verb(_None, list[Count], _plain("count")),
    "history": Verb(_History, list[Event], _plain("history")),
    "why": Verb(_Job, Why, _plain("why")),
    "act": Verb(_Act, list[str], _plain("act")),
    "signal": Verb(_Signal, list[str], _plain("signal")),
    "put": Verb(_Put, KeptRecord, _put),
    "clear": Verb(_Clear, bool, _clear),
    "decide_schedule": Verb(_Decide, bool, _plain("decide_schedule")),
    "audit": Verb(_Audit, None, _plain("audit")),
    "notes": Verb(_Notes, list[Note], _plain("notes")),
    "find": Verb(_Find, Page, _plain("find")),
    "flow": Verb(_Flow, FlowRow | None, _plain("flow")),
    "flows": Verb(_Flows, FlowPage, _plain("flows")),
    "outputs": Verb(_Outputs, list[JobOutput], _plain("outputs")),
    "records": Verb(_Records, list[KeptRecord], _records),
    "workers": Verb(_None, list[WorkerRow], _plain("workers")),
    "stage": Verb(_Stage, int, _stage),
    "commit_write": Verb(_CommitWrite, Committed, _plain("commit_write")),
    "discard": Verb(_Discard, None, _plain("discard")),
    "get_many": Verb(_GetMany, dict[str, AnyJob], _plain("get_many")),
    "reach": Verb(_Reach, Reach, _plain("reach")),
    "slices": Verb(_Slices, list[Slice], _plain("slices")),
    "digest_key": Verb(_None, bytes, _digest_key),
    "sealed_apps": Verb(_None, frozenset[str], _sealed_apps),
    "mark_sealed": Verb(_App, None, _mark_sealed),
    "rules_version": Verb(_None, None, _rules_version),
}


def verb_named(name: str) -> Verb:
    try:
        return VERBS[name]
    except KeyError:
        raise Refused(
            f"{name!r} is no verb that this manager knows: it is of an older Penstock than its "
            "client; upgrade the manager first"
        ) from None
