"""A job that has ended, once more as a job of its own: with its arguments, or with others.

A retry goes on with the same job: its id, its place in a flow, its history. A copy is a new job,
due at once, which names the job it was copied from; that one stays as it is. Changed arguments are
all checked before anything is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.app.encrypted_broker import EncryptedBroker
from penstock.app.key_file import NO_KEYS
from penstock.broker.checks import MOST_BODY_BYTES
from penstock.broker.filter import argument_text
from penstock.enqueue.ids import Ids, bucket_by, parse_id
from penstock.enqueue.secrets import HIDDEN, is_sealed, without_kept_secrets
from penstock.enqueue.tracing import HEADER
from penstock.errors import Refused
from penstock.flows.flow import WAIT_TASK, member_of
from penstock.flows.spawn_links import SPAWNED_BY
from penstock.job import ENDED, PARENT, Job

if TYPE_CHECKING:
    from penstock.app.app import App
    from penstock.broker.protocol import Broker
    from penstock.task.task import Task

COPY_OF = "copy_of"  # the header that names the other
_Fields = dict[str, msgspec.Raw]


def enqueue_copy(
    broker: Broker,
    job_id: str,
    author_and_reason: tuple[str, str],
    arguments: str | None = None,
    app: App | None = None,
) -> str:
    """Store a copy of a job, and write down who and why (`author_and_reason`); the copy's id.

    `arguments` are all of them, as a JSON object; None: those of the job. They are checked against
    the task, if this app has it.
    """
    author, reason = author_and_reason
    job = broker.get(job_id)
    if job is None:
        raise Refused(f"job {job_id} is not kept here, and so its arguments are not")
    task = None if app is None else app.task_of(job)
    bucket = bucket_by(job.unique and job.unique.key, job.key)
    copy = copied(job, Ids(broker.clock).first(bucket), author, arguments, task)
    if not isinstance(broker, EncryptedBroker) and job.app in broker.traits.sealed_apps():
        raise Refused(f"job {job.id}: its app encrypts its jobs, and {NO_KEYS}")
    with nullcontext([copy]) if app is None else app.sending([copy]) as jobs:
        holder = broker.enqueue(jobs).standing.get(copy.id)
    if holder is not None:
        raise Refused(f"not stored: job {holder} holds the unique key of this one")
    event_data = {
        "job": copy.id,
        "task": copy.task,
        "queue": copy.queue,
        "jobs": 1,
        COPY_OF: job.id,
    }
    broker.audit("enqueue", author, reason, event_data)
    return copy.id


def copied(
    job: Job[Any], id: str, author: str, arguments: str | None, task: Task[..., Any] | None
) -> Job[Any]:
    """The copy, not stored yet; refused if it could not run."""
    if job.state not in ENDED:
        raise Refused(f"job {job.id} has not ended, and only a job that has ended can be copied")
    if job.task == WAIT_TASK:
        raise Refused(f"job {job.id} waited for a signal, and has no call that could be copied")
    member = member_of(job.body)
    if member is not None and member.fill:
        raise Refused(
            f"job {job.id} gets arguments from other jobs of its flow: retry it, in its place"
        )
    if is_sealed(job.body):
        raise Refused(f"job {job.id}: its arguments are encrypted, and {NO_KEYS}")
    # Secrets that it keeps are for a retry: who copies it may not have seen them.
    fields = _fields(without_kept_secrets(job.body), f"job {job.id}: its body")
    fields.pop("flow", None)
    fields["args"] = _arguments(job, fields, arguments, task)
    headers = _decoded(fields.get("headers"), {})
    for name in (HEADER, SPAWNED_BY):  # what sent the other did not send this one
        headers.pop(name, None)
    fields["headers"] = _raw({**headers, "author": author, COPY_OF: job.id})
    body = msgspec.json.encode(fields)
    if len(body) > MOST_BODY_BYTES:
        raise Refused(f"{len(body):,} bytes of arguments and options: {MOST_BODY_BYTES:,} at most")
    return Job(
        task=job.task,
        body=body,
        id=parse_id(id),
        queue=job.queue,
        version=job.version,
        priority=job.priority,
        key=job.key,
        unique=job.unique,
        runs_on=job.runs_on,
        app=job.app,
        tags={name: value for name, value in job.tags.items() if name != PARENT},
        search=_searched(task.search if task is not None else job.search, fields["args"]),
        at_most_once=job.at_most_once,
    )


def _arguments(
    job: Job[Any], fields: Mapping[str, msgspec.Raw], given: str | None, task: Task[..., Any] | None
) -> msgspec.Raw:
    if given is None:
        named = _fields(bytes(fields.get("args", b"{}")), f"job {job.id}: its arguments")
    else:
        named = _fields(given.encode(), "the arguments")
    for name in _decoded(fields.get("secret"), []):
        if _decoded(named.get(name), None) == HIDDEN:
            raise Refused(f"{name} is secret, and is not kept once a job has ended: give it")
    arguments = _raw(named)
    if task is not None:
        task.codec.decode(bytes(arguments))
    return arguments


def _fields(text: bytes, what: str) -> _Fields:
    try:
        return msgspec.json.decode(text, type=_Fields)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f'{what}: not a JSON object such as {{"order": 4711}} ({error})') from None


def _decoded(raw: msgspec.Raw | None, default: Any) -> Any:
    return default if raw is None else msgspec.json.decode(raw)


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _searched(paths: Collection[str], arguments: msgspec.Raw) -> dict[str, str]:
    values: Any = _decoded(arguments, None) if paths else None
    texts = {path: argument_text(values, path) for path in paths}
    return {path: text for path, text in texts.items() if text is not None}
