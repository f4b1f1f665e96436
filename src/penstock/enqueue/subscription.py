"""Subscriptions: which publications become jobs of a task. Pure: no clock, no store.

A topic is words between dots: `order.paid`. In a pattern `*` stands for one word and `#` for any
number of them, also none. A publication is one job per subscription that fits, each a job of its
own from then on; whether a subscription fits is decided once, when it is published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from penstock.broker.checks import check_name, check_no_path, legible
from penstock.broker.filter import argument_text, parse_filter
from penstock.enqueue.ids import bucket_by, bucket_of, in_bucket
from penstock.errors import Refused
from penstock.job import Job

MOST_CHARACTERS = 255
TOPIC = "topic"  # the tag of its jobs, and the parameter that receives the topic's name
_WORD = re.compile(r"[\w:-]+")
_FIELDS = ("tags", "args")  # that a filter of a subscription may name


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One task that receives what is published under topics that fit its pattern."""

    name: str
    pattern: str
    job: Job[Any]  # what each of its jobs is made of, without arguments
    parameter: str  # of the task: receives what was published
    where: tuple[str, ...] = ()  # words of a filter, as `penstock find` takes them: arg. and tag.
    app: str = ""  # the program whose publications it receives
    takes_topic: bool = False  # the task has a parameter `topic`
    search: tuple[str, ...] = ()  # argument fields that `find` has indexed
    delay: float | None = None
    expires: float | None = None
    from_code: bool = False  # put by every program that has it in its code, when it starts

    created_at: float = 0.0  # by the store


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """What was published, once."""

    topic: str
    value: bytes  # JSON
    app: str = ""
    tags: Mapping[str, str] = {}
    key: str | None = None
    headers: Mapping[str, str] = {}


def check_topic(topic: object) -> str:
    """A topic that can be published under."""
    words = topic.split(".") if isinstance(topic, str) else []
    _check(topic, "topic", all(_WORD.fullmatch(word) for word in words))
    return str(topic)


def check_pattern(pattern: object) -> str:
    """A pattern of topics: `*` and `#` stand as words of their own."""
    words = pattern.split(".") if isinstance(pattern, str) else []
    _check(pattern, "pattern", all(word in {"*", "#"} or _WORD.fullmatch(word) for word in words))
    return str(pattern)


def _check(text: object, what: str, well_formed: bool) -> None:
    if not isinstance(text, str) or not 0 < len(text) <= MOST_CHARACTERS or not well_formed:
        shown = text[:60] if isinstance(text, str) else text
        extra = "" if what == "topic" else ", * for one word or # for any number"
        raise Refused(
            f"{what} {shown!r}: at most {MOST_CHARACTERS} characters, words of letters, digits and "
            f"_ : - with a dot between two{extra}, as order.paid"
        )


def fits(pattern: str, topic: str) -> bool:
    """Whether a topic fits a pattern."""
    words = topic.split(".")
    reached = {0}  # how many words of the topic the pattern may have used up so far
    for part in pattern.split("."):
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            used = (at for at in reached if at < len(words) and part in {"*", words[at]})
            reached = {at + 1 for at in used}
        if not reached:
            return False
    return len(words) in reached


def check_subscription(subscription: Subscription) -> Subscription:
    """One that any store can keep, and any release can read."""
    check_name("subscription", subscription.name)
    check_no_path("task", subscription.job.task)
    check_pattern(subscription.pattern)
    wanted = parse_filter(subscription.where, 0.0)
    for part in (wanted, wanted.exclude):
        named = [] if part is None else [f for f in part.__struct_fields__ if getattr(part, f)]
        if wrong := [field for field in named if field not in (*_FIELDS, "exclude")]:
            raise Refused(
                f"subscription {subscription.name}: where={' '.join(subscription.where)!r}: a"
                f" subscription goes by arg.NAME and tag.NAME, not by {wrong[0]}"
            )
    return subscription


def replaced(before: Subscription | None, given: Subscription, now: float) -> Subscription:
    """What is stored when `given` is put; `before` itself if that changes nothing."""
    kept = msgspec.structs.replace(given, created_at=now if before is None else before.created_at)
    return before if before is not None and kept == before else kept


def event_data(
    before: Subscription | None, after: Subscription | None, author: str, reason: str
) -> dict[str, Any]:
    """What the history says of a subscription that was put or removed."""
    named = after or before
    data = {
        "subscription": "" if named is None else named.name,
        "says": "removed" if after is None else "put",
    }
    if author or reason:
        data |= {"author": legible(author), "reason": legible(reason)}
    return data


def receivers(
    subscriptions: Sequence[Subscription], publication: Publication
) -> list[tuple[Subscription, Job[Any]]]:
    """Who receives it, each with its job; the jobs have neither id nor times yet."""
    offered = [
        (each, _job_of(each, publication))
        for each in subscriptions
        if each.app == publication.app and fits(each.pattern, publication.topic)
    ]
    return [(each, job) for each, job in offered if _wants(each, job)]


def _wants(subscription: Subscription, job: Job[Any]) -> bool:
    return not subscription.where or parse_filter(subscription.where, 0.0).matches(job)


def _job_of(subscription: Subscription, publication: Publication) -> Job[Any]:
    job = subscription.job
    body = msgspec.json.decode(job.body, type=dict[str, msgspec.Raw])
    arguments: dict[str, Any] = {subscription.parameter: msgspec.Raw(publication.value)}
    if subscription.takes_topic:
        arguments[TOPIC] = publication.topic
    whole: dict[str, Any] = {**body, "args": arguments}
    if publication.headers:
        own = msgspec.json.decode(body.get("headers", b"{}"), type=dict[str, str])
        whole["headers"] = {**publication.headers, **own}
    return msgspec.structs.replace(
        job,
        body=msgspec.json.encode(whole),
        key=publication.key if job.key is None else job.key,
        tags={**publication.tags, **job.tags, TOPIC: publication.topic},
        search=_search_texts(subscription, publication),
    )


def _search_texts(subscription: Subscription, publication: Publication) -> dict[str, str]:
    if not subscription.search:
        return {}
    arguments = {
        subscription.parameter: msgspec.json.decode(publication.value),
        TOPIC: publication.topic,
    }
    texts = {path: argument_text(arguments, path) for path in subscription.search}
    return {path: text for path, text in texts.items() if text is not None}


def placed(
    found: Sequence[tuple[Subscription, Job[Any]]], ids: Sequence[str], now: float
) -> list[Job[Any]]:
    """These jobs with their ids and times. Those without a key are in the bucket of the first."""
    bucket = next((bucket_of(id) for id in ids), None)
    return [
        msgspec.structs.replace(
            job,
            id=in_bucket(id, bucket if (own := bucket_by(None, job.key)) is None else own),
            run_at=None if subscription.delay is None else now + subscription.delay,
            expires_at=None if subscription.expires is None else now + subscription.expires,
        )
        for (subscription, job), id in zip(found, ids, strict=True)
        if bucket is not None
    ]
