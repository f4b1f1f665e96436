"""Health: whether this worker gets jobs from its store.

Green while the store has answered a claim (or a renewal, while every hand is busy) within the last
seconds. `serve` answers HTTP probes on loopback: /live while the supervisor's loop runs, /ready
while the worker is green and takes work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from penstock.app.clock import AnyClock

RED_AFTER = 30.0


class Health:
    """When the store last answered, and whether that is recent enough."""

    def __init__(self, clock: AnyClock, red_after: float = RED_AFTER) -> None:
        self.red_after = red_after
        self.draining = False
        self._clock = clock
        self.answered_at = clock.monotonic()  # as if answered at the start
        self.reached_at = self.answered_at  # of any call, also while no claim succeeds
        self.claimed_at: float | None = None  # in wall time, for people

    def claimed(self) -> None:
        self.claimed_at = self._clock.now()
        self.answered()

    def answered(self) -> None:
        self.answered_at = self.reached_at = self._clock.monotonic()

    def reached(self) -> None:
        """A call succeeded that says nothing about claims."""
        self.reached_at = self._clock.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the store last answered."""
        return self._clock.monotonic() - self.answered_at

    @property
    def green(self) -> bool:
        return self.silence < self.red_after

    @property
    def ready(self) -> bool:
        return self.green and not self.draining


Answer = tuple[bool, dict[str, Any]]


@contextmanager
def serve(port: int, live: Callable[[], Answer], ready: Callable[[], Answer]) -> Generator[int]:
    """Answer GET /live and /ready on loopback: 200 or 503, and JSON. Gives the port (0: any)."""
    pages = {"/live": live, "/ready": ready}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            good, body = page() if page else (False, {"error": "there are /live and /ready"})
            text = msgspec.json.encode({"ok": good, **body})
            self.send_response((200 if good else 503) if page else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  named by its parent
            """Log nothing: probes come every few seconds."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, args=(0.1,), name="penstock-health", daemon=True
    )
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
