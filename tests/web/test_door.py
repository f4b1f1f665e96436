"""The dashboard's door under load: what one client does costs the others nothing.

Whoever has no token cannot hold what the others need, and whoever has one cannot either.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import httpx
import pytest

from penstock.web import dashboard
from penstock.web.access import Role, Tokens, new_token
from penstock.web.connection import MOST_CONNECTIONS, most_connections
from penstock.web.guard import MOST_OF_A_LOGIN
from penstock.web.serve import DashboardServer, listen
from penstock.web.site import Dashboard
from tests.web.conftest import NO_TLS, Web

ADA, ADA_TEXT = new_token("ada", Role.ADMIN)
EVE, EVE_TEXT = new_token("eve", Role.VIEW)
STYLE = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG = 600.0


class Door(NamedTuple):
    port: int
    server: DashboardServer
    site: Dashboard

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def client(self, text: str = ADA_TEXT) -> httpx.Client:
        head = {"authorization": f"Bearer {text}"}
        address = f"http://127.0.0.1:{self.port}"
        return httpx.Client(base_url=address, headers=head, timeout=30, verify=NO_TLS)

    @property
    def connections(self) -> int:
        return len(self.server.server_state.connections)


@contextmanager
def a_door(broker, **options) -> Iterator[Door]:
    """A dashboard behind its own server."""
    site = dashboard(broker, access=Tokens([ADA, EVE]))
    with listen("127.0.0.1", 0) as listening:
        # What the system itself keeps of an answer is little, and the same on every machine.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        server = DashboardServer(site, **options)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Door(listening.getsockname()[1], server, site)
        finally:
            site.end_streams()
            server.should_exit = True
            thread.join()
    site.close()


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until this is true."""
    ends_at = time.monotonic() + seconds
    pause = threading.Event()
    while not true():
        assert time.monotonic() < ends_at, "it did not become true"
        pause.wait(0.01)


def is_cut(line: socket.socket, seconds: float = 30.0) -> bool:
    """Whether the other side ends this connection, though nothing of it is read here."""
    poll = select.poll()
    poll.register(line, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(1000 * seconds))


def ask_and_never_read(door: Door, times: int = 20) -> socket.socket:
    """Ask for more than the buffers of both systems hold, and read nothing."""
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.connect(("127.0.0.1", door.port))
    line.sendall(STYLE * times)
    return line


@pytest.mark.parametrize("times", [1, 20])
def test_a_connection_that_never_reads_is_cut(memory_broker, times):
    """Whether the server still waits to send more, or would close once the rest is read."""
    with (
        a_door(memory_broker, request_seconds=LONG, read_seconds=1.0) as door,
        ExitStack() as open_,
    ):
        lines = [open_.enter_context(ask_and_never_read(door, times)) for _ in range(5)]

        assert all(is_cut(line) for line in lines)
        until(lambda: door.connections == 0)


def test_a_connection_that_reads_slowly_but_steadily_is_answered(memory_broker):
    """Slower than the time for one part, but never less than a part in that time."""
    with a_door(memory_broker, read_seconds=1.0) as door, door.connect() as line:
        answers = 100
        line.sendall(
            STYLE * (answers - 1) + STYLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        )
        heard = b""
        pause = threading.Event()
        while piece := line.recv(65536):
            heard += piece
            pause.wait(0.05)

    assert heard.count(b"HTTP/1.1 200 OK") == answers


@pytest.mark.parametrize(
    "begun", [b"", b"GET / HTTP/1.1\r\nHost: loc", STYLE], ids=["", "half", "all"]
)
def test_connections_without_a_token_make_room_for_others(memory_broker, begun):
    """All slots are held by strangers who have minutes left: the oldest of them give way."""
    with (
        a_door(memory_broker, request_seconds=LONG, read_seconds=LONG, connections=20) as door,
        ExitStack() as open_,
    ):
        strangers = [open_.enter_context(door.connect()) for _ in range(20)]
        for line in strangers:
            line.sendall(begun)
        until(lambda: door.connections == 20)

        with door.client() as client:
            assert client.get("/api/v1/count").status_code == 200

        assert is_cut(strangers[0])
        assert door.connections <= 20


def test_strangers_who_never_read_make_room_too(memory_broker):
    with (
        a_door(memory_broker, request_seconds=LONG, read_seconds=LONG, connections=20) as door,
        ExitStack() as open_,
    ):
        for _ in range(20):
            open_.enter_context(ask_and_never_read(door))
        until(lambda: door.connections == 20)

        with door.client() as client:
            assert client.get("/api/v1/count").status_code == 200


def test_whoever_is_being_answered_is_not_cut_to_make_room(memory_broker):
    with a_door(memory_broker, request_seconds=LONG, connections=10) as door, ExitStack() as open_:
        client = open_.enter_context(door.client())
        stream = open_.enter_context(client.stream("GET", "/live"))
        ticks = stream.iter_bytes()
        next(ticks)

        strangers = [open_.enter_context(door.connect()) for _ in range(40)]

        assert all(is_cut(line) for line in strangers[:30])
        assert next(ticks).startswith(b"data: ")
        assert next(ticks).startswith(b"data: ")


def test_there_are_no_more_connections_than_the_process_may_open():
    assert 1 <= most_connections() <= MOST_CONNECTIONS


class Stuck:
    """A store whose counts wait until the test lets them go on."""

    def __init__(self, broker) -> None:
        self._broker = broker
        self.going_on = threading.Event()

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.going_on.set()

    def count(self):
        assert self.going_on.wait(60)
        return self._broker.count()


def test_one_login_with_many_requests_leaves_the_others_theirs(memory_broker):
    store = Stuck(memory_broker)
    statuses: list[int] = []

    def ask(door: Door, text: str) -> None:
        with door.client(text) as client:
            statuses.append(client.get("/api/v1/count").status_code)

    with a_door(store) as door, store:
        waiting = [
            threading.Thread(target=ask, args=(door, EVE_TEXT)) for _ in range(MOST_OF_A_LOGIN)
        ]
        for thread in waiting:
            thread.start()
        until(lambda: door.site._guard._in_progress["eve"] == MOST_OF_A_LOGIN)

        with door.client(EVE_TEXT) as client:
            refused = client.get("/api/v1/count")
        other = threading.Thread(target=ask, args=(door, ADA_TEXT))
        other.start()
        until(lambda: door.site._guard._in_progress["ada"] == 1)
        store.going_on.set()
        for thread in [*waiting, other]:
            thread.join()

        assert refused.status_code == 429
        assert refused.json()["error"] == "eve has 24 requests open here: end some of them."
        assert statuses == [200] * (MOST_OF_A_LOGIN + 1)
        until(lambda: door.site._guard._in_progress == {})  # answered is not yet over


def wrong_ways(web: Web) -> list[Callable[[], httpx.Response]]:
    """Every way to give a wrong token."""
    client, wrong = web.client(), "w" * 43
    return [
        lambda: client.get("/", headers={"authorization": f"Bearer {wrong}"}),
        lambda: client.get("/", params={"token": wrong}),
        lambda: client.post("/enter", data={"token": wrong}, headers={"origin": web.address}),
    ]


def test_wrong_tokens_are_counted_and_logged_without_their_text(serve, memory_broker, caplog):
    web = serve(memory_broker, metrics=True)

    with caplog.at_level(logging.WARNING, "penstock.web"):
        assert [way().status_code for way in wrong_ways(web)] == [401] * 3

    assert web.site.wrong_tokens.total == 3
    # One line a minute, however many there are.
    [line] = [record.getMessage() for record in caplog.records if record.name == "penstock.web"]
    assert line == "wrong tokens: 1 from 127.0.0.1; 1 since the start"
    metrics = web.client(Role.VIEW).get("/metrics").text
    assert "penstock_dashboard_wrong_tokens_total 3.0" in metrics


def test_a_session_that_ended_is_no_wrong_token(memory_web: Web):
    browser = memory_web.browser(Role.VIEW)
    browser.post("/leave")

    assert browser.get("/").status_code == 401
    assert memory_web.client().get("/").status_code == 401
    assert memory_web.site.wrong_tokens.total == 0


def test_after_a_few_wrong_tokens_each_is_answered_late_and_the_right_one_at_once(
    memory_web: Web, monkeypatch
):
    monkeypatch.setattr("penstock.web.wrong_tokens.WAIT_SECONDS", 5.0)
    ways, wrong = wrong_ways(memory_web), memory_web.site.wrong_tokens
    for way in ways:
        way()
    late: list[int] = []
    began = time.monotonic()
    threads = [
        threading.Thread(target=lambda way=way: late.append(way().status_code)) for way in ways
    ]
    for thread in threads:
        thread.start()
    until(lambda: wrong._waiting == 3)

    right = memory_web.client(Role.VIEW).get("/api/v1/count")

    assert right.status_code == 200
    assert late == []
    for thread in threads:
        thread.join()
    assert late == [401] * 3
    assert time.monotonic() - began >= 5.0
