"""A model behind HTTP as one pays for it: busy at times (429), and with a budget (402).

    python endpoint.py 8123 40        the port, and how many calls the budget is for

POST /answer answers {"prompt": "..."}, for one call of the budget. A call with an Idempotency-Key
that was answered before has the same answer, and costs nothing. POST /budget is the next morning:
the budget is unlimited then. GET /paid says how often each prompt was paid for.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

BUSY_EVERY = 4  # of the prompts, one of so many finds the model busy when it is first asked


class Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, budget: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = Lock()
        self.left = budget
        self.busy: set[str] = set()
        self.answers: dict[str, dict[str, object]] = {}
        self.paid: Counter[str] = Counter()

    def answer(self, key: str, prompt: str) -> tuple[int, object]:
        with self.lock:
            if key in self.answers:
                return 200, self.answers[key]
            if sum(map(ord, prompt)) % BUSY_EVERY == 0 and key not in self.busy:
                self.busy.add(key)
                return 429, {"error": "busy"}
            if self.left < 1:
                return 402, {"error": "the budget of today is used up"}
            self.left -= 1
            self.paid[prompt] += 1
            words = prompt.split()
            self.answers[key] = {"text": " ".join(reversed(words)), "tokens": len(words)}
            return 200, self.answers[key]


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/budget":
            self.server.left = float("inf")
            self.reply(200, {})
        else:
            key = self.headers["Idempotency-Key"]
            self.reply(*self.server.answer(key, json.loads(asked)["prompt"]))

    def do_GET(self) -> None:
        self.reply(200, self.server.paid)

    def reply(self, status: int, answer: object) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        if status in {402, 429}:
            self.send_header("Retry-After", "1")  # hours, at night; here nobody wants to wait
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the notebook is what one looks at."""


if __name__ == "__main__":
    Endpoint(int(sys.argv[1]), float(sys.argv[2])).serve_forever()
