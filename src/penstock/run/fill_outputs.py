"""Puts what other jobs returned where a job's arguments left room for it, before it runs.

Results go from the store into the body as the JSON that they are; the typed decoder of the task
then reads the whole, so that what a caller without a type checker got wrong is found here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.broker.protocol import Broker
from penstock.errors import RetryLater, StoreUnreachable
from penstock.flows.flow import Fill, JobOutput, Member, member_of
from penstock.job import Job, State

STORE_SECONDS = 5.0  # before the next try when the store did not answer
_NULL = msgspec.Raw(b"null")


class NeedsGone(Exception):
    """The output of a job that this one needs is not kept any more."""


def has_room(body: bytes) -> bool:
    """Whether an output is to be filled in: a substring test; a false positive is harmless."""
    return b'"fill":' in body


def filled(broker: Broker, job: Job[Any]) -> bytes:
    """The body with every output in its place.

    `NeedsGone` if one of them is not kept; `RetryLater` if the store does not answer.
    """
    member = member_of(job.body)
    if member is None or not member.fill:
        return job.body
    body = msgspec.json.decode(job.body)
    known: dict[str, list[JobOutput]] = {}
    for fill in member.fill:
        if fill.node not in known:
            try:
                known[fill.node] = _outputs_of(broker, member, fill)
            except StoreUnreachable as error:
                raise RetryLater(STORE_SECONDS, str(error)) from error
        _put(body["args"], fill.path, _value(fill, known[fill.node]))
    return msgspec.json.encode(body)


def _outputs_of(broker: Broker, member: Member, fill: Fill) -> list[JobOutput]:
    outputs = broker.outputs(fill.node)
    gone = [output.job for output in outputs if output.state is None]
    if (gone or not outputs) and not _runs_without_output(broker, member):
        named = gone[0] if gone else fill.node
        raise NeedsGone(
            f"the output of job {named}, which this one needs, is not kept any more: it was deleted"
            " or pruned"
        )
    return outputs


def _runs_without_output(broker: Broker, member: Member) -> bool:
    """Whether the job runs with what there is: deleted before its end a need is only missing."""
    flow = broker.flow(member.id)
    nodes = () if flow is None else flow.nodes
    return any(node.id == member.node and node.on_failure == "continue" for node in nodes)


def _value(fill: Fill, outputs: list[JobOutput]) -> Any:
    succeeded = [output.result for output in outputs if output.state is State.SUCCEEDED]
    results = [_NULL if result is None else msgspec.Raw(result) for result in succeeded]
    if fill.many:
        return results
    return results[0] if results else None


def _put(arguments: Any, path: tuple[str | int, ...], value: Any) -> None:
    holder = arguments
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
