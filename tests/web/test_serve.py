"""The server around the dashboard: whoever takes too long to ask is hung up on."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from penstock.web import dashboard
from penstock.web.access import Role, Tokens, new_token
from penstock.web.serve import DashboardServer, listen

TOKEN, TEXT = new_token("ada", Role.ADMIN)
ENTER = b"POST /enter HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"


@pytest.fixture
def port(memory_broker) -> Iterator[int]:
    """A dashboard that waits a second for a request."""
    site = dashboard(memory_broker, access=Tokens([TOKEN]))
    with listen("127.0.0.1", 0) as heard:
        server = DashboardServer(site, request_seconds=1.0)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [heard]})
        thread.start()
        try:
            yield heard.getsockname()[1]
        finally:
            site.end_streams()
            server.should_exit = True
            thread.join()
    site.close()


def answer_to(port: int, *parts: bytes) -> bytes:
    """What comes back for these bytes, until the other side hangs up."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        for part in parts:
            line.sendall(part)
        heard = b""
        while piece := line.recv(65536):
            heard += piece
        return heard


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        ENTER + b"Content-Length: 100\r\n\r\ntoken=",
        ENTER + b"Transfer-Encoding: chunked\r\n\r\n5\r\ntoken\r\n",
    ],
    ids=["nothing", "half a line", "half a head", "half a body", "half of the chunks"],
)
def test_whoever_does_not_end_what_they_ask_is_hung_up_on(port, begun):
    assert b" 200 " not in answer_to(port, begun)


def test_a_second_request_on_the_same_line_has_no_more_time(port):
    whole = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"

    heard = answer_to(port, whole, b"GET /static/style.css HTTP/1.1\r\nHost: loc")

    assert heard.count(b"HTTP/1.1 200 OK") == 1


def test_whoever_asks_in_time_is_answered_and_may_watch_for_longer(port):
    head = {"authorization": f"Bearer {TEXT}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=head, timeout=30) as client:
        with client.stream("GET", "/live") as stream:
            ticks = stream.iter_bytes()
            told = [next(ticks) for _ in range(4)]  # the last two a second apart

        assert len(told) == 4
        assert client.get("/api/v1/count").status_code == 200


def test_whoever_hangs_up_in_mid_sentence_leaves_no_traceback(port, caplog):
    with caplog.at_level(logging.ERROR):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(ENTER + b"Content-Length: 100\r\n\r\ntoken=")
        answer_to(port, ENTER + b"Content-Length: 100\r\n\r\ntoken=")

    assert caplog.records == []
