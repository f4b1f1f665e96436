"""What each verb needs: declared where the verb is, and asked for before it does anything."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from penstock.errors import PenstockError
from penstock.web.access import Role
from penstock.web.count_cache import Counting


class Forbidden(PenstockError):
    """The person's role does not go so far."""


class NeedsPost(PenstockError):
    """A request that only looks was about to change something."""


class Declared(NamedTuple):
    """What a verb needs."""

    role: Role
    changes: bool


class Asks(Protocol):
    """Whoever has verbs: checks a verb before it is done."""

    counting: Counting

    def check(self, verb: str) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", bound=Asks)
VERBS: dict[str, Declared] = {}


def needs(
    role: Role, *, changes: bool = False
) -> Callable[[Callable[Concatenate[V, P], R]], Callable[Concatenate[V, P], R]]:
    """Declare the role that a verb needs, and whether it changes something."""

    def declare(verb: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
        VERBS[verb.__name__] = Declared(role, changes)

        @wraps(verb)
        def checked(verbs: V, *args: P.args, **kwargs: P.kwargs) -> R:
            verbs.check(verb.__name__)
            try:
                return verb(verbs, *args, **kwargs)
            finally:
                if changes:
                    verbs.counting.forget()

        return checked

    return declare
