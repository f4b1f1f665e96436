"""Subscriptions and publications for people and programs: read from input, and shown."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.enqueue.codec import encode_value
from penstock.enqueue.subscription import Publication, Subscription, check_topic
from penstock.operate.to_json import iso
from penstock.task.option_checks import check_short_text, check_tags


class SubscriptionJson(msgspec.Struct):
    """One subscription."""

    name: str
    pattern: str
    where: str
    task: str
    queue: str
    app: str
    from_code: bool
    created_at: str | None


def subscription_json(subscription: Subscription) -> SubscriptionJson:
    return SubscriptionJson(
        subscription.name,
        subscription.pattern,
        " ".join(subscription.where),
        subscription.job.task,
        subscription.job.queue,
        subscription.app,
        subscription.from_code,
        iso(subscription.created_at or None),
    )


def publication_of(
    topic: str,
    value: object,
    *,
    app: str = "",
    tags: Mapping[str, str] | None = None,
    key: str | None = None,
) -> Publication:
    """What somebody typed or sent."""
    return Publication(
        topic=check_topic(topic),
        value=encode_value(value, f"what is published under {topic}"),
        app=app,
        tags=check_tags(tags),
        key=check_short_text("key", key),
    )
