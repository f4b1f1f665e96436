"""Keeps a backlog of no-op jobs standing, in a process of its own.

python -m penstock.tools.bench.postgres.feed URL BACKLOG
"""

from __future__ import annotations

import sys
import time

from penstock.tools.bench.measure import TEXT, store
from penstock.tools.bench.tasks import app, nothing

_AT_ONCE = 10_000


def feed(url: str, backlog: int) -> None:
    """Until it is ended."""
    rows = [(number, TEXT) for number in range(_AT_ONCE)]
    with store(url):
        while True:
            if sum(count.ready for count in app.broker.count()) < backlog:
                nothing.enqueue_many(rows)
            else:
                time.sleep(0.02)


if __name__ == "__main__":
    feed(sys.argv[1], int(sys.argv[2]))
