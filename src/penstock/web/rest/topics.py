"""Topics over REST: list subscriptions, publish, remove a subscription."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.operate.topics import SubscriptionJson, publication_of, subscription_json
from penstock.web.request import WebRequest


class Subscriptions(msgspec.Struct):
    """Every subscription, by name."""

    subscriptions: list[SubscriptionJson]


class NewPublication(msgspec.Struct, forbid_unknown_fields=True):
    """What is published, once; `app` is the name of the program in whose name it is.

    With `dry_run` nothing is stored: the answer says who would receive it.
    """

    topic: str
    value: Any = None
    tags: Mapping[str, str] = {}
    key: str | None = None
    app: str = ""
    dry_run: bool = False
    reason: str = ""


class Published(msgspec.Struct):
    """The ids of the stored jobs, and the names of the subscriptions that received them."""

    ids: list[str]
    subscriptions: list[str]


class SubscriptionName(msgspec.Struct, forbid_unknown_fields=True):
    """A subscription."""

    name: str
    reason: str = ""


class Unsubscribed(msgspec.Struct):
    """Whether there was such a subscription."""

    removed: bool


def list_all(request: WebRequest) -> Subscriptions:
    return Subscriptions([subscription_json(each) for each in request.store.subscriptions()])


def publish(request: WebRequest) -> Published:
    given = request.json(NewPublication)
    publication = publication_of(
        given.topic, given.value, app=given.app, tags=given.tags, key=given.key
    )
    names = [each.name for each in request.store.receivers(publication)]
    if given.dry_run:
        return Published([], names)
    return Published(request.store.publish(publication, given.reason), names)


def unsubscribe(request: WebRequest) -> Unsubscribed:
    given = request.json(SubscriptionName)
    return Unsubscribed(request.store.unsubscribe(given.name, given.reason))
