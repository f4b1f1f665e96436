"""A webhook on loopback: what was sent to it, and an answer that a test chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import Any


class Webhook:
    """`address` holds a secret in its path; `answer` is the next status, `heard` what arrived."""

    def __init__(self) -> None:
        self.heard: Queue[dict[str, Any]] = Queue()
        self.answer = 200
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                hook.heard.put(json.loads(body))
                self.send_response(hook.answer)
                self.send_header("location", f"{hook.address}/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                raise AssertionError("a redirect was followed")

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/hidden-part"

    def take(self) -> dict[str, Any]:
        return self.heard.get(timeout=60)


@contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    thread = threading.Thread(target=hook.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hook
    finally:
        hook.server.shutdown()
        hook.server.server_close()
        thread.join()
