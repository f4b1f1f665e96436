"""Who may do what: a role for each operation, declared with it and asked for before it acts."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from penstock.operate.refusals import Forbidden


class Role(IntEnum):
    """What somebody may do; each role may do all that those before it may."""

    ANYBODY = 0  # without a token: the form that takes one, and its style sheet
    VIEW = 1
    OPERATE = 2  # cancel, retry, delete, pause, limit, signal, enqueue
    ADMIN = 3  # block and unblock, too

    def __str__(self) -> str:
        return self.name.lower()


class Person(msgspec.Struct, frozen=True):
    """Somebody who acts or looks; the name is the author in the history."""

    name: str
    role: Role

    def at_most(self, role: Role) -> Person:
        return Person(self.name, min(self.role, role))


class Declared(NamedTuple):
    """What an operation needs."""

    role: Role
    changes: bool


class Asks(Protocol):
    """Whoever has operations: checks one before it is done, and hears of it afterwards."""

    def check(self, operation: str) -> None: ...
    def changed(self) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", bound=Asks)
OPERATIONS: dict[str, Declared] = {}


def needs(
    role: Role, *, changes: bool = False
) -> Callable[[Callable[Concatenate[V, P], R]], Callable[Concatenate[V, P], R]]:
    """Declare the role that an operation needs, and whether it changes something."""

    def declare(operation: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
        OPERATIONS[operation.__name__] = Declared(role, changes)

        @wraps(operation)
        def checked(owner: V, *args: P.args, **kwargs: P.kwargs) -> R:
            owner.check(operation.__name__)
            try:
                return operation(owner, *args, **kwargs)
            finally:
                if changes:
                    owner.changed()

        return checked

    return declare


def forbidden(operation: str, role: Role | None, person: Person) -> Forbidden:
    words = operation.replace("_", " ")
    return Forbidden(f"{words} needs the role {role}; {person.name} has {person.role}")
