"""The queues of Celery, RQ and BullMQ in a Redis, read for `penstock import`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.brokers.other_queues import OtherQueues
from penstock.brokers.redis.other_queues.bullmq import BullmqQueues
from penstock.brokers.redis.other_queues.celery import CeleryQueues
from penstock.brokers.redis.other_queues.rq import RqQueues

_SYSTEMS = {"celery": CeleryQueues, "rq": RqQueues, "bullmq": BullmqQueues}


def open_other_queues(system: str, url: str, queues: Sequence[str]) -> OtherQueues:
    """The queues of this system behind a URL; without names all that there are."""
    return _SYSTEMS[system](url, queues)
