"""HTTP probes: /live and /ready on loopback, of a worker or manager with a health port.

A module of its own, since Python's HTTP server takes 20 ms to import.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

import msgspec

from penstock.worker.health import Answer

_PROBE_SECONDS = 5.0
_MOST_PROBES = 20
_HOST = re.compile(r"(?:localhost|127\.0\.0\.1)(?::[0-9]{1,5})?", re.IGNORECASE | re.ASCII)


NO_TEXTS: Mapping[str, Callable[[], str]] = MappingProxyType({})


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


def _as_json(answer: Answer) -> bytes:
    good, body = answer
    return msgspec.json.encode({"ok": good, **body})


@contextmanager
def serve(
    port: int,
    live: Callable[[], Answer],
    ready: Callable[[], Answer],
    texts: Mapping[str, Callable[[], str]] = NO_TEXTS,
) -> Generator[int]:
    """Answer GET /live and /ready on loopback: 200 or 503, and JSON. Gives the port (0: any).

    `texts` are further pages, of plain text.
    """
    pages = {"/live": live, "/ready": ready}
    there = " and ".join([*pages, *texts])

    class Handler(BaseHTTPRequestHandler):
        timeout = _PROBE_SECONDS  # for a request to arrive, and for each part of the answer

        def do_GET(self) -> None:
            page = pages.get(self.path)
            kind = "application/json"
            if _HOST.fullmatch(self.headers.get("host", "")) is None:
                # A page on the web that made a name of its own lead here (DNS rebinding).
                status, text = 421, _as_json((False, {"error": "ask for localhost or 127.0.0.1"}))
            elif page is not None:
                answer = page()
                status, text = 200 if answer[0] else 503, _as_json(answer)
            elif (words := texts.get(self.path)) is not None:
                status, text, kind = 200, words().encode(), "text/plain; version=0.0.4"
            else:
                status, text = 404, _as_json((False, {"error": f"there are {there}"}))
            self.send_response(status)
            self.send_header("Content-Type", kind)
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
