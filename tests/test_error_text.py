"""The headline of an error: its class and the first line of what it says, wherever it is shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import sqlalchemy

from penstock import App
from penstock.brokers.memory import MemoryBroker
from penstock.errors import JobFailed
from penstock.run.attempt import run
from penstock.run.describe_error import LONGEST_TRACEBACK
from penstock.run.error_text import SHOWN_HEADLINE, exception_in, headline, traceback_in
from tests.real_errors import REAL_ERRORS


@pytest.fixture
def app(memory_broker: MemoryBroker) -> App:
    return App(broker=memory_broker)


def stored_error(app: App, call: Callable[[], Any]) -> str:
    """The text that an attempt leaves whose function makes this call."""

    @app.task(name="fails")
    def fails() -> None:
        call()

    outcome = run(app, fails, fails.job())
    assert outcome is not None
    assert outcome.error is not None
    return outcome.error


@pytest.mark.parametrize(
    ("call", "wanted"), [each[1:] for each in REAL_ERRORS], ids=[each.name for each in REAL_ERRORS]
)
def test_the_headline_is_the_class_and_the_first_line(
    app: App, call: Callable[[], Any], wanted: str
) -> None:
    error = stored_error(app, call)

    assert error.splitlines()[0] == wanted
    assert headline(error, 500) == wanted
    assert len(headline(error)) <= SHOWN_HEADLINE
    assert exception_in(error) == wanted.partition(":")[0]
    assert str(JobFailed("1", "error", error)) == f"job 1 failed (error): {wanted}"
    assert len(error.encode()) <= LONGEST_TRACEBACK


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        (
            "insert into orders values (1), (1)",
            'psycopg.errors.UniqueViolation: duplicate key value violates unique constraint "once"',
        ),
        ("selct 1", 'psycopg.errors.SyntaxError: syntax error at or near "selct"'),
    ],
)
def test_the_headline_of_what_postgresql_says(
    app: App, postgres_url: str, statement: str, wanted: str
) -> None:
    def call() -> None:
        with psycopg.connect(postgres_url) as connection:
            connection.execute("create table orders (number int constraint once unique)")
            connection.execute(statement.encode())

    def through_sqlalchemy() -> None:
        url = postgres_url.replace("postgresql://", "postgresql+psycopg://")
        with sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).begin() as connection:
            connection.execute(
                sqlalchemy.text("create table orders (number int constraint once unique)")
            )
            connection.execute(sqlalchemy.text(statement))

    name, _, said = wanted.partition(": ")
    assert headline(stored_error(app, call)) == wanted
    assert headline(stored_error(app, through_sqlalchemy)).endswith(f"({name}) {said}")


def test_the_traceback_is_below_the_headline(app: App) -> None:
    error = stored_error(app, lambda: int("x"))

    said = "ValueError: invalid literal for int() with base 10: 'x'"
    assert error.startswith(f"{said}\n\nTraceback (most recent call last):\n")
    assert traceback_in(error).startswith("Traceback (most recent call last):\n")
    assert traceback_in(error).endswith(said)
    assert "call()" in traceback_in(error)


def test_rows_of_older_releases_have_the_last_line(app: App) -> None:
    try:
        int("x")
    except ValueError as error:
        old = traceback.format_exc()
        wanted = f"ValueError: {error}"

    assert headline(old) == wanted
    assert headline(f"...\n  cut()\n{wanted}") == wanted
    assert traceback_in(old) == old
    assert exception_in(old) == "ValueError"
    assert headline("a: Expected `int`, got `str`") == "a: Expected `int`, got `str`"
    assert exception_in("there is no such order: 17") is None
    assert headline(None) == headline("  \n ") == ""
    assert headline("Traceback (most recent call last):") == "Traceback (most recent call last):"
