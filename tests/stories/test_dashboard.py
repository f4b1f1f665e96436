"""A dashboard that is attacked, frozen or killed is nothing to the workers beside it."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

import pytest

from tests.stories.conftest import Story, eventually
from tests.stories.suspend import suspend

TOKEN = "4c1e7a90b2d35f68e0c4a1b79d2f6e83"
JOBS = 3000


@contextmanager
def dashboard(story: Story) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`penstock dashboard` on the story's store, and its port."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "penstock",
            "dashboard",
            "--url",
            story.url,
            "--port",
            "0",
            "--json",
        ],
        env={**story.environment(), "PENSTOCK_DASHBOARD_TOKENS": f"ada:admin:{TOKEN}"},
        stdout=subprocess.PIPE,
        text=True,
        cwd=story.folder,
    )
    try:
        assert process.stdout is not None
        yield process, urlsplit(json.loads(process.stdout.readline())["url"]).port or 0
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


class Attack:
    """Readers, strangers, half requests and streams that nobody reads, from four threads."""

    def __init__(self, port: int, seed: int) -> None:
        self.answers: set[int] = set()
        self._port = port
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._threads = [
            threading.Thread(target=self._go_on, args=(random.Random(seed + n),)) for n in range(4)
        ]
        for thread in self._threads:
            thread.start()

    def _go_on(self, chance: random.Random) -> None:
        while not self._over.is_set():
            with suppress(OSError, HTTPException):
                chance.choice((self._read, self._guess, self._flood, self._half, self._stream))(
                    chance
                )

    def _ask(self, verb: str, path: str, body: bytes | None = None, **headers: str) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=2)
        try:
            connection.request(verb, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            self.answers.add(answer.status)
        finally:
            connection.close()

    def _read(self, chance: random.Random) -> None:
        path = chance.choice(("/", "/jobs?q=arg.n:17", "/queues", "/reports", "/api/v1/history"))
        self._ask("GET", path, Authorization=f"Bearer {TOKEN}")

    def _guess(self, chance: random.Random) -> None:
        self._ask("POST", "/api/v1/jobs/delete", b"{}", Authorization=f"Bearer {chance.random()}")

    def _flood(self, chance: random.Random) -> None:
        self._ask("POST", "/enter", b"x" * chance.choice((10, 10_000_000)))

    def _half(self, chance: random.Random) -> None:
        self._leave_open(b"GET /" + b"a" * chance.randrange(5000))

    def _stream(self, chance: random.Random) -> None:
        head = f"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        self._leave_open(head.encode())

    def _leave_open(self, begun: bytes) -> None:
        if len(self._open) > 300:
            return
        line = socket.create_connection(("127.0.0.1", self._port), timeout=2)
        self._open.append(line)
        line.sendall(begun)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        for line in self._open:
            line.close()


@pytest.mark.parametrize("fate", ["attacked", "frozen", "killed"])
def test_whatever_befalls_the_dashboard_every_job_runs_once(story: Story, fate: str):
    """Issue 7: the dashboard killed, slow or attacked is nothing to a worker."""
    story.task("nap").enqueue_many([(n,) for n in range(JOBS)])
    with dashboard(story) as (process, port):
        attack = Attack(port, seed=7)
        try:
            fleet = story.start(processes=1, threads=4, drain=True)
            eventually(lambda: {200, 401} <= attack.answers, what="the attack is under way")
            if fate == "frozen":
                suspend([process.pid], story.url)
            elif fate == "killed":
                process.kill()
            story.task("nap").enqueue_many([(JOBS + n,) for n in range(JOBS)])
            more = story.start(processes=1, threads=4, drain=True)
            for each in (fleet, more):
                assert each.wait(100) == 0, each.output()
        finally:
            attack.end()

    assert 500 not in attack.answers
    numbers = sorted(int(line[1]) for line in story.ledger("nap"))
    assert numbers == list(range(2 * JOBS))
    assert set(story.successes().values()) == {1}
    assert not story.counted()
