"""Celery's queues, as kombu writes them into a Redis: a list of messages for each queue.

A queue with priorities has a list for each step. A message is JSON around a body that is JSON or
something else, which is refused. What a worker holds is in `unacked`, and is not read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from penstock.brokers.other_queues import OtherJob
from penstock.brokers.redis.other_queues.places import OtherRedis, Place, json_of
from penstock.errors import Refused

_SEPARATOR = "\x06\x16"
_PRIORITIES = range(1, 10)
_LINKS = {
    "callbacks": "a callback",
    "errbacks": "an error callback",
    "chain": "a chain",
    "chord": "a chord",
}


class CeleryQueues(OtherRedis):
    """The queues of Celery."""

    def places(self) -> list[Place]:
        names = self.wanted or self._names()
        keys = [
            (name, f"{name}{_SEPARATOR}{step}" if step else name)
            for name in names
            for step in (0, *_PRIORITIES)
        ]
        return [Place(key.encode(), "oldest right", name) for name, key in keys]

    def _names(self) -> list[str]:
        names = {"celery"}
        for key in self.found("_kombu.binding.*"):
            for member in self.server.call("SMEMBERS", key):
                names.add(member.decode().split(_SEPARATOR)[-1])
        return sorted(name for name in names if not _is_internal(name))

    def notes(self) -> list[str]:
        held = self.server.call("HLEN", "unacked")
        if not held:
            return []
        note = (
            f"{held:,} messages are held by Celery's workers, among them those with an eta, and are"
            " not read: stop the workers, which puts them back"
        )
        return [note]

    def read(self, place: Place, members: Sequence[tuple[bytes, float]]) -> list[OtherJob]:
        return [_job(place, message) for message, _ in members]


def _is_internal(name: str) -> bool:
    return name.endswith(".pidbox") or name.startswith("celeryev") or not name


def _job(place: Place, message: bytes) -> OtherJob:
    there = (place.key, message)
    job_id, name = "", "a message without a name"
    try:
        whole = _object(json_of(message, "the message"), "the message")
        headers = _object(whole.get("headers") or {}, "its headers")
        job_id, name = str(headers.get("id") or ""), str(headers.get("task") or name)
        content = whole.get("content-type")
        if content != "application/json":
            raise Refused(
                f"its body is {content}, and only JSON is read: a pickle may run anything"
            )
        body = json_of(_decoded(whole), "its body")
        if isinstance(body, dict):  # version 1 of Celery's messages has no headers
            fields = cast("dict[str, Any]", body)
            links, call = fields, (fields.get("args"), fields.get("kwargs"))
            headers, job_id = fields, str(fields.get("id") or "")
            name = str(fields.get("task") or name)
        else:
            args, kwargs, links = _call(body)
            call = args, kwargs
        for link, what in _LINKS.items():
            if links.get(link):
                raise Refused(f"it goes on with {what}: enqueue it again, as a flow")
        if not job_id:
            raise Refused("it has no id")
        return OtherJob(
            id=job_id,
            name=name,
            queue=place.queue,
            args=_arguments(call[0] or []),
            kwargs=_object(call[1] or {}, "its keywords"),
            run_at=_time(headers.get("eta")),
            expires_at=_time(headers.get("expires")),
            place=there,
        )
    except Refused as error:
        return OtherJob(id=job_id, name=name, queue=place.queue, refused=str(error), place=there)


def _decoded(whole: Mapping[str, Any]) -> bytes:
    properties = _object(whole.get("properties") or {}, "its properties")
    body = whole.get("body")
    if not isinstance(body, str):
        raise Refused("its body is no text")
    if "compression" in _object(whole.get("headers") or {}, "its headers"):
        raise Refused("its body is compressed")
    if properties.get("body_encoding") != "base64":
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error:
        raise Refused("its body is no base64") from None


def _call(body: Any) -> tuple[Any, Any, Mapping[str, Any]]:
    parts: list[Any] = cast("list[Any]", body) if isinstance(body, list) else []
    if len(parts) != 3:
        raise Refused("its body is no call")
    return parts[0], parts[1], _object(parts[2] or {}, "its links")


def _arguments(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise Refused("its arguments are no list")
    return tuple(cast("list[Any]", value))


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Refused(f"{what} is no JSON object")
    return cast("dict[str, Any]", value)


def _time(text: Any) -> float | None:
    if text is None:
        return None
    if isinstance(text, int | float):
        return float(text)
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise Refused(f"{str(text)[:40]!r} is no time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
