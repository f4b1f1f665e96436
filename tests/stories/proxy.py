"""A line between a client and a server that can go bad in the ways that lines do.

Everything is forwarded until the test says otherwise. What is under way when it says so is decided
under one lock, so that a test knows what has reached the server and what has not.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "after"]  # the bytes that trigger it are dropped, or go through first


class _Line:
    """One connection through the proxy."""

    def __init__(
        self, proxy: Proxy, client: socket.socket, server: socket.socket, *, mute: bool
    ) -> None:
        self.proxy = proxy
        self.client = client
        self.server = server
        self.mute = mute  # both ends stay open, and nothing passes
        self._pumps = 2
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            self._forward(source, sink)
        if not self.mute:
            self.hang_up()
        with self.proxy.lock:
            self._pumps -= 1
            over = not self._pumps
        if over:  # not before: a number that is free again may be another line's at once
            self.client.close()
            self.server.close()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        while data := source.recv(1 << 16):
            if self.mute:
                continue
            if self.proxy.delay:
                time.sleep(self.proxy.delay)
            if source is self.client and (cut := self.proxy.verdict(data)):
                if cut == "after":
                    self.mute = True  # before it can answer
                    sink.sendall(data)
                self.hang_up()
                return
            sink.sendall(data)

    def hang_up(self) -> None:
        """The client sees the end of the line; the server is left to find out by itself."""
        self.proxy.forget(self)
        for end in (self.client, self.server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Forwards to the server of this URL; `url` is what clients are told instead."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        login = parts.netloc.rpartition("@")[0]
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))
        self.cuts = 0
        self.delay = 0.0  # seconds that whatever is said takes to arrive
        self._silent = False  # new lines open, and nothing passes on them
        self._chance: Callable[[bytes], Cut | None] = lambda _: None
        self._lines: list[_Line] = []
        self.lock = threading.Lock()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self._closed:
            with suppress(OSError):  # of one client, or of a server that is away: others may come
                self._open_line(self._listener.accept()[0])

    def _open_line(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            client.close()
            raise
        self._lines.append(_Line(self, client, server, mute=self._silent))

    def verdict(self, data: bytes) -> Cut | None:
        """What becomes of a client's bytes: None, they go through."""
        with self.lock:
            cut = self._chance(data)
            self.cuts += cut is not None
            return cut

    def forget(self, line: _Line) -> None:
        if line in self._lines:
            self._lines.remove(line)

    def cut_nth(self, number: int, where: Cut, times: int = 1) -> None:
        """Let clients say so much, and cut what they say next, so many times in a row."""
        said = -1

        def decide(data: bytes) -> Cut | None:
            nonlocal said
            del data
            said += 1
            return where if number <= said < number + times else None

        self.cuts = 0
        with self.lock:
            self._chance = decide

    def cut_at_random(self, share: float, seed: int) -> None:
        """Cut lines again and again: of what clients say, this share is the last they say."""
        chance = random.Random(seed)

        def decide(data: bytes) -> Cut | None:
            del data
            return chance.choice(["before", "after"]) if chance.random() < share else None

        with self.lock:
            self._chance = decide

    def cut_commits(self, share: float, seed: int) -> None:
        """Of the commits, cut this share: half of them before the server has heard of it."""
        chance = random.Random(seed)

        def decide(data: bytes) -> Cut | None:
            if b"commit" in data.lower() and chance.random() < share:
                return chance.choice(["before", "after"])
            return None

        with self.lock:
            self._chance = decide

    def heal(self) -> None:
        """From now on everything goes through, on new lines and on those that are not dead."""
        self.delay = 0.0
        self._silent = False
        with self.lock:
            self._chance = lambda _: None

    def half_open(self, noticed_after: float | None = None) -> None:
        """The lines there are go dead without a word; new ones work.

        `noticed_after`: seconds until both ends learn of it, as from keepalives. Until then the
        server keeps the session, with its locks.
        """
        dead = list(self._lines)
        for line in dead:
            line.mute = True
        if noticed_after is not None:
            timer = threading.Timer(noticed_after, lambda: [line.hang_up() for line in dead])
            timer.daemon = True
            timer.start()

    def black_hole(self) -> None:
        """Nothing passes any more, on the lines there are and on new ones; none is closed."""
        self._silent = True
        self.half_open()

    def hang_up_all(self) -> None:
        """The lines there are end; new ones work."""
        for line in list(self._lines):
            line.hang_up()

    def close(self) -> None:
        self._closed = True
        self._listener.close()
        self.hang_up_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
