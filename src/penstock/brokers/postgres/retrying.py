"""Trying again: there are three cases.

Deadlock or serialization failure: the server rolled back, so the call is made again, up to `_TRIES`
times, and once more for its error. See `retried`.

The answer was lost: it may have been carried out. What is safe to repeat is sent once more, and if
that fails too, `UnknownOutcome` says so. See `sent_again`.

The store is away: raised at once. Whoever called knows how long to wait: `penstock.app.store_retry`
for running jobs, the worker for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from penstock.brokers.postgres.errors import AnswerLost, Contended
from penstock.errors import PenstockError

P = ParamSpec("P")
R = TypeVar("R")
_TRIES = 3


def retried(verb: Callable[P, R]) -> Callable[P, R]:
    """The verb, made again if the server rolled it back because others were in its way."""

    @wraps(verb)
    def trying(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_TRIES):
            try:
                return verb(*args, **kwargs)
            except Contended:
                continue
        return verb(*args, **kwargs)

    return trying


def sent_again(send: Callable[[], R]) -> R:
    """Send what is stored once however often it is sent; if the answer is lost, once more.

    Raises AnswerLost if that failed too: then nobody knows whether the first was stored.
    """
    try:
        return send()
    except AnswerLost:
        pass
    try:
        return send()
    except PenstockError as error:  # whatever it is, the first time it may have been stored
        raise AnswerLost(str(error)) from error
