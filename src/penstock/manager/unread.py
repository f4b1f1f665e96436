"""What the stream of one receiver has to send next. Used on the event loop; `behind` anywhere.

While a receiver does not read, gRPC does not take the next message: what waits here then is bounded
by its credits, and it is handed nothing more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any

from penstock.job import Job

# Of one message, and at least one job: clients take 4 MiB unless they say otherwise.
MOST_BYTES = 2 * 1024 * 1024


class UnreadAnswers:
    """Jobs, and what became of settlements."""

    def __init__(self) -> None:
        self._jobs: deque[Job[Any]] = deque()
        self._settled: list[Any] = []  # messages of the contract
        self._news = asyncio.Event()

    def add_jobs(self, jobs: Iterable[Job[Any]]) -> None:
        self._jobs.extend(jobs)
        self._news.set()

    def add_settled(self, settled: Iterable[Any]) -> None:
        self._settled.extend(settled)
        self._news.set()

    def stir(self) -> None:
        """A message is due, whatever there is to say."""
        self._news.set()

    def behind(self) -> bool:
        """Whether there are jobs that its stream has not taken yet."""
        return bool(self._jobs)

    async def take(self) -> tuple[list[Job[Any]], list[Any]]:
        """What goes into the next message, once there is something or it is time for one."""
        if not self._jobs:
            await self._news.wait()
        self._news.clear()
        settled, self._settled = self._settled, []
        jobs: list[Job[Any]] = []
        size = 0
        while self._jobs and (not jobs or size + len(self._jobs[0].body) <= MOST_BYTES):
            size += len(self._jobs[0].body)
            jobs.append(self._jobs.popleft())
        return jobs, settled

    def left(self) -> list[Job[Any]]:
        """The jobs that were never sent; they are taken out."""
        jobs = list(self._jobs)
        self._jobs.clear()
        return jobs
