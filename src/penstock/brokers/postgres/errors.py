"""Errors of PostgreSQL as errors of Penstock."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from penstock.errors import Refused, StoreFull, StoreUnreachable

FULL = (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)


class StoreBusy(StoreUnreachable):
    """Another transaction keeps what this needs, for too long; nothing was written."""


class Contended(StoreUnreachable):
    """A deadlock or a serialization failure: the server rolled this transaction back."""


class AnswerLost(StoreUnreachable):
    """The connection broke after the statement was sent: it may have been carried out."""


@contextmanager
def in_our_words(where: str) -> Generator[None]:
    """Errors of PostgreSQL as errors of Penstock."""
    try:
        yield
    except FULL as error:
        message = (
            f"no room left in the store {where} ({_said(error)}); nothing of this call was written"
        )
        raise StoreFull(message) from error
    except (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName) as error:
        message = (
            f"the store {where} is not as this Penstock knows it ({_said(error)}); "
            "bring it up to date with `penstock migrate up`"
        )
        raise StoreUnreachable(message) from error
    except errors.LockNotAvailable as error:
        raise StoreBusy(
            f"the store {where}: another transaction holds what this needs, for too long: the same "
            "job, or a job with the same unique key. Nothing was written; try again"
        ) from error
    except (errors.DeadlockDetected, errors.SerializationFailure) as error:
        raise Contended(f"the store {where}: {_said(error)}; try again") from error
    except (psycopg.DataError, errors.ProgramLimitExceeded) as error:
        raise Refused(
            f"PostgreSQL cannot keep this value: {_said(error)}; nothing was written"
        ) from error
    except errors.InsufficientPrivilege as error:
        message = (
            f"this login may not do that in the store {where}: {_said(error)}; "
            "`penstock migrate roles` shows what to grant"
        )
        raise Refused(message) from error
    except errors.RaiseException:
        raise
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise StoreUnreachable(f"the store {where} does not answer: {_said(error)}") from error
    except (errors.InternalError_, errors.DataCorrupted, errors.ReadOnlySqlTransaction) as error:
        raise StoreUnreachable(f"the store {where}: {_said(error)}") from error


def _said(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def refuse(error: psycopg.Error) -> None:
    """Raise what a function of ours refused in our words; anything else is left alone."""
    if error.sqlstate == "PN001":
        raise Refused(f"{str(error).strip().splitlines()[0]}; nothing was written") from error
