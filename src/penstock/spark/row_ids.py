"""The job id of a row, derived from the row's own id; and whether the row has changed since.

The arguments are not part of the id: a deploy, or a column that is cast, would call every row
again. A hash of them is in a header of the job instead, and is compared when the row comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.enqueue.codec import read_body
from penstock.enqueue.ids import bucket_of, in_bucket, lasting_id
from penstock.enqueue.secrets import HASH, redact
from penstock.errors import Refused
from penstock.job import Job

if TYPE_CHECKING:
    from penstock.broker.protocol import Broker

GONE = "gone"  # in place of a state: the store has no such job
CHANGED = "changed"  # the same: it has one, with other arguments
ON_CHANGE = ("refuse", "again", "keep")


def row_id(
    task: str,
    id: object,
    *,
    name: str = "",
    key: str | None = None,
    unique: str | None = None,
    app: str = "",
) -> str:
    """The id of the job that a row with this `id` becomes: the same, whenever it is written.

    `name` is that of the `apply`, or the option `write` of the sink. A `key` or a `unique` key
    decides the bucket of the id: the same row with another key is another job. `app` is the name of
    the app that runs it, if it has one.
    """
    return lasting_id("spark", app, name, task, str(id), bucket=key if unique is None else unique)


def changed_id(row: str, digest: str, version: int) -> str:
    """The id of the job of a row that is called again, since arguments or version have changed."""
    return in_bucket(lasting_id("changed", row, digest, str(version)), bucket_of(row))


def check_on_change(on_change: str) -> str:
    if on_change not in ON_CHANGE:
        raise Refused(f"on_change={on_change!r}: one of {', '.join(ON_CHANGE)}")
    return on_change


def hash_of(body: bytes) -> str:
    """A hash of a body's arguments in any order; declared secrets do not count."""
    arguments = msgspec.json.decode(redact(body))["args"]
    return sha256(msgspec.json.encode(arguments, order="sorted")).hexdigest()[:16]


def stored_hash(job: Job[Any]) -> str | None:
    """The hash with which a job was enqueued; None if the store does not have it any more."""
    try:
        return read_body(job.body).headers.get(HASH)
    except Refused:
        return None


def change_of(stored: Job[Any], digest: str, version: int) -> str | None:
    """What has changed since this job was enqueued; None: nothing, or it cannot be told."""
    before = stored_hash(stored)
    if before is not None and before != digest:
        return "other arguments"
    if stored.version != version:
        return f"version {stored.version} of the task, which has version {version} now"
    return None


def jobs_of_rows(
    broker: Broker, rows: Sequence[tuple[str, str]], version: int, *, keep: bool
) -> list[Job[Any] | str]:
    """The job of each row, given by id and hash, looked up by one or two calls for all.

    GONE or CHANGED where there is none for these arguments; with `keep` they are not compared.
    """
    stored = broker.get_many([id for id, _ in rows])
    other = {  # row -> the id of the job that was called again
        (id, digest): changed_id(id, digest, version)
        for id, digest in rows
        if not keep and id in stored and change_of(stored[id], digest, version) is not None
    }
    again = broker.get_many(list(other.values())) if other else {}
    return [
        again.get(other[row], CHANGED) if row in other else stored.get(row[0], GONE) for row in rows
    ]
