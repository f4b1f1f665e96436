"""What every broker refuses, in the same words: pure checks of values before they are stored.

Every refusal names the value and what would be right.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from penstock.enqueue.ids import parse_id, time_of
from penstock.enqueue.secrets import declared_secrets
from penstock.errors import Refused
from penstock.job import Job, Lane

MOST_BODY_BYTES = 256 * 1024
MOST_NAME_CHARACTERS = 200
MOST_PRIORITY = 100
MOST_VERSION = 2**31 - 1
AHEAD_SECONDS = 60
_PATH = re.compile(r"(?:^|:)\s*\.{0,2}/|\.py\s*(?::|\Z)", re.IGNORECASE)
ACTIONS = ("cancel", "retry", "delete")
_SCOPES = ("started", "ended", "time")


def check_action(action: str) -> None:
    if action not in ACTIONS:
        raise Refused(f"{action!r} is no action on jobs; there are {', '.join(ACTIONS)}")


@lru_cache(4096)  # a process enqueues to few lanes, and to each of them often
def check_lane(lane: Lane) -> None:
    """Names that can be typed and shown, numbers within their bounds."""
    if lane.app:
        check_name("app", lane.app)
    check_name("queue", lane.queue)
    check_name("task", lane.task)
    check_no_path("task", lane.task)
    for tag in lane.runs_on:
        check_name("tag in runs_on", tag)
        if "," in tag:
            message = f"tag in runs_on {tag!r}: a comma is not allowed"
            raise Refused(message)
    if not -MOST_PRIORITY <= lane.priority <= MOST_PRIORITY:
        message = f"priority {lane.priority!r} of {lane.task}: from -100 to 100, higher first"
        raise Refused(message)
    if not 0 <= lane.version <= MOST_VERSION:
        message = f"version {lane.version!r} of {lane.task}: it goes from 0 to {MOST_VERSION}"
        raise Refused(message)


def check_name(what: str, name: str) -> None:
    # Cc: control characters, NUL among them; Cs: lone surrogates, which have no UTF-8.
    printable = name.isprintable() or not any(
        unicodedata.category(character) in {"Cc", "Cs"} for character in name
    )
    if not 0 < len(name) <= MOST_NAME_CHARACTERS or not printable:
        message = (
            f"{what} {name[:60]!r}: a name has 1 to {MOST_NAME_CHARACTERS} characters, "
            "none of them a control character"
        )
        raise Refused(message)


def check_no_path(what: str, name: str) -> None:
    """Refuse a task that is named like a file: who imports such a name would run the file."""
    if is_path(name):
        message = (
            f"{what} {name[:60]!r} is a path: what is before the colon must not begin with / or "
            "end in .py; write module:function, for example tasks:add"
        )
        raise Refused(message)


def is_path(name: str) -> bool:
    """Whether a task's name begins with a path, or with a file of Python code."""
    if not name.isascii():  # full-width letters, and characters that are not shown
        visible = (letter for letter in name if unicodedata.category(letter) != "Cf")
        name = unicodedata.normalize("NFKC", "".join(visible))
    return _PATH.search(name.rpartition(":")[0] or name) is not None


def check_text(what: str, text: str | None) -> None:
    """Text that every store can keep and find unchanged."""
    # PostgreSQL has no NUL in texts; a lone surrogate has no UTF-8.
    if text is not None and ("\x00" in text or not _is_text(text)):
        message = f"{what} {text[:60]!r}: a NUL or a lone surrogate cannot be stored as text"
        raise Refused(message)


def legible(text: str) -> str:
    """Text that every store can keep: NUL and lone surrogates are replaced by visible signs.

    For author and reason, which must never make an action fail.
    """
    if "\x00" not in text and _is_text(text):
        return text
    pieces = text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-16", "surrogatepass")
    return pieces.decode("utf-16", "replace")


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_body(body: bytes) -> None:
    if len(body) > MOST_BODY_BYTES:
        message = (
            f"the arguments take {len(body):,} bytes, the limit is {MOST_BODY_BYTES:,}: store the "
            "data elsewhere and hand over where it is"
        )
        raise Refused(message)


def check_age(job_id: str, now: float, oldest: float) -> None:
    """Refuse an id that is too old to be recognised if sent again, or from the future."""
    if parse_id(job_id) != job_id:
        message = f"{job_id!r} is not a job id in its usual form, {parse_id(job_id)}"
        raise Refused(message)
    made_at = time_of(job_id)
    if made_at is None:
        return
    if made_at < oldest:
        message = (
            f"job {job_id} was made {(now - made_at) / 86400:.1f} days ago, longer than ids are "
            "remembered: it may have run already. Make a new one"
        )
        raise Refused(message)
    if made_at > now + AHEAD_SECONDS:
        message = (
            f"job {job_id} was made {made_at - now:.0f} s ahead of the store's clock; set this "
            "machine's clock right"
        )
        raise Refused(message)


def check_job(job: Job[Any]) -> None:
    """What a job with a row of its own can have wrong; jobs in parcels have only a body."""
    check_body(job.body)
    if job.search:
        secret = declared_secrets(job.body)
        for path in job.search:
            if path.partition(".")[0] in secret:
                raise Refused(
                    f"job {job.id}: search {path!r} is of a secret argument: what is searched for "
                    "stands in an index, as it is"
                )
    for word, time in (("run_at", job.run_at), ("expires_at", job.expires_at)):
        if time is not None and not math.isfinite(time):
            message = f"{word} {time!r} of job {job.id} is not a time"
            raise Refused(message)
    check_text("key", job.key)
    for text in chain.from_iterable(job.tags.items()):
        check_text("tag", text)
    if job.unique is not None:
        check_text("unique key", job.unique.key)
        if job.unique.until not in _SCOPES:
            message = f"unique until {job.unique.until!r}: write one of {', '.join(_SCOPES)}"
            raise Refused(message)
        if job.unique.until == "time" and job.unique.seconds is None:
            message = f"unique key {job.unique.key!r} until 'time' needs a number of seconds"
            raise Refused(message)


def check_joined(jobs: Iterable[Job[Any]]) -> None:
    """Refuse in the caller's transaction what locks rows that others need until it ends."""
    for job in jobs:
        if job.unique is not None and job.unique.replace:
            raise Refused(
                f"unique={job.unique.key!r} with replace=True cannot join the caller's transaction:"
                " the job that it replaces would be locked until that ends. Enqueue after the"
                " commit"
            )


def check_batch(batch: str, count: int, stored: int) -> None:
    """A bulk enqueue continues from the row that the store has come to."""
    if count != stored:
        raise other_count(batch, count, stored)


def other_count(batch: str, count: int, stored: int) -> Refused:
    return Refused(
        f"batch {batch!r} has {stored} rows stored, this call goes on from {count}: somebody else "
        "is enqueueing under the same id, or an answer was lost; an enqueue of no jobs under this "
        "id returns its count"
    )


def check_whole_flow(flow: str, jobs: int, known: Collection[str]) -> None:
    """If one job of a flow was stored before, all were: anything else is refused."""
    if known and len(known) < jobs:
        raise partly_known(flow, min(known))


def partly_known(flow: str, job: str) -> Refused:
    return Refused(
        f"flow {flow}: job {job} was enqueued before, without this flow; make a new one, and "
        "enqueue only the flow"
    )


def check_stage(write: str, part: str = "part") -> None:
    """The names of a write and of its part."""
    for word, name in (("write", write), ("part", part)):
        check_text(word, name)
        if not 0 < len(name) <= MOST_NAME_CHARACTERS:
            message = f"{word} {name[:60]!r}: a name has 1 to {MOST_NAME_CHARACTERS} characters"
            raise Refused(message)


def check_staged(write: str, announced: Mapping[str, int], staged: Mapping[str, int]) -> None:
    """Every part has as many jobs staged as the commit says."""
    for part, jobs in announced.items():
        count = staged.get(part, 0)
        if count != jobs:
            message = (
                f"write {write!r}: part {part!r} should have {jobs} jobs, {count} are staged "
                "(a write that is not committed is kept for a day); make the write again, nothing "
                "of it was stored"
            )
            raise Refused(message)
