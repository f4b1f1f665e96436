"""An S3 API on loopback (moto), in a process of its own: `python s3_server.py` prints its port.

Not in a thread of the test: Delta's library holds Python's lock while it waits for an answer.
`PUT /-/503=N` has the next N requests answered with 503.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class S3:
    """A server, a bucket in it, and the storage options that lead there."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self.options = {
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ACCESS_KEY_ID": "canary-key",
            "AWS_SECRET_ACCESS_KEY": "canary-secret",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def put(self, path: str) -> None:
        request = urllib.request.Request(f"{self._url}/{path}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()


@contextmanager
def running() -> Iterator[S3]:
    server = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        s3 = S3(int(server.stdout.readline()))
        s3.put("bucket")
        yield s3
    finally:
        server.kill()
        server.wait()
        assert server.stdout is not None
        server.stdout.close()


def serve() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    moto: Any = DomainDispatcherApplication(create_backend_app)
    fault, left = "", 0

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        nonlocal fault, left
        path = environ["PATH_INFO"]
        if path.startswith("/-/"):
            fault, _, number = path.removeprefix("/-/").partition("=")
            left = int(number)
        elif left and fault == "slow":
            left -= 1
            threading.Event().wait(1)
            return moto(environ, start)
        elif left:
            left -= 1
            start(f"{fault} Slow Down", [])
            return [b""]
        else:
            return moto(environ, start)
        start("200 OK", [])
        return [b""]

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, answer, threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve()
