"""Health: whether this worker gets jobs from its store.

Green while the store has answered a claim (or a renewal, while every hand is busy) within the last
seconds. `serve` answers HTTP probes on loopback: /live while the supervisor's loop runs, /ready
while the worker is green and takes work.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from penstock.app.clock import AnyClock

RED_AFTER = 30.0
_PROBE_SECONDS = 5.0
_MOST_PROBES = 20
_HOST = re.compile(r"(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)


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


class _ProbeServer(ThreadingHTTPServer):
    """A thread for each probe, and few of them: the rest is hung up on."""

    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._free = threading.BoundedSemaphore(_MOST_PROBES)
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing of a probe that hung up."""


@contextmanager
def serve(port: int, live: Callable[[], Answer], ready: Callable[[], Answer]) -> Generator[int]:
    """Answer GET /live and /ready on loopback: 200 or 503, and JSON. Gives the port (0: any)."""
    pages = {"/live": live, "/ready": ready}

    class Handler(BaseHTTPRequestHandler):
        timeout = _PROBE_SECONDS  # for a request to arrive, and for each part of the answer

        def do_GET(self) -> None:
            page = pages.get(self.path)
            if _HOST.fullmatch(self.headers.get("host", "")) is None:
                # A page on the web that made a name of its own lead here (DNS rebinding).
                status, good, body = 421, False, {"error": "ask for localhost or 127.0.0.1"}
            elif page is None:
                status, good, body = 404, False, {"error": "there are /live and /ready"}
            else:
                good, body = page()
                status = 200 if good else 503
            text = msgspec.json.encode({"ok": good, **body})
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  named by its parent
            """Log nothing: probes come every few seconds."""

    server = _ProbeServer(("127.0.0.1", port), Handler)
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
