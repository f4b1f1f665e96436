"""Whether a server refuses a login, in whatever language it says so.

libpq does not hand on the SQLSTATE of a failed login, only a text, which the server translates. So
the login is tried once more at the level of libpq, with messages that contain the SQLSTATE. They
have to be asked for after the start of the attempt and before its first answer, and psycopg has no
call for that.
"""

from __future__ import annotations

import ctypes
import re
import select
import time
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, cast

import psycopg
from psycopg import pq

# Wrong password, unknown role or no right to log in; no such database; no right to connect to it.
_REFUSED = re.compile(r"28...|3D000|42501")
# Without a second attempt: what is known by its text, and what a pooler or libpq itself says.
_KNOWN = re.compile(
    r"password authentication failed|SASL authentication failed|no password supplied"
    r"|no pg_hba\.conf entry|(role|database) \".*\" does not exist|not permitted to log in"
    r"|no such (user|database)|server does not support SSL|certificate file .* does not exist"
)
# As libpq formats it in every language: severity, two spaces, SQLSTATE.
_FROM_SERVER = re.compile(r":  \S")
_SQLSTATE = re.compile(r":  ([0-9A-Z]{5}): ")
_VERBOSE = 2  # PQERRORS_VERBOSE
_SECONDS = 10.0
_READING, _WRITING = pq.PollingStatus.READING, pq.PollingStatus.WRITING
_EVENTS = {_READING: select.POLLIN, _WRITING: select.POLLOUT}


class LoginRefused(psycopg.OperationalError):
    """The server answers, and refuses this login."""


def check_login(error: psycopg.OperationalError, conninfo: str) -> None:
    """Raise LoginRefused if the connection failed for the login; not if nobody answers."""
    if error.sqlstate is not None:
        return
    lines = str(error).splitlines()
    refusals = [line for line in lines if _KNOWN.search(line)]
    if not refusals:
        answers = [line for line in lines if _FROM_SERVER.search(line)]
        codes = login_sqlstates(conninfo) if answers else []
        refusals = answers if any(map(_REFUSED.fullmatch, codes)) else []
    if refusals:
        raise LoginRefused(refusals[0].strip()) from error


def login_sqlstates(conninfo: str) -> list[str]:
    """The SQLSTATEs with which servers answer this login now; none if they do not refuse it."""
    set_verbosity = _verbosity_setter()
    if set_verbosity is None:
        return []
    connection = pq.PGconn.connect_start(conninfo.encode())
    try:
        pointer: int | None = cast("Any", connection).pgconn_ptr
        if pointer is None:
            return []
        set_verbosity(pointer, _VERBOSE)
        if _connected(connection):
            return []
        return _SQLSTATE.findall(connection.error_message.decode(errors="replace"))
    finally:
        connection.finish()


def _connected(connection: pq.abc.PGconn) -> bool:
    until = time.monotonic() + _SECONDS
    while (status := connection.connect_poll()) in _EVENTS:
        poll = select.poll()
        poll.register(connection.socket, _EVENTS[pq.PollingStatus(status)])
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            return False
    return status == pq.PollingStatus.OK


@cache
def _verbosity_setter() -> Callable[[int, int], int] | None:
    """PQsetErrorVerbosity of the libpq that psycopg uses; None where it cannot be found."""
    try:
        # An extension of psycopg: a name is looked up in the libraries that it is linked to, too.
        plain = pq.__impl__ == "python"
        module: Any = import_module(
            "psycopg.pq._pq_ctypes" if plain else f"psycopg_{pq.__impl__}.pq"
        )
        function = ctypes.CDLL(module.libname if plain else module.__file__).PQsetErrorVerbosity
    except (ImportError, AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return function
