"""PostgreSQL's errors, translated into Penstock's own."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from penstock.brokers.postgres.refused_login import LoginRefused
from penstock.errors import (
    MissingRight,
    PenstockError,
    Refused,
    StoreFull,
    StoreUnreachable,
    WrongUrl,
)

FULL = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)
_REFUSED_BY_FUNCTION = "PN001"  # the SQLSTATE with which our SQL functions refuse a value


class StoreBusy(StoreUnreachable):
    """A lock timeout: another transaction holds what this one needs; nothing was written."""


class Contended(StoreUnreachable):
    """A deadlock or a serialization failure: the server rolled this transaction back."""


class AnswerLost(StoreUnreachable):
    """The connection broke after the statement was sent: it may have been carried out."""


# The first that fits counts.
_TRANSLATIONS: tuple[tuple[tuple[type[psycopg.Error], ...], type[PenstockError], str], ...] = (
    (
        FULL,
        StoreFull,
        "no room left in the store {where} ({error}); nothing of this call was written",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName),
        StoreUnreachable,
        (
            "the store {where} lacks something that this Penstock needs ({error}); "
            "bring it up to date with `penstock migrate up`"
        ),
    ),
    (
        (errors.LockNotAvailable,),
        StoreBusy,
        (
            "lock timeout in the store {where}: another transaction holds the same job, or "
            "a job with the same unique key. Nothing was written; try again"
        ),
    ),
    (
        (errors.DeadlockDetected, errors.SerializationFailure),
        Contended,
        "the store {where}: {error}; try again",
    ),
    (
        (psycopg.DataError, errors.ProgramLimitExceeded),
        Refused,
        "PostgreSQL cannot keep this value: {error}; nothing was written",
    ),
    (
        (errors.InsufficientPrivilege,),
        MissingRight,
        (
            "this login lacks a privilege in the store {where}: {error}. "
            "`penstock migrate roles --worker LOGIN` prints what the store's owner grants to a "
            "login of workers; --producer is for one that only enqueues, --viewer for one that "
            "only reads"
        ),
    ),
    (
        (psycopg.OperationalError, psycopg.InterfaceError),
        StoreUnreachable,
        "the store {where} does not answer: {error}",
    ),
    (
        (errors.InternalError_, errors.DataCorrupted, errors.ReadOnlySqlTransaction),
        StoreUnreachable,
        "the store {where}: {error}",
    ),
)

# How psycopg begins where there never was a connection.
_NOT_CONNECTED = ("connection failed", "connection timeout", "failed to resolve host")
_REMEDY = "; start it, or check host and port in the URL"


@contextmanager
def as_penstock_errors(where: str) -> Generator[None]:
    """Raise psycopg's errors as errors of Penstock that name the store and the way out."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == _REFUSED_BY_FUNCTION:
            raise Refused(f"{first_line(error)}; nothing was written") from error
        if isinstance(error, LoginRefused):
            raise WrongUrl(
                f"the store {where} refuses this login: {error}; correct the user, the password "
                "or the database in the URL"
            ) from error
        for classes, translated, sentence in _TRANSLATIONS:
            if isinstance(error, classes):
                said = first_line(error)
                remedy = _REMEDY if said.startswith(_NOT_CONNECTED) else ""
                raise translated(sentence.format(where=where, error=said) + remedy) from error
        raise


def first_line(error: BaseException) -> str:
    """What went wrong, without the server's hints and context."""
    return str(error).strip().split("\n")[0]
