"""One request per line of stdin, one answer per line of stdout, both JSON.

Whatever a library prints goes to stderr: stdout belongs to the answers alone.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def answer(requests: Mapping[str, Callable[..., Any]]) -> None:
    """Answer until stdin ends; all of it on one event loop, as an async program would."""
    asyncio.run(_answer(requests))


async def _answer(requests: Mapping[str, Callable[..., Any]]) -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            made = requests[request.pop("do")](**request)
            reply = {"answer": await made if inspect.isawaitable(made) else made}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()
