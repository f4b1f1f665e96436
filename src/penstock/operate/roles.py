"""Who may do what: the role of each operation, declared at the operation and checked before it."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import msgspec

from penstock.operate.access_list import AccessList
from penstock.operate.refusals import Forbidden


class Role(IntEnum):
    """What a person may do; each role includes the ones before it."""

    ANYBODY = 0  # without a token: the login form and its style sheet
    VIEW = 1
    OPERATE = 2  # cancel, retry, delete, pause, limit, signal, enqueue
    ADMIN = 3  # block and unblock, too

    def __str__(self) -> str:
        return self.name.lower()


class Person(msgspec.Struct, frozen=True):
    """A person with a role; the name is the author in the history."""

    name: str
    role: Role
    only: AccessList | None = None  # what it may see and change; None: everything

    def at_most(self, role: Role) -> Person:
        return Person(self.name, min(self.role, role), self.only)


class RequiredRole(NamedTuple):
    """The role that an operation needs, and whether it changes something."""

    role: Role
    changes: bool


class ChecksRoles(Protocol):
    """A class with operations: `check` runs before each, `changed` after those that change."""

    def check(self, operation: str) -> None: ...
    def changed(self) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")
V = TypeVar("V", bound=ChecksRoles)
OPERATIONS: dict[str, RequiredRole] = {}


def needs(
    role: Role, *, changes: bool = False
) -> Callable[[Callable[Concatenate[V, P], R]], Callable[Concatenate[V, P], R]]:
    """Declare the role that an operation needs, and whether it changes something."""

    def declare(operation: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
        OPERATIONS[operation.__name__] = RequiredRole(role, changes)

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
