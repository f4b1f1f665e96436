"""Exceptions as libraries and people really raise them, each with the headline that is wanted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pydantic
import sqlalchemy

LOOKS_LIKE = "Traceback (most recent call last):\n  File 'x', line 1\nKeyError: 'not this'"


class RealError(NamedTuple):
    name: str
    call: Callable[[], Any]
    headline: str


class Outer:
    class Inner(Exception):
        pass


class Voiceless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Leaving(BaseException):
    pass


class _Order(pydantic.BaseModel):
    number: int
    price: float


def _raise(error: BaseException) -> None:
    raise error


def _unique_constraint() -> None:
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.NullPool)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create table orders (number integer unique)"))
        for _ in range(2):
            connection.execute(sqlalchemy.text("insert into orders values (1)"))


def _noted() -> None:
    error = ValueError("no such order")
    error.add_note("it was order 17")
    error.add_note("asked for by ada")
    raise error


def _chained() -> None:
    try:
        {}["missing"]
    except KeyError as error:
        raise Outer.Inner("the order is gone") from error


REAL_ERRORS = [
    RealError("plain", lambda: int("x"), "ValueError: invalid literal for int() with base 10: 'x'"),
    RealError(
        "sqlalchemy",
        _unique_constraint,
        "sqlalchemy.exc.IntegrityError: (sqlite3.IntegrityError) UNIQUE constraint failed:"
        " orders.number",
    ),
    RealError(
        "pydantic",
        lambda: _Order.model_validate({"number": "x"}),
        "pydantic_core._pydantic_core.ValidationError: 2 validation errors for _Order",
    ),
    RealError(
        "group",
        lambda: _raise(ExceptionGroup("two orders", [ValueError("a"), KeyError("b")])),
        "ExceptionGroup: two orders (2 sub-exceptions)",
    ),
    RealError("notes", _noted, "ValueError: no such order"),
    RealError("chained", _chained, "tests.real_errors.Outer.Inner: the order is gone"),
    RealError("silent", lambda: _raise(ValueError()), "ValueError"),
    RealError("blank", lambda: _raise(ValueError(" \n\t\n")), "ValueError"),
    RealError(
        "leading newline", lambda: _raise(ValueError("\n\n  first\nsecond")), "ValueError: first"
    ),
    RealError(
        "other line ends", lambda: _raise(ValueError("one\rtwo\u2028three")), "ValueError: one"
    ),
    RealError(
        "long",
        lambda: _raise(ValueError("x" * 100_000 + "\nend")),
        "ValueError: " + "x" * 487 + "…",
    ),
    RealError("key", lambda: {}["a\nb"], "KeyError: 'a\\nb'"),
    RealError(
        "syntax",
        lambda: compile("a b\n", "<order>", "exec"),
        "SyntaxError: invalid syntax (<order>, line 1)",
    ),
    RealError(
        "voiceless",
        lambda: _raise(Voiceless()),
        "tests.real_errors.Voiceless: <exception str() failed>",
    ),
    RealError("base exception", lambda: _raise(Leaving("now")), "tests.real_errors.Leaving: now"),
    RealError("exit", lambda: _raise(SystemExit(3)), "SystemExit: 3"),
    RealError(
        "looks like a traceback",
        lambda: _raise(ValueError(LOOKS_LIKE)),
        "ValueError: Traceback (most recent call last):",
    ),
    RealError(
        "surrogate", lambda: _raise(ValueError("\udcff is no text")), "ValueError: ? is no text"
    ),
]
