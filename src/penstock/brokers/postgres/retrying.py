"""Trying again after an error of the server: there are three cases.

Deadlock or serialization failure: the server rolled back, so the call is made again, up to three
times; the error of the last try is raised. See `retried`.

The answer was lost: the statement may have been carried out. What is safe to repeat is sent once
more; if that fails too, the caller gets `UnknownOutcome`. See `sent_again`.

The store does not answer: raised at once. The caller decides how long to wait:
`penstock.app.store_retry` for running jobs, the worker for itself.
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
    """The verb, called again if the server rolled it back (deadlock, serialization failure)."""

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
    """Call `send`, which must be safe to repeat; if its answer is lost, call it once more.

    Raises AnswerLost if that failed too: then it is not known whether the first was stored.
    """
    try:
        return send()
    except AnswerLost:
        pass
    try:
        return send()
    except PenstockError as error:  # any error: the first call may have stored them
        raise AnswerLost(str(error)) from error
