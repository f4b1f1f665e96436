"""A login that the server refuses is known by its SQLSTATE, in whatever language it is refused."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from penstock.brokers import open_broker
from penstock.brokers.postgres.refused_login import login_sqlstates
from penstock.errors import StoreUnreachable, WrongUrl
from penstock.testing.postgres import Server

SSL, GSS = 80877103, 80877104


@contextmanager
def answering(code: str, message: str, severity: str = "FATAL") -> Iterator[tuple[str, list[int]]]:
    """A server that refuses every login with this error; its URL, and an entry for each login."""
    fields = {"S": severity, "V": "FATAL", "C": code, "M": message, "F": "auth.c", "L": "1"}
    answer = (
        b"".join(name.encode() + text.encode() + b"\0" for name, text in fields.items()) + b"\0"
    )
    refusal = b"E" + struct.pack("!i", len(answer) + 4) + answer
    logins: list[int] = []

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                while (kind := _startup(connection)) in {SSL, GSS}:
                    connection.sendall(b"N")
                if kind is not None:
                    logins.append(kind)
                    connection.sendall(refusal)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"postgresql://ada@127.0.0.1:{listening.getsockname()[1]}/shop", logins
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _startup(connection: socket.socket) -> int | None:
    head = connection.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        return None
    length, kind = struct.unpack("!ii", head)
    connection.recv(length - 8, socket.MSG_WAITALL)
    return kind


@pytest.mark.parametrize(
    ("code", "severity", "message"),
    [
        ("28P01", "FATAL", "Passwort-Authentifizierung für Benutzer »ada« fehlgeschlagen"),
        ("28000", "ВАЖНО", "роль ada не существует"),
        ("3D000", "FATAL", "Datenbank »shop« existiert nicht"),
        ("42501", "FATAL", "keine Berechtigung für Datenbank shop"),
    ],
)
def test_a_refusal_in_another_language_is_one(code, severity, message):
    with answering(code, message, severity) as (url, _):
        with pytest.raises(WrongUrl, match="refuses this login") as error:
            open_broker(url)

        assert message in str(error.value)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("57P03", "das Datenbanksystem startet"),
        ("53300", "tut mir leid, schon zu viele Verbindungen"),
    ],
)
def test_a_server_that_is_not_ready_yet_is_away_in_every_language(code, message):
    with (
        answering(code, message) as (url, _),
        pytest.raises(StoreUnreachable, match=message) as error,
    ):
        open_broker(url)
    assert not isinstance(error.value, WrongUrl)


def test_nobody_is_asked_twice_who_does_not_answer_or_is_understood():
    with answering("28P01", 'password authentication failed for user "ada"') as (url, logins):
        with pytest.raises(WrongUrl):
            open_broker(url)
        assert len(logins) == 1
    with pytest.raises(StoreUnreachable):
        open_broker(url)  # nobody listens any more
    assert login_sqlstates(url) == []


@pytest.fixture(scope="module")
def asking() -> Iterator[str]:
    """A real server, which asks one login for its password and rejects another."""
    with Server({"fsync": "off"}) as server:
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("create role ada login password 'right'")
            rules = (
                "host all ada all scram-sha-256\nhost all bob all reject\nhost all all all trust"
            )
            (server.data / "pg_hba.conf").write_text(f"{rules}\nlocal all all trust\n")
            connection.execute("select pg_reload_conf()")
        place = urlsplit(server.url())
        yield f"{place.hostname}:{place.port}"


@pytest.mark.parametrize(
    ("login", "database", "codes"),
    [
        ("ada:wrong", "postgres", ["28P01"]),
        ("bob", "postgres", ["28000"]),
        ("nobody", "postgres", ["28000"]),
        ("postgres", "nowhere", ["3D000"]),
        ("ada:right", "postgres", []),
    ],
)
def test_what_a_real_server_answers(asking, login, database, codes):
    url = f"postgresql://{login}@{asking}/{database}"

    assert login_sqlstates(url) == codes
    if codes:
        with pytest.raises(WrongUrl):
            open_broker(url)
