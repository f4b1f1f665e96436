"""What gRPC says went wrong on the way, as errors of Penstock."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import MissingRight, PenstockError, Refused, StoreUnreachable, WrongUrl


class CallLost(StoreUnreachable):
    """The connection broke after the call was sent: it may have been carried out."""


def translated(error: Any, where: str) -> PenstockError:
    """The error of a call that has no answer."""
    codes: Any = import_module("grpc").StatusCode
    code, details = error.code(), str(error.details() or "no details").strip().split("\n")[0]
    if code is codes.UNAUTHENTICATED:
        return WrongUrl(f"the manager {where} refuses this client: {details}")
    if code in {codes.PERMISSION_DENIED, codes.UNIMPLEMENTED}:
        refused = MissingRight if code is codes.PERMISSION_DENIED else Refused
        return refused(f"the manager {where}: {details}")
    if code is codes.RESOURCE_EXHAUSTED:
        return _exhausted(details, where)
    if "WRONG_VERSION_NUMBER" in details:
        return StoreUnreachable(
            f"the manager {where} does not speak TLS: leave out tls, ca, cert and key in the URL"
        )
    sentence = f"the manager {where} does not answer: {details}"
    if code is codes.UNAVAILABLE and _never_sent(details):
        return StoreUnreachable(f"{sentence}; start it, or check host and port in the URL")
    return CallLost(sentence)


def _exhausted(details: str, where: str) -> PenstockError:
    if "larger than max" not in details:
        return StoreUnreachable(f"the manager {where} is busy: {details}; try again")
    return Refused(
        f"the manager {where}: {details}; nothing was written. Send, or ask for, fewer at once"
    )


def _never_sent(details: str) -> bool:
    """Whether there was no connection at all."""
    return details.startswith(("failed to connect", "DNS resolution", "no address"))
